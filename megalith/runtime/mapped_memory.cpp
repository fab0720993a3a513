#include "megalith/runtime/mapped_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace megalith::runtime {

MappedMemory MappedMemory::of_this_process(const std::string& root) {
  MappedMemory memory;
  std::ifstream maps(root + "/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);  // "7f0c2d000000-7f0c2d021000 rw-p ...", proc(5)
    Range range{};
    char dash = 0;
    std::string access;
    if (!(fields >> std::hex >> range.begin >> dash >> range.end >> access) || access.size() < 2) continue;
    range.can_be_read = access[0] == 'r';
    range.can_be_written = access[1] == 'w';
    memory.ranges_.push_back(range);
  }
  memory.is_known_ = !memory.ranges_.empty();
  return memory;
}

std::string MappedMemory::trouble(const void* address, int64_t bytes, bool is_written) const {
  if (!is_known_ || bytes <= 0) return "";
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto size = static_cast<uintptr_t>(bytes);
  if (begin + size < begin) return "reaches beyond the end of memory";
  uintptr_t at = begin;
  for (auto range = std::ranges::upper_bound(ranges_, at, {}, &Range::end); range != ranges_.end(); ++range) {
    if (range->begin > at) break;
    if (!range->can_be_read) return "cannot be read: its pages are protected";
    if (is_written && !range->can_be_written) return "cannot be written: its pages are read-only";
    at = range->end;
    if (at >= begin + size) return "";
  }
  return at == begin ? "is not there: nothing is mapped at its address"
                     : fmt::format("is not all there: only {} of its {} bytes are mapped", at - begin, bytes);
}

}  // namespace megalith::runtime
