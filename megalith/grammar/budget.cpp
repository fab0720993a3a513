#include "megalith/grammar/budget.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>

namespace megalith::grammar {

namespace {

thread_local Budget* current = nullptr;

int64_t processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// That the process has in memory; 0 if nobody says.
int64_t resident_bytes() {
  static const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128] = {};
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (length <= 0) return 0;
  char* second = nullptr;
  std::strtoll(text, &second, 10);  // all that is mapped
  return std::strtoll(second, nullptr, 10) * page_bytes;
}

// Allocations between two looks at the clock, which is a system call, and at the process's memory, which is several: seldom
// enough that nobody notices, often enough that milliseconds pass between, and a few megabytes of small ones.
constexpr uint32_t kClockEvery = 256, kMemoryEvery = 16384;
constexpr size_t kLargeBytes = 1 << 20;  // and before each one of these

}  // namespace

Budget::Budget(const BudgetLimits& limits)
    : limits_(limits), begin_ns_(processor_ns()), exceptions_(std::uncaught_exceptions()) {
  current = this;
}

Budget::~Budget() { current = nullptr; }

void Budget::warn(const std::string& text) {
  if (current && current->warning_.empty()) current->warning_ = text;
}

void Budget::look(size_t bytes) {
  if (++count_ % kClockEvery == 0 || bytes >= kLargeBytes || exceeded_) check(bytes);
}

// Said once more to whoever caught it; but not to what cleans up on its way.
void Budget::check(size_t bytes) {
  if (!exceeded_ && processor_ns() - begin_ns_ > limits_.nanoseconds) exceeded_ = "time";
  if (!exceeded_ && (bytes >= kLargeBytes || count_ % kMemoryEvery == 0 || begin_bytes_ < 0)) {
    const int64_t now = resident_bytes();
    if (begin_bytes_ < 0) begin_bytes_ = now;
    if (bytes > static_cast<size_t>(limits_.bytes) || now - begin_bytes_ > limits_.bytes - static_cast<int64_t>(bytes))
      exceeded_ = "memory";
  }
  if (exceeded_ && std::uncaught_exceptions() == exceptions_) throw BudgetExceeded(exceeded_);
}

}  // namespace megalith::grammar

// ---- what xgrammar's library calls for operator new --------------------------------------------

extern "C" {

void* megalith_grammar_new(size_t bytes);

void* megalith_grammar_new(size_t bytes) {
  if (megalith::grammar::current) megalith::grammar::current->look(bytes);
  return ::operator new(bytes);
}
}
