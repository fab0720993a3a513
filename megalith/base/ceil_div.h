// How many parts of a size a whole takes.
#pragma once

#include <cstdint>

namespace megalith {

/// a / b, rounded up; a is not negative, b is positive.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace megalith
