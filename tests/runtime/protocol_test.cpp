// What the protocol costs, printed; and a few of its promises that need no launcher. The figures are not judged:
// machines differ, and these tests share theirs with others.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "megalith/runtime/topology.h"
#include "runtime/test_kernel.h"

namespace megalith::runtime {
namespace {

using Clock = std::chrono::steady_clock;

/// A body that does nothing, by a direct call: what is left is the protocol.
void empty_entry(const Launch* launch, u32 worker) {
  worker_run(*launch, worker, [](const TaskRecord&, void* const*, u8*, u32) {});
}

double run_ns(LaunchImage& image) {
  Launcher launcher(empty_entry, image);
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = Clock::now();
    launcher.run();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  return best;
}

TEST(ProtocolFigures, TaskWithASatisfiedWait) {
  constexpr int kTasks = 1000, kIterations = 100;
  TestKernel kernel(1);
  std::vector<int> events;
  for (int t = 0; t < kTasks; ++t) events.push_back(kernel.event("e"));
  for (int t = 0; t < kTasks; ++t) {
    std::vector<task::Wait> waits;
    if (t > 0) waits.push_back({events[t - 1]});
    kernel.task("t", 0, std::move(waits), {events[t]});
  }
  kernel.num_iterations = kIterations;
  LaunchImage image = kernel.build();
  const double ns = run_ns(image);
  std::printf("[ FIGURE   ] task with a satisfied wait and a signal, one worker: %.1f ns\n", ns / kTasks / kIterations);
}

TEST(ProtocolFigures, TaskWithoutEvents) {
  constexpr int kTasks = 1000, kIterations = 100;
  TestKernel kernel(1);
  for (int t = 0; t < kTasks; ++t) kernel.task("t", 0, {}, {});
  kernel.num_iterations = kIterations;
  LaunchImage image = kernel.build();
  const double ns = run_ns(image);
  std::printf("[ FIGURE   ] task without events: %.1f ns\n", ns / kTasks / kIterations);
}

TEST(ProtocolFigures, SignalToWaitOneWay) {
  if (cpu_topology().num_usable() < 2) GTEST_SKIP() << "[SKIP] one core only";
  // The median over many short stretches, so that being descheduled in some does not count.
  constexpr u32 kIterations = 10000, kStretch = 50;
  std::vector<Clock::time_point> times;
  TestKernel kernel(2);
  const int ping = kernel.event("ping"), pong = kernel.event("pong");
  kernel.task("ping", 0, {{pong, 0, 1}}, {ping}, [&](u32 i) {
    if (i % kStretch == 0) times.push_back(Clock::now());
  });
  kernel.task("pong", 1, {{ping}}, {pong});
  kernel.num_iterations = kIterations;
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  std::vector<double> ns;
  for (size_t i = 1; i < times.size(); ++i)
    ns.push_back(std::chrono::duration<double, std::nano>(times[i] - times[i - 1]).count() / kStretch / 2);
  std::ranges::sort(ns);
  std::printf("[ FIGURE   ] signal to wait, one way, between two cores: median %.0f ns, best %.0f ns\n",
              ns[ns.size() / 2], ns[0]);
}

TEST(ProtocolFigures, StartAndJoin) {
  TestKernel kernel(cpu_topology().num_usable());
  for (int w = 0; w < cpu_topology().num_usable(); ++w) kernel.task("t", w, {}, {});
  LaunchImage image = kernel.build();
  std::printf("[ FIGURE   ] a run of one empty task a worker, threads made and joined: %.0f us\n",
              run_ns(image) / 1000);
}

TEST(ProtocolFigures, SleepAndWake) {
  EventCounter event{0};
  constexpr int kRepeats = 200;
  std::vector<Clock::time_point> woken(kRepeats);
  std::thread waiter([&] {
    for (u32 i = 0; i < kRepeats; ++i) {
      while (!event_has(event, i + 1)) event_sleep(&event, i + 1);
      woken[i] = Clock::now();
    }
  });
  std::vector<double> us;
  for (int i = 0; i < kRepeats; ++i) {
    while (word_sleepers(load_acquire(&event.word)) == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const auto begin = Clock::now();
    add_release_wake(&event);
    us.push_back(-std::chrono::duration<double, std::micro>(begin.time_since_epoch()).count());
  }
  waiter.join();
  for (int i = 0; i < kRepeats; ++i)
    us[i] += std::chrono::duration<double, std::micro>(woken[i].time_since_epoch()).count();
  std::ranges::sort(us);
  EXPECT_EQ(event.word, kRepeats * kOneArrival);  // and no sleepers
  std::printf("[ FIGURE   ] signal to a sleeping waiter: median %.1f us, worst %.1f us\n", us[kRepeats / 2], us.back());
}

TEST(Protocol, SleeperNeverMissesASignal) {
  // Without a spin, every wait goes through the sleep; were a wake-up lost, the run would take 20 ms for each.
  constexpr u32 kSignals = 2000;
  EventCounter ping{0}, pong{0};
  const auto begin = Clock::now();
  std::thread other([&] {
    for (u32 i = 1; i <= kSignals; ++i) {
      while (!event_has(ping, i)) event_sleep(&ping, i);
      add_release_wake(&pong);
    }
  });
  for (u32 i = 1; i <= kSignals; ++i) {
    add_release_wake(&ping);
    while (!event_has(pong, i)) event_sleep(&pong, i);
  }
  other.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_LT(seconds, 20);  // 5-50 us each is usual, 1 ms on a busy machine; a loss each time would be 80 s
}

TEST(Protocol, WaitsCompareByDifference) {
  EventCounter event{3 * kOneArrival};  // three past the wrap
  WorkerStatus status{};
  Control control{1};  // aborted: a wait that does not hold returns at once
  Launch launch{};
  launch.events = &event;
  launch.control = &control;
  EXPECT_TRUE(event_wait(launch, status, 0, 0xfffffffeu));
  EXPECT_TRUE(event_wait(launch, status, 0, 3));
  EXPECT_FALSE(event_wait(launch, status, 0, 4));
  EXPECT_EQ(status.wanted, 4u);
}

}  // namespace
}  // namespace megalith::runtime
