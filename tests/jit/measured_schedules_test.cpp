// Schedules that were measured to be the fastest: kept in the cache, taken for what they were measured for, and for nothing else.
#include "megalith/jit/measured_schedules.h"

#include <gmock/gmock.h>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/compile.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"

namespace megalith::jit {
namespace {

using megalith::test::EnvironmentVariable;
using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;

graph::Graph norm_graph(int64_t width, DType dtype = DType::f32) {
  graph::Graph graph(ops::builtin(), "norms");
  const auto x = graph.state("x", dtype, {8, width});
  const auto weight = graph.constant("weight", DType::bf16, {width});
  graph.add("rmsnorm", "norm", {x, weight});
  return graph;
}

std::vector<graph::LoweredKernel> lowered(const graph::Graph& graph) { return optimize::lower(graph, "cpu").kernels; }

class MeasuredSchedulesTest : public ::testing::Test {
 protected:
  std::optional<std::string> steps_of(const graph::Graph& graph) const {
    return MeasuredSchedules(cache_, "cpu").take(lowered(graph))[0].steps;
  }
  std::string source_of(const graph::Graph& graph, const std::string& bodies = "") const {
    return compile(graph, {.plan_only = true, .bodies = bodies, .pipeline = {}}).source;
  }

  TemporaryFolder folder_;
  EnvironmentVariable variable_{"MEGALITH_CACHE_DIR", folder_ / "cache"};
  KernelCache cache_ = KernelCache::from_environment();
  graph::Graph graph_ = norm_graph(64);
};

TEST_F(MeasuredSchedulesTest, AreOfOneBodyOfOneMachine) {
  EXPECT_EQ(steps_of(graph_), std::nullopt);
  EXPECT_EQ(MeasuredSchedules(cache_, "cpu").identity(), "");
  MeasuredSchedules(cache_, "cpu").keep(lowered(graph_)[0], "tag k vec\n", "because");
  EXPECT_EQ(steps_of(graph_), "# because\ntag k vec\n");
  EXPECT_EQ(steps_of(norm_graph(64, DType::bf16)), std::nullopt);
  EXPECT_EQ(steps_of(norm_graph(128)), std::nullopt);
  const std::string before = MeasuredSchedules(cache_, "cpu").identity();
  EXPECT_FALSE(MeasuredSchedules(cache_, "cpu").forget(lowered(norm_graph(128))[0]));
  EXPECT_EQ(MeasuredSchedules(cache_, "cpu").identity(), before);
  MeasuredSchedules(cache_, "cpu").keep(lowered(norm_graph(128))[0], "tag h vec\n", "because");
  EXPECT_NE(MeasuredSchedules(cache_, "cpu").identity(), before);
  EXPECT_EQ(steps_of(graph_), "# because\ntag k vec\n");

  const std::string note = folder_ / "cache/compilers/tuned-cpu";
  std::string text = file_read(note);
  for (size_t at = 0; (at = text.find("\"machine\": \"", at)) != std::string::npos; at += 12)
    text.insert(at + 12, "another than ");
  file_write_atomic(note, text, 0600);
  EXPECT_EQ(steps_of(graph_), std::nullopt);
  EXPECT_EQ(MeasuredSchedules(cache_, "cpu").identity(), "");
}

TEST_F(MeasuredSchedulesTest, ThatAreDamagedOrIllegalAreLeftOut) {
  MeasuredSchedules measured(cache_, "cpu");
  measured.keep(lowered(graph_)[0], "tag t vec\n", "illegal");
  EXPECT_EQ(steps_of(graph_), std::nullopt);
  measured.keep(lowered(graph_)[0], "tag k vec\n", "legal");
  EXPECT_TRUE(steps_of(graph_));
  file_write_atomic(folder_ / "cache/compilers/tuned-cpu", "[{\"machine\": 3}]", 0600);
  EXPECT_EQ(steps_of(graph_), std::nullopt);
  measured.keep(lowered(graph_)[0], "tag k vec\n", "legal");
  EXPECT_TRUE(steps_of(graph_));
  EXPECT_THAT(message_of<UserError>([&] { MeasuredSchedules(cache_, "cuda:sm_80").forget(lowered(graph_)[0]); }),
              HasSubstr("what is measured here says nothing of cuda:sm_80"));
}

TEST_F(MeasuredSchedulesTest, TheOldestGoWhereTheListGetsLong) {
  MeasuredSchedules measured(cache_, "cpu");
  const std::string why(9'000, 'x');
  for (int64_t width = 64; width <= 64 * 8; width += 64)
    measured.keep(lowered(norm_graph(width))[0], "tag k vec\n", why);
  EXPECT_EQ(steps_of(norm_graph(64)), std::nullopt);
  EXPECT_TRUE(steps_of(norm_graph(64 * 8)));
}

TEST_F(MeasuredSchedulesTest, AreWhatACompilationTakes) {
  const std::string proposed = source_of(graph_);
  EXPECT_THAT(proposed, HasSubstr("MEGALITH_INDEPENDENT\n    for (i64 h = "));
  MeasuredSchedules(cache_, "cpu").keep(lowered(graph_)[0], "tag k vec\n", "because");
  const std::string measured = source_of(graph_);  // the plan that the cache has is another one
  EXPECT_THAT(measured, Not(HasSubstr("MEGALITH_INDEPENDENT\n    for (i64 h = ")));
  // What a caller says comes first, and what they leave out is as it was measured.
  EXPECT_EQ(source_of(graph_, "body rmsnorm_0\ntag h vec k vec\n"), proposed);
  EXPECT_EQ(source_of(graph_, "# nothing\n"), measured);
  EXPECT_THAT(message_of<UserError>([&] { source_of(graph_, "body rmsnorm_0\ntag t vec\n"); }), HasSubstr("line 2: "));
  // One without a step is kept like any other.
  const std::string in_step = source_of(graph_, "body rmsnorm_0\n");
  EXPECT_NE(in_step, proposed);
  EXPECT_NE(in_step, measured);
  MeasuredSchedules(cache_, "cpu").keep(lowered(graph_)[0], "", "because");
  EXPECT_EQ(source_of(graph_), in_step);
  EXPECT_TRUE(MeasuredSchedules(cache_, "cpu").forget(lowered(graph_)[0]));
  EXPECT_EQ(source_of(graph_), proposed);
}

}  // namespace
}  // namespace megalith::jit
