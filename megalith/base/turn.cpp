#include "megalith/base/turn.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"

namespace megalith {

namespace {

// How often a waiter looks whether its wait still makes sense.
constexpr std::chrono::milliseconds kBetweenLooks{20};

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

bool thread_has_ended(pid_t thread) { return ::syscall(SYS_tgkill, ::getpid(), thread, 0) != 0 && errno == ESRCH; }

}  // namespace

void Turn::take(std::string_view where, For use) {
  while (!free_.try_acquire()) {
    check_holder(where);
    if (free_.try_acquire_for(kBetweenLooks)) break;
    interruption_check();
  }
  process_.store(::getpid(), std::memory_order_relaxed);
  use_.store(use, std::memory_order_relaxed);
  thread_.store(thread_id(), std::memory_order_relaxed);
}

void Turn::give_back() noexcept {
  thread_.store(0, std::memory_order_relaxed);
  free_.release();
}

void Turn::pass_on(std::string_view where) {
  check_process(where);
  thread_.store(thread_id(), std::memory_order_relaxed);
}

void Turn::check_process(std::string_view where) const {
  MEGALITH_CHECK(process_.load(std::memory_order_relaxed) == ::getpid(),
                 "[{}] this process was forked while the {} was at work, and its workers stayed in the parent: load or "
                 "compile after the fork, or start processes with \"spawn\" (multiprocessing.set_start_method)",
                 where, what_);
}

void Turn::check_holder(std::string_view where) const {
  const pid_t thread = thread_.load(std::memory_order_relaxed);
  if (thread == 0) return;
  check_process(where);
  const bool is_stream = use_.load(std::memory_order_relaxed) == For::stream;
  if (thread == thread_id()) {
    MEGALITH_CHECK(!is_stream, "[{}] a stream of this {} is not read to its end: read it, or close() it", where, what_);
    throw UserError(
        fmt::format("[{}] the {} is at work in this thread, and this call came in between, from a signal handler, a "
                    "callback or a destructor: set a flag there, and call it when the work is done",
                    where, what_));
  }
  MEGALITH_CHECK(!thread_has_ended(thread),
                 "[{}] the thread that used the {} has ended and left {} open: close() it where it is still held",
                 where, what_, is_stream ? "a stream" : "a call");
}

}  // namespace megalith
