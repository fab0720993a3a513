// Who plays the threads of a block, and how they wait for each other. One thread of the host runs them all by turns, and
// goes on with any other, drawn at random, where one waits: of hundreds of threads the kernel's waking would take many
// times what they calculate. A sanitizer sees threads of the host instead, which nothing but where they meet orders.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace megalith::kernels {

/// The number of the thread that runs.
inline thread_local int self = 0;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

/// body(), by threads 0 up to `num_threads`, which has returned for all of them then.
inline void run_threads(int num_threads, const std::function<void()>& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < num_threads; ++t)
    threads.emplace_back([&body, t] {
      self = t;
      body();
    });
}

/// Lets others run that what this one waits for may come from.
inline void give_way() { std::this_thread::yield(); }

/// A std::barrier whose threads wait for a word of their own: GCC's wait for a byte, and whoever waits for any byte is
/// woken with them.
class Meeting {
 public:
  explicit Meeting(int num_threads) : num_threads_(num_threads) {}
  void arrive_and_wait() {
    const int before = phase_.load(std::memory_order_relaxed);  // nobody can end it before this thread has arrived
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(before + 1, std::memory_order_release);
      phase_.notify_all();
    } else {
      phase_.wait(before, std::memory_order_acquire);
    }
  }

 private:
  const int num_threads_;
  std::atomic<int> arrived_{0}, phase_{0};
};

#else

/// Contexts that a thread of the host runs by turns. A block at a time.
class Turns {
 public:
  void run(int num_threads, const std::function<void()>& body) {
    body_ = &body, num_left_ = num_threads;
    for (int t = static_cast<int>(contexts_.size()); t < num_threads; ++t) contexts_.push_back(make_context());
    can_go_on_.clear();
    for (int t = 0; t < num_threads; ++t) {
      contexts_[static_cast<size_t>(t)]->uc_link = &host_;
      makecontext(contexts_[static_cast<size_t>(t)].get(), begin, 0);
      can_go_on_.push_back(t);
    }
    while (num_left_ > 0) {
      self = draw();
      swapcontext(&host_, contexts_[static_cast<size_t>(self)].get());
    }
    self = 0;
  }
  /// The thread that runs waits until another one calls wake() for it.
  void sleep() {
    const int from = std::exchange(self, draw());
    if (self != from)
      swapcontext(contexts_[static_cast<size_t>(from)].get(), contexts_[static_cast<size_t>(self)].get());
  }
  void wake(int thread) { can_go_on_.push_back(thread); }
  void give_way() {
    if (num_left_ == 0 || can_go_on_.empty()) return std::this_thread::yield();  // to other threads of the host
    wake(self);
    sleep();
  }

  static Turns& get() {
    static thread_local Turns turns;
    return turns;
  }

 private:
  static constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 4096;

  static std::unique_ptr<ucontext_t> make_context() {
    auto context = std::make_unique<ucontext_t>();
    getcontext(context.get());
    void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) fail("there is no memory for its stack");
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = kStackBytes;
    return context;
  }
  static void begin() {
    (*get().body_)();
    --get().num_left_;  // its end leads back to run()
  }
  int draw() {
    if (can_go_on_.empty()) fail("waits for others, none of which goes on");
    std::swap(can_go_on_[random_() % can_go_on_.size()], can_go_on_.back());
    const int thread = can_go_on_.back();
    can_go_on_.pop_back();
    return thread;
  }
  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "thread %d of the block %s\n", self, why);
    std::abort();
  }

  std::vector<std::unique_ptr<ucontext_t> > contexts_;  // kept for the next block
  std::vector<int> can_go_on_;
  ucontext_t host_;
  const std::function<void()>* body_ = nullptr;
  int num_left_ = 0;
  std::minstd_rand random_;
};

inline void run_threads(int num_threads, const std::function<void()>& body) { Turns::get().run(num_threads, body); }
inline void give_way() { Turns::get().give_way(); }

class Meeting {
 public:
  explicit Meeting(int num_threads) : num_threads_(num_threads) {}
  void arrive_and_wait() {
    if (static_cast<int>(waiting_.size()) + 1 < num_threads_) {
      waiting_.push_back(self);
      Turns::get().sleep();
    } else {
      for (const int thread : waiting_) Turns::get().wake(thread);
      waiting_.clear();
    }
  }

 private:
  const int num_threads_;
  std::vector<int> waiting_;
};

#endif

}  // namespace megalith::kernels
