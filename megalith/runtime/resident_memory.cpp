#include "megalith/runtime/resident_memory.h"

#include <fstream>
#include <sstream>

namespace megalith::runtime {

ResidentMemory resident_memory(const std::string& root) {
  std::ifstream file(root + "/proc/self/status");
  ResidentMemory memory;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kilobytes = 0;
    if (!(words >> key >> kilobytes)) continue;
    if (key == "VmHWM:") memory.peak = kilobytes * 1024;
    if (key == "VmRSS:") memory.now = kilobytes * 1024;
    if (key == "RssFile:") memory.from_files = kilobytes * 1024;
  }
  return memory;
}

bool resident_peak_reset() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n" << std::flush;  // see proc(5)
  return file.good();
}

}  // namespace megalith::runtime
