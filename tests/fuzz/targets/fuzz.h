// A fuzz target reads whatever it is given; a UserError is a good end, and everything else is found by libFuzzer and
// the sanitizers. tools/run_fuzz.sh builds and runs the targets; inputs that once broke something stay in
// tests/fuzz/inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "megalith/base/error.h"

namespace megalith::fuzz {

template <class Read>
int run(const uint8_t* data, size_t size, Read read) {
  try {
    read(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const UserError&) {}
  return 0;
}

}  // namespace megalith::fuzz
