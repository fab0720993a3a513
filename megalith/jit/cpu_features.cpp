#include <fmt/format.h>

#include "megalith/jit/compiler.h"

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

namespace megalith::jit {

namespace {

#if defined(__x86_64__)

std::string describe() {
  unsigned a, b, c, d;
  __cpuid(0, a, b, c, d);
  const unsigned last = a;
  std::string text;
  for (unsigned word : {b, d, c})
    for (int i = 0; i < 4; ++i) text += static_cast<char>(word >> (8 * i));
  __cpuid(1, a, b, c, d);
  text += fmt::format(" {:x} {:x}.{:x}", a, c, d);  // b holds the number of the core we happen to run on
  const bool saves_wide_registers = (c >> 27) & 1;
  if (last >= 7) {
    __cpuid_count(7, 0, a, b, c, d);
    const unsigned leaves = a;
    text += fmt::format(" {:x}.{:x}.{:x}", b, c, d);
    if (leaves >= 1) {
      __cpuid_count(7, 1, a, b, c, d);
      text += fmt::format(" {:x}.{:x}", a, d);
    }
  }
  __cpuid(0x80000001, a, b, c, d);
  text += fmt::format(" {:x}.{:x}", c, d);
  if (saves_wide_registers) {
    // What the system saves at a context switch; a feature whose registers it does not save is not used.
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    text += fmt::format(" {:x}", a);
  }
  return text;
}

#else

std::string describe() {
  return fmt::format("hwcap {:x}.{:x} platform {}", getauxval(AT_HWCAP), getauxval(AT_HWCAP2),
                     getauxval(AT_PLATFORM) ? reinterpret_cast<const char*>(getauxval(AT_PLATFORM)) : "?");
}

#endif

}  // namespace

const std::string& cpu_features() {
  static const std::string text = describe();
  return text;
}

}  // namespace megalith::jit
