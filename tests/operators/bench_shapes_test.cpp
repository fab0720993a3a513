// The benchmark that every operator gets: four shapes, none of which anybody had to write down.
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/engine/operator_bench.h"
#include "megalith/ops/registry.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

TEST(BenchShapes, EveryOperatorHasFour) {
  for (const std::string& name : testing::operators_with_cases()) {
    const auto shapes = engine::bench_shapes(ops::builtin()->get(name));
    EXPECT_GE(shapes.size(), 4u) << name;
  }
}

TEST(BenchShapes, AreThoseOfModels) {
  const auto shapes = engine::bench_shapes(ops::builtin()->get("linear"));
  ASSERT_EQ(shapes.size(), 4u);
  EXPECT_EQ(shapes[0], (engine::OperatorSizes{{"K", 4096}, {"N", 4096}, {"T", 1}}));
  EXPECT_EQ(shapes[3], (engine::OperatorSizes{{"K", 4096}, {"N", 4096}, {"T", 512}}));
}

TEST(TimeOperator, CountsWhatMustMove) {
  const graph::Operator& op = ops::builtin()->get("rmsnorm");
  const auto timing = engine::time_operator(op, {{"T", 3}, {"H", 512}}, {.num_workers = 1, .runs = 4});
  EXPECT_EQ(timing.bytes, 2 * (3 * 512 + 512 + 3 * 512));
  EXPECT_GE(timing.flops, 3 * 512 * 4);
  EXPECT_EQ(timing.seconds.size(), 4u);
  for (const double seconds : timing.seconds) {
    EXPECT_GT(seconds, 1e-8);
    EXPECT_LT(seconds, 1e-3);
    EXPECT_GT(seconds * static_cast<double>(timing.iterations) * timing.copies, 1e-3) << "a run is no run";
  }
  EXPECT_THROW(engine::time_operator(op, {{"T", 3}}, {}), UserError);
  EXPECT_THROW(engine::time_operator(op, {{"T", 3}, {"H", 8}, {"K", 8}}, {}), UserError);
  EXPECT_THROW(engine::time_operator(ops::builtin()->get("advance"), {}, {}), UserError);
}

}  // namespace
}  // namespace megalith
