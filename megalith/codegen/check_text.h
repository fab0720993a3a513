// What a check of a kernel is about, in words, for the error that a fault becomes (runtime/fault_report.h).
#pragma once

#include <string>

namespace megalith::codegen {

struct CheckText {
  std::string what;   // "reads weight[ids[t], h]", "divides a[t] // b[t]"
  std::string value;  // "ids[t]": the subscript, or the divisor
};

}  // namespace megalith::codegen
