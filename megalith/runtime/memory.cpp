#include "megalith/runtime/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/runtime/topology.h"

namespace megalith::runtime {

namespace {
[[noreturn]] void throw_no_memory(int64_t bytes, const std::string& what, const std::string& reason) {
  throw SystemError(
      fmt::format("[memory] cannot map {} for {}: {} ({} available); close something, or use a smaller model "
                  "or a shorter context",
                  format_bytes(bytes), what, reason, format_bytes(memory_available_bytes())));
}
}  // namespace

void throw_out_of_memory(const std::string& doing, int64_t bytes) {
  struct rlimit limit;
  const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  throw SystemError(fmt::format(
      "[memory] {} ran out of memory{}: {} are available{}", doing,
      bytes > 0 ? fmt::format(" ({})", format_bytes(bytes)) : "", format_bytes(memory_available_bytes()),
      is_limited ? fmt::format(", since this process may have {} in all; raise its limit (ulimit -v), or use a smaller "
                               "model or a shorter context",
                               format_bytes(static_cast<int64_t>(limit.rlim_cur)))
                 : "; close something, or use a smaller model or a shorter context"));
}

Mapping::Mapping(int64_t bytes, const std::string& what, bool huge_pages) : bytes_(bytes) {
  MEGALITH_ASSERT(bytes >= 0, "[memory] {} bytes wanted for {}", bytes, what);
  if (bytes == 0) return;
  // Linux overcommits: without this look the mapping succeeds and the process is killed when it touches it.
  if (bytes > memory_available_bytes()) throw_no_memory(bytes, what, "not enough memory");

  // Mapped with room to align, then trimmed at both ends.
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t slack = huge_pages && bytes >= kHugePageBytes ? kHugePageBytes : 0;
  const int64_t size = (bytes + page - 1) / page * page;
  void* map = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw_no_memory(bytes, what, std::strerror(errno));
  std::byte* begin = static_cast<std::byte*>(map);
  if (slack != 0) {
    const int64_t head = (kHugePageBytes - reinterpret_cast<intptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
    if (head > 0) munmap(begin, head);
    if (slack > head) munmap(begin + head + size, slack - head);
    begin += head;
    madvise(begin, size, MADV_HUGEPAGE);  // a kernel without huge pages says no; slower, not wrong
  } else if (!huge_pages) {
    madvise(begin, size, MADV_NOHUGEPAGE);
  }
  data_ = begin;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace megalith::runtime
