// The launcher and the worker loop: order of tasks, gate and stop, lag, wrap-around, more workers than cores.
#include "megalith/runtime/launcher.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "megalith/runtime/topology.h"
#include "runtime/test_kernel.h"

namespace megalith::runtime {
namespace {

/// Fork, join, and a diamond in one graph, on plain memory: split -> parts (all workers) -> sum -> {double, negate} ->
/// last.
struct Diamond {
  static constexpr int kPart = 1000;
  int num_workers;
  std::vector<u32> data, partial;  // unsigned: values wrap with the iterations
  u32 sum = 0, doubled = 0, negated = 0;
  std::vector<u32> lasts;
  TestKernel kernel;

  explicit Diamond(int workers) : num_workers(workers), data(workers * kPart), partial(workers), kernel(workers) {
    const int split = kernel.event("split"), parts = kernel.event("parts"), total = kernel.event("total"),
              sides = kernel.event("sides"), end = kernel.event("end");
    kernel.task("split", 0, {{end, 0, 1}}, {split},
                [this](u32 iteration) { std::iota(data.begin(), data.end(), iteration); });
    for (int w = 0; w < workers; ++w)
      kernel.task("part", w, {{split}}, {parts}, [this, w](u32) {
        partial[w] = std::accumulate(data.begin() + w * kPart, data.begin() + (w + 1) * kPart, 0u);
      });
    kernel.task("sum", workers - 1, {{parts}}, {total},
                [this](u32) { sum = std::accumulate(partial.begin(), partial.end(), 0u); });
    kernel.task("double", 0, {{total}}, {sides}, [this](u32) { doubled = 2 * sum; });
    kernel.task("negate", workers / 2, {{total}}, {sides}, [this](u32) { negated = -sum; });
    kernel.task("last", workers - 1, {{sides}}, {end}, [this](u32) { lasts.push_back(doubled + negated); });
  }

  void check(u32 num_iterations, u32 first = 0) {
    ASSERT_EQ(lasts.size(), num_iterations);
    const u32 n = static_cast<u32>(data.size());
    for (u32 i = 0; i < num_iterations; ++i)
      ASSERT_EQ(lasts[i], n * (n - 1) / 2 + n * (first + i)) << "iteration " << i;
  }
};

class LauncherWorkers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToFive, LauncherWorkers, testing::Range(1, 6));

TEST_P(LauncherWorkers, DiamondComputesRealData) {
  Diamond diamond(GetParam());
  diamond.kernel.num_iterations = 50;
  LaunchImage image = diamond.kernel.build();
  Launcher launcher(test_entry, image);
  EXPECT_EQ(launcher.run(), RunEnd::finished);
  diamond.check(50);
  diamond.lasts.clear();
  EXPECT_EQ(launcher.run(), RunEnd::finished);  // fresh counters
  diamond.check(50);
}

TEST_P(LauncherWorkers, CountersWrapAround) {
  Diamond diamond(GetParam());
  diamond.kernel.num_iterations = 40;
  LaunchImage image = diamond.kernel.build();
  Launcher launcher(test_entry, image);
  const u32 first = 0u - 20;
  EXPECT_EQ(launcher.run(first), RunEnd::finished);
  diamond.check(40, first);
  EXPECT_EQ(word_arrived(image.launch().events[0].word), 20u);

  // "parts" has one arrival per worker: here that counter wraps in mid-iteration when there are three or five workers.
  const u32 mid = 0xffffffffu / static_cast<u32>(GetParam()) - 7;
  diamond.lasts.clear();
  EXPECT_EQ(launcher.run(mid), RunEnd::finished);
  diamond.check(40, mid);
}

TEST_P(LauncherWorkers, StopWordEndsAllWorkersAtTheSameIteration) {
  const int num_workers = GetParam();
  i32 stop = 0;
  std::vector<int> ran(num_workers);
  TestKernel kernel(num_workers);
  const int done = kernel.event("done"), gate = kernel.event("gate");
  for (int w = 0; w < num_workers; ++w) kernel.task("work", w, {}, {done}, [&ran, w](u32) { ++ran[w]; });
  kernel.task("sample", 0, {{done}}, {gate}, [&stop](u32 iteration) { stop = iteration == 29; });
  kernel.graph.gate = gate;
  kernel.stop = &stop;
  kernel.num_iterations = 0;
  LaunchImage image = kernel.build();
  Launcher launcher(test_entry, image);
  EXPECT_EQ(launcher.run(), RunEnd::finished);
  for (int w = 0; w < num_workers; ++w) EXPECT_EQ(ran[w], 30) << "worker " << w;
  EXPECT_EQ(launcher.run(), RunEnd::finished);  // the word is still set: not one iteration
  for (int w = 0; w < num_workers; ++w) EXPECT_EQ(ran[w], 30) << "worker " << w;
}

TEST(Launcher, LagOneLetsTheWriterRunOneIterationAhead) {
  // Two buffers in turn: the writer of iteration i waits for the reader of iteration i - 1 only.
  int buffer[2] = {0, 0};
  std::vector<int> seen;
  TestKernel kernel(2);
  const int written = kernel.event("written"), read = kernel.event("read");
  kernel.task("write", 0, {{read, 0, 1}}, {written}, [&](u32 i) { buffer[i % 2] = static_cast<int>(i) * 3; });
  kernel.task("read", 1, {{written}}, {read}, [&](u32 i) { seen.push_back(buffer[i % 2]); });
  kernel.num_iterations = 1000;
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(seen[i], 3 * i);
}

TEST(Launcher, WaitForSomeArrivalsOnly) {
  TestKernel kernel(2);
  const int event = kernel.event("either");
  bool second = false;
  kernel.task("first", 0, {}, {event});
  kernel.task("second", 0, {}, {event}, [&](u32) { second = true; });
  kernel.task("any", 1, {{event, 1, 0}}, {});
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  EXPECT_TRUE(second);
}

TEST(Launcher, WorkerWithoutTasksReturns) {
  TestKernel kernel(3);
  const int gate = kernel.event("gate");
  int ran = 0;
  kernel.task("only", 1, {}, {gate}, [&](u32) { ++ran; });
  kernel.graph.gate = gate;
  kernel.num_iterations = 10;
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  EXPECT_EQ(ran, 10);
}

TEST(Launcher, PinsWorkersThatHaveACoreEach) {
  const int cores = cpu_topology().num_usable();
  std::vector<std::vector<int>> seen(cores);
  TestKernel kernel(cores);
  for (int w = 0; w < cores; ++w) kernel.task("where", w, {}, {}, [&seen, w](u32) { seen[w] = affinity_cores(); });
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  for (int w = 0; w < cores; ++w) EXPECT_EQ(seen[w], std::vector<int>{affinity_cores()[w]});
}

TEST(Launcher, FarMoreWorkersThanCores) {
  const int num_workers = 8 * cpu_topology().num_usable();
  std::vector<int> chain;
  TestKernel kernel(num_workers);
  int previous = -1;
  for (int w = 0; w < num_workers; ++w) {
    const int done = kernel.event("done");
    std::vector<task::Wait> waits;
    if (previous >= 0) waits.push_back({previous});
    kernel.task("link", w, std::move(waits), {done}, [&chain, w](u32) { chain.push_back(w); });
    previous = done;
  }
  kernel.graph.gate = previous;
  kernel.num_iterations = 20;
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  ASSERT_EQ(chain.size(), 20u * num_workers);
  for (size_t i = 0; i < chain.size(); ++i) ASSERT_EQ(chain[i], static_cast<int>(i % num_workers));
}

TEST(Launcher, StartTakeWaitWithAMailbox) {
  Mailbox mailbox;
  std::vector<MailRecord> records(4);
  mailbox_init(&mailbox, records.data(), 4);
  i32 stop = 0;
  TestKernel kernel(2);
  const int done = kernel.event("done"), gate = kernel.event("gate");
  LaunchImage* image_of_task = nullptr;
  int value = 0;
  kernel.task("work", 1, {}, {done}, [&](u32 i) { value = static_cast<int>(i) * 10; });
  kernel.task("sample", 0, {{done}}, {gate}, [&](u32 i) {
    stop = i == 99;
    const u32* abort = &image_of_task->launch().control->abort;
    mailbox_post(&mailbox, {0, value, static_cast<u32>(MailKind::token), 0}, abort);
  });
  kernel.graph.gate = gate;
  kernel.stop = &stop;
  kernel.num_iterations = 0;
  LaunchImage image = kernel.build();
  image_of_task = &image;
  Launcher launcher(test_entry, image, {.mailbox = &mailbox});
  launcher.start();
  std::vector<int> tokens;
  for (;;) {
    MailRecord record{};
    const bool finished = launcher.finished();
    if (mailbox_take(&mailbox, &record, 50'000'000))
      tokens.push_back(record.token);
    else if (finished)
      break;
  }
  EXPECT_EQ(launcher.wait(), RunEnd::finished);
  ASSERT_EQ(tokens.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tokens[i], 10 * i);
}

}  // namespace
}  // namespace megalith::runtime
