#include "megalith/base/random_hex.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>

#include "megalith/base/error.h"

namespace megalith {

std::string random_hex() {
  uint64_t numbers[2];
  // So few bytes come at once, or not at all.
  if (::getrandom(numbers, sizeof numbers, 0) != sizeof numbers)
    throw system_error("the system gives no random numbers");
  return fmt::format("{:016x}{:016x}", numbers[0], numbers[1]);
}

}  // namespace megalith
