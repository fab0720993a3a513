#include "megalith/runtime/process_age.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace megalith::runtime {

double process_age_ms(const std::string& root) {
  std::ifstream file(root + "/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field is the program's name in parentheses and may contain anything; see proc(5).
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kSkip = 19;  // from the third field to the one before `starttime`
  std::string skipped;
  for (int i = 0; i < kSkip; ++i) fields >> skipped;
  double ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double began_ms = ticks * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6 - began_ms);
}

}  // namespace megalith::runtime
