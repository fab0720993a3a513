// A profile of a whole model: every task of every step, and what writing it down costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "megalith/engine/engine.h"
#include "megalith/runtime/profile_summary.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

EngineOptions storyteller() {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_seq_len = 256;
  return options;
}

double median_ms(const std::vector<double>& times) {
  std::vector<double> between;
  for (size_t i = 1; i < times.size(); ++i) between.push_back(times[i] - times[i - 1]);
  std::sort(between.begin(), between.end());
  return between[between.size() / 2];
}

TEST(EngineProfile, HasEveryTaskOfEveryStep) {
  Engine engine(test::kStoryteller, storyteller());
  constexpr int64_t kTokens = 20;
  engine.profile(kTokens);
  const Request request{.prompt = {1, 2, 3}, .max_new_tokens = kTokens, .ignore_stop_tokens = true};
  const Generation generation = engine.generate({request});
  const runtime::Profile profile = engine.profile_take();

  std::vector<std::string> operators;
  for (const graph::Node& node : engine.graph().nodes()) operators.push_back(node.op->name);
  const task::TaskGraph& tasks = engine.kernel().tasks;
  const runtime::ProfileSummary summary = runtime::profile_summarize(profile, tasks, operators);
  EXPECT_GE(summary.steps + summary.slow_steps, kTokens - 1);
  double num_tasks = 0, busy = 0;
  for (const auto& op : summary.operators) num_tasks += op.tasks, busy += op.busy_ns;
  EXPECT_NEAR(num_tasks, static_cast<double>(tasks.tasks.size()), 1e-6);
  double of_workers = 0;
  for (const auto& worker : summary.workers) of_workers += worker.busy_ns;
  EXPECT_NEAR(busy, of_workers, 1e-6 * busy);
  EXPECT_NEAR(summary.busy_share() + summary.waiting_share() + summary.gate_share(), 1, 0.02);
  // The kernel's own time stamps tell the same story.
  EXPECT_NEAR(summary.median_step_ns / 1e6, median_ms(generation.token_ms[0]), 0.5 * summary.median_step_ns / 1e6);

  engine.profile(0);
  engine.generate({request});
  EXPECT_TRUE(engine.profile_take().workers.empty());
}

// Printed, not judged: machines differ and have other work.
TEST(ProfileFigures, DISABLED_OfWholeSteps) {
  Engine engine(test::kStoryteller, storyteller());
  const Request request{.prompt = {1, 2, 3}, .max_new_tokens = 200, .ignore_stop_tokens = true};
  std::vector<double> medians[2];
  for (int repeat = 0; repeat < 10; ++repeat) {
    engine.profile(repeat & 1 ? 256 : 0);
    medians[repeat & 1].push_back(median_ms(engine.generate({request}).token_ms[0]));
  }
  for (auto& values : medians) std::sort(values.begin(), values.end());
  std::printf("[ FIGURE   ] a step of %zu tasks on 2 workers: %.1f us, recorded: %.1f us (%+.1f %%)\n",
              engine.kernel().tasks.tasks.size(), 1000 * medians[0][2], 1000 * medians[1][2],
              100 * (medians[1][2] / medians[0][2] - 1));
}

}  // namespace
}  // namespace megalith::engine
