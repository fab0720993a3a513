#include "megalith/base/format.h"

#include <fmt/format.h>

namespace megalith {

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 5) bytes /= 1024, ++unit;  // four digits are one too many: 1000 B is 0.98 KiB
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  std::string number = fmt::format("{:.{}f}", bytes, bytes < 1 ? 2 : bytes < 99.95 ? 1 : 0);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return fmt::format("{} {}", number, kUnits[unit]);
}

}  // namespace megalith
