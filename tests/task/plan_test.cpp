#include "megalith/task/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "megalith/task/json.h"
#include "model_like.h"
#include "small.h"
#include "support/random_task_graph.h"

namespace megalith::test {
namespace {

// The promise is 1 s of one core for everything in task/, optimised; debug builds are not.
#ifdef MEGALITH_SANITIZE
constexpr double kSlack = 40;
#else
constexpr double kSlack = 3;
#endif

class PlanTime : public testing::TestWithParam<int> {};

TEST_P(PlanTime, OfAnEightBillionParameterModel) {
  ModelLike model(GetParam(), {.tiles_per_worker = GetParam() < 100 ? 1.0 : 1.5});
  const size_t num_tasks = model.tasks.size();
  task::PlanReport report;
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  task::plan(model.tasks, model.buffers, model.options, &report);
  const double cpu_ms = 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%d workers, %zu tasks: %.0f ms of one core\n%s", GetParam(), num_tasks, cpu_ms, report.text().c_str());
  EXPECT_LT(cpu_ms, 1000 * kSlack);
  // Layers share what their patterns have in common: what is worked out does not grow with their number.
  EXPECT_LT(report.num_relations, 200);
}

INSTANTIATE_TEST_SUITE_P(Workers, PlanTime, testing::Values(2, 8, 132));

TEST(Plan, IsDeterministic) {
  for (uint64_t seed : {3u, 14u, 15u})
    EXPECT_EQ(task::to_json(random_task_graph(seed)), task::to_json(random_task_graph(seed)));
}

TEST(Plan, TakesEmptyAndTinyLists) {
  EXPECT_TRUE(task::plan({}, {}, {.name = "empty", .num_workers = 3}).tasks.empty());
  task::Task task{.name = "alone"};
  const task::TaskGraph graph = task::plan({task}, {}, {.name = "one", .num_workers = 2, .gate_task = 0});
  EXPECT_EQ(graph.gate, 0);
  EXPECT_EQ(graph.events.size(), 1u);
  EXPECT_EQ(graph.tasks[0].signals, std::vector<int>{0});
}

// Readers of an exchange wait for its words and for no event. Without a gate nothing that the verifier counts keeps one
// of them from reading twice before another has read once, so they get an event after all.
TEST(Plan, WordsNeedNoEventsWhereTheGateKeepsIterationsApart) {
  Small s;
  const int words = s.buffer("words", 8, task::Memory::exchange), y = s.buffer("y", 4);
  s.task("write", {}, {s.whole(words)});
  const int first = s.task("read[n=0:1]", {s.whole(words)}, {s.part(y, 0, 1)});
  for (int n = 1; n < 4; ++n) s.tile(fmt::format("read[n={}:{}]", n, n + 1), {s.whole(words)}, {s.part(y, n, n + 1)});
  const int last = s.task("end", {s.whole(y)}, {});
  auto waits_of_readers = [&](const task::TaskGraph& graph) {
    size_t waits = 0;
    for (int t = first; t < last; ++t) waits += graph.tasks[static_cast<size_t>(t)].waits.size();
    return waits;
  };
  EXPECT_EQ(waits_of_readers(s.plan(4, last)), 0u);
  EXPECT_GT(waits_of_readers(s.plan(4)), 0u);
}

TEST(Plan, ReportNamesEveryStep) {
  task::PlanReport report;
  RandomTaskList list = random_task_list(1);
  task::plan(list.tasks, list.buffers, list.options, &report);
  std::string names;
  for (const task::PlanReport::Step& step : report.steps) names += step.name + " ";
  EXPECT_EQ(names, "dependences placement order arena events verify ");
}

}  // namespace
}  // namespace megalith::test
