#include "megalith/base/cut_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace megalith {

// A guarded mapping. Entries are never freed, since the handler may be looking at one, but used again.
struct CutGuardEntry {
  std::atomic<uintptr_t> begin = 0;  // 0: free. Written last, read first
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> has_read_zeros = false;
  CutGuardEntry* next = nullptr;
};

namespace {

std::atomic<CutGuardEntry*> first_entry = nullptr;
struct sigaction previous_action;
uintptr_t page_bytes = 0;

// Whether the fault was one of ours, and is repaired.
bool repair(uintptr_t address) {
  for (CutGuardEntry* entry = first_entry.load(std::memory_order_acquire); entry; entry = entry->next) {
    const uintptr_t begin = entry->begin.load(std::memory_order_acquire);
    const uintptr_t end = entry->end.load(std::memory_order_relaxed);
    if (begin == 0 || address < begin || address >= end) continue;
    // All that follows is gone, too.
    const uintptr_t page = address / page_bytes * page_bytes;
    entry->has_read_zeros.store(true, std::memory_order_relaxed);
    // The system call itself: libraries that stand before mmap() need not expect it within a signal handler, and
    // ThreadSanitizer takes it for a write into pages that other threads read.
    return ::syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                     0) != -1;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool is_repaired = info->si_code == BUS_ADRERR && repair(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved_errno;
  if (is_repaired) return;
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    // Faults again, and ends the process as it would have ended.
    sigaction(signal, &previous_action, nullptr);
    if (info->si_code <= 0) raise(signal);  // it was sent, and does not come again by itself
  }
}

void install_handler() {
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &previous_action);
}

CutGuardEntry* take_entry(uintptr_t begin, uintptr_t end) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  CutGuardEntry* entry = first_entry.load(std::memory_order_relaxed);
  while (entry && entry->begin.load(std::memory_order_relaxed) != 0) entry = entry->next;
  const bool is_new = !entry;
  if (is_new) entry = new CutGuardEntry;
  entry->has_read_zeros.store(false, std::memory_order_relaxed);
  entry->end.store(end, std::memory_order_relaxed);
  entry->begin.store(begin, std::memory_order_release);  // pairs with the acquire in repair()
  if (!is_new) return entry;
  entry->next = first_entry.load(std::memory_order_relaxed);
  first_entry.store(entry, std::memory_order_release);  // pairs with the acquire in repair()
  return entry;
}

}  // namespace

CutGuard::CutGuard(const void* begin, size_t bytes) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  // The system maps whole pages.
  entry_ = take_entry(address, address + (bytes + page_bytes - 1) / page_bytes * page_bytes);
}

CutGuard::CutGuard(CutGuard&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}

CutGuard& CutGuard::operator=(CutGuard&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

CutGuard::~CutGuard() {
  if (entry_) entry_->begin.store(0, std::memory_order_release);
}

bool CutGuard::has_read_zeros() const { return entry_ && entry_->has_read_zeros.load(std::memory_order_relaxed); }

}  // namespace megalith
