#include "megalith/base/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "megalith/base/log.h"
#endif

namespace megalith {

namespace {

#if defined(__x86_64__) && defined(__linux__)

bool processor_has_tiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  return (d & kBf16) && (d & kTile);
}

bool ask() {
  // Registers of 8 KB would make every thread's state that much larger, so Linux gives them to those who ask.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (!processor_has_tiles()) return false;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return true;
  log_warn("[amx] this processor has tiles, but the system gives none ({}): prompts take longer", std::strerror(errno));
  return false;
}

#else

bool ask() { return false; }

#endif

}  // namespace

bool amx_is_usable() {
  static const bool usable = ask();
  return usable;
}

}  // namespace megalith
