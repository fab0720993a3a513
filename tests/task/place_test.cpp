#include "megalith/task/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "model_like.h"
#include "small.h"

namespace megalith::test {
namespace {

class Balance : public testing::TestWithParam<std::tuple<int, double>> {};

TEST_P(Balance, WithinFivePercentOnAModel) {
  const auto [num_workers, tiles] = GetParam();
  ModelLike model(num_workers, {.tiles_per_worker = tiles});
  const task::Dependences d = task::find_dependences(model.tasks, model.buffers);
  task::PlaceReport report;
  task::place(model.tasks, d, num_workers, true, &report);
  EXPECT_LT(report.imbalance, 0.05);
  EXPECT_GT(report.imbalance, -1e-9);
  // As many tiles as workers, or a multiple: balance leaves them where they are. Else balance comes first.
  EXPECT_GT(report.affinity, tiles == 1.5 ? 0.3 : 0.9) << "tiles of identical layers keep their workers";
}

INSTANTIATE_TEST_SUITE_P(Mixes, Balance,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7, 8, 16, 132), testing::Values(1.0, 1.5, 3.0)));

TEST(Place, ListsAreInProgramOrderAndComplete) {
  ModelLike model(5, {.layers = 3});
  const task::Dependences d = task::find_dependences(model.tasks, model.buffers);
  const auto workers = task::place(model.tasks, d, 5);
  std::set<int> seen;
  for (size_t w = 0; w < workers.size(); ++w) {
    EXPECT_TRUE(std::is_sorted(workers[w].begin(), workers[w].end()));
    for (int t : workers[w]) {
      EXPECT_TRUE(seen.insert(t).second);
      EXPECT_EQ(model.tasks[static_cast<size_t>(t)].worker, static_cast<int>(w));
    }
  }
  EXPECT_EQ(seen.size(), model.tasks.size());
}

TEST(Place, LongTasksGoFirst) {
  Small s;
  const int x = s.buffer("x");
  const std::vector<double> costs = {10, 10, 10, 10, 40};
  for (size_t i = 0; i < costs.size(); ++i)
    s.task("t" + std::to_string(i), {}, {s.part(x, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1)}, costs[i]);
  task::PlaceReport report;
  const auto workers = task::place(s.tasks, task::find_dependences(s.tasks, s.buffers), 2, true, &report);
  EXPECT_EQ(workers[0], std::vector<int>{4});
  EXPECT_EQ(workers[1], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(report.imbalance, 0);
}

TEST(Place, AConsumerStaysWithItsProducer) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y");
  for (int64_t i = 0; i < 4; ++i) s.task("a" + std::to_string(i), {}, {s.part(x, 4 * i, 4 * i + 4)});
  for (int64_t i : {2, 0, 3, 1})
    s.task("b" + std::to_string(i), {s.part(x, 4 * i, 4 * i + 4)}, {s.part(y, 4 * i, 4 * i + 4)});
  const task::TaskGraph graph = s.plan(4);
  for (int i : {4, 5, 6, 7}) {
    const int from = std::vector<int>{2, 0, 3, 1}[static_cast<size_t>(i) - 4];
    EXPECT_EQ(graph.tasks[static_cast<size_t>(i)].worker, graph.tasks[static_cast<size_t>(from)].worker);
  }
  EXPECT_TRUE(graph.events.empty()) << "list order is enough";
}

// A layer of three tasks of two sizes for two workers: with warm caches the next layer is placed like the first,
// without them the other worker gets the two.
TEST(Place, WithoutWarmCachesLayersMakeUpForEachOther) {
  for (const bool warm : {true, false}) {
    Small s;
    int before = -1;
    for (int layer = 0; layer < 2; ++layer) {
      const int x = s.buffer("x" + std::to_string(layer));
      for (int64_t i = 0; i < 3; ++i) {
        std::vector<task::Region> reads;
        if (before >= 0)
          for (int64_t j = 0; j < 3; ++j) reads.push_back(s.part(before, j, j + 1));
        s.task("t" + std::to_string(layer) + std::to_string(i), reads, {s.part(x, i, i + 1)}, 10);
      }
      before = x;
    }
    task::PlaceReport report;
    task::place(s.tasks, task::find_dependences(s.tasks, s.buffers), 2, warm, &report);
    if (warm) continue;
    EXPECT_DOUBLE_EQ(report.imbalance, 0) << "three tasks for each";
    std::vector<int> on_first(2);
    for (size_t t = 0; t < s.tasks.size(); ++t) on_first[t / 3] += s.tasks[t].worker == 0;
    EXPECT_NE(on_first[0], on_first[1]);
  }
}

// One task after the other, of which everybody waits for the last: whoever has done the least would make events of it.
TEST(Place, WithoutWarmCachesTasksThatAreAloneFollowEachOtherOnOneWorker) {
  Small s;
  const int x = s.buffer("x"), y = s.buffer("y"), z = s.buffer("z");
  for (int64_t i = 0; i < 4; ++i) s.task("before" + std::to_string(i), {}, {s.part(x, 4 * i, 4 * i + 4)});
  s.task("a", {s.part(x, 12, 16)}, {s.part(y, 0, 4)}, 10);
  s.task("b", {s.part(y, 0, 4)}, {s.part(z, 0, 4)}, 10);
  s.task("c", {s.part(z, 0, 4)}, {s.part(y, 8, 12)}, 10);
  task::place(s.tasks, task::find_dependences(s.tasks, s.buffers), 4, false);
  for (size_t t : {4, 5, 6}) EXPECT_EQ(s.tasks[t].worker, s.tasks[3].worker) << s.tasks[t].name;
}

TEST(Place, TasksWithoutEstimatesAreSpread) {
  Small s;
  const int x = s.buffer("x");
  for (int64_t i = 0; i < 8; ++i) s.task("t" + std::to_string(i), {}, {s.part(x, i, i + 1)}, 0);
  for (const auto& list : task::place(s.tasks, task::find_dependences(s.tasks, s.buffers), 4))
    EXPECT_EQ(list.size(), 2u);
}

// One writes what all others read much later; it stands behind the second stage, and so is done beside that. Beside the
// first there is less to do on the worker that the stages stay with, which is where it would go else.
TEST(Place, WhatNobodyWaitsForSoonIsDoneWhereTheProgramHasIt) {
  Small s;
  const int kept = s.buffer("kept"), x = s.buffer("x");
  s.task("first", {}, {s.whole(x)}, 100);
  s.task("other", {}, {}, 200);
  const int stages = 8;
  int before = x;
  int busy = -1, late = -1;
  for (int i = 1; i < stages; ++i) {
    const int next = s.buffer("x" + std::to_string(i));
    const int task = s.task("stage" + std::to_string(i), {s.whole(before)}, {s.whole(next)}, 100);
    before = next;
    if (i != 2) continue;
    busy = task;
    late = s.task("late", {}, {s.whole(kept)}, 10);
  }
  s.task("all", {s.whole(before), s.whole(kept)}, {}, 100);
  task::place(s.tasks, task::find_dependences(s.tasks, s.buffers), 2, true);
  const auto worker = [&](int task) { return s.tasks[static_cast<size_t>(task)].worker; };
  EXPECT_NE(worker(late), worker(busy)) << "it is of the second stage's level, and beside that";
}

TEST(Place, RefusesNoWorkers) {
  Small s;
  try {
    s.plan(0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "[place] the number of workers is 0, want at least 1");
  }
}

}  // namespace
}  // namespace megalith::test
