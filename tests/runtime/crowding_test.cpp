// Whether threads had their cores to themselves: what Linux counts of them, and what the launcher makes of it.
#include "megalith/runtime/crowding.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "megalith/runtime/topology.h"

namespace megalith::runtime {
namespace {

using std::chrono::milliseconds;

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Threads that spin on one core until this goes.
class Spinners {
 public:
  explicit Spinners(int count) : ids_(static_cast<size_t>(count)) {
    const int core = cpu_topology().cores.at(0);
    for (int t = 0; t < count; ++t)
      threads_.emplace_back([this, t, core] {
        pin_this_thread(core);
        ids_[static_cast<size_t>(t)] = this_thread_id();
        ++num_begun_;
        while (!is_over_) {}
      });
    while (num_begun_ < count) std::this_thread::yield();
  }
  ~Spinners() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  const std::vector<int64_t>& ids() const { return ids_; }

 private:
  std::vector<int64_t> ids_;
  std::atomic<int> num_begun_{0};
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;
};

TEST(Crowding, OfThreadsThatShareACoreIsSeen) {
  if (run_delay_ns(this_thread_id()) < 0) GTEST_SKIP() << "[SKIP] this system counts no waits of threads (schedstat)";
  const Spinners spinners(3);
  Crowding crowding(spinners.ids());
  EXPECT_FALSE(crowding.look(now_ns())) << "there is nothing yet to compare with";
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_TRUE(crowding.look(now_ns()));
}

TEST(Crowding, EndsASecondAfterTheLastWait) {
  if (run_delay_ns(this_thread_id()) < 0) GTEST_SKIP() << "[SKIP] this system counts no waits of threads (schedstat)";
  Crowding crowding({});
  EXPECT_FALSE(crowding.look(0));
  EXPECT_FALSE(crowding.look(2'000'000'000));
  std::vector<int64_t> ids;
  int64_t at = now_ns();
  {
    const Spinners spinners(3);
    ids = spinners.ids();
    Crowding watched(ids);
    watched.look(at);
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_TRUE(watched.look(at += 300'000'000));
    crowding = watched;
  }
  // The threads have ended; nobody waits any more.
  EXPECT_TRUE(crowding.look(at + 500'000'000)) << "half a second later";
  EXPECT_FALSE(crowding.look(at + 1'500'000'000));
}

TEST(Crowding, OfAThreadThatIsNoneIsUnknown) { EXPECT_EQ(run_delay_ns(int64_t{1} << 30), -1); }

TEST(Crowding, ThreadsMayBeMovedFromOutside) {
  const std::vector<int> cores = cpu_topology().cores;
  EXPECT_TRUE(thread_may_use(this_thread_id(), cores));
  EXPECT_TRUE(thread_may_use(this_thread_id(), {cores[0]}));
  EXPECT_TRUE(thread_may_use(this_thread_id(), cores));
  EXPECT_FALSE(thread_may_use(int64_t{1} << 30, cores));
}

}  // namespace
}  // namespace megalith::runtime
