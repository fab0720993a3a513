// What is proposed for the generated body of every operator is legal, prints itself, and is all that its code follows from.
#include <gtest/gtest.h>

#include "megalith/codegen/bodies_text.h"
#include "megalith/codegen/body_schedule.h"
#include "megalith/codegen/emit.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/bind.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

class BodySchedules : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Operators, BodySchedules, ::testing::ValuesIn(testing::operators_with_cases()),
                         [](const auto& one) { return one.param; });

TEST_P(BodySchedules, AreLegalAndPrintThemselves) {
  const testing::OperatorCases cases = testing::some_operator_cases(GetParam());
  for (const std::string target : {"cpu", "cuda"}) {
    graph::Schedule schedule = graph::schedule_in_rows(cases.graph, target);
    for (graph::NodeSchedule& node : schedule.nodes) node.body = nullptr;
    const auto kernels = codegen::with_schedules(target, graph::lower(cases.graph, schedule).kernels);
    ASSERT_FALSE(kernels.empty());
    for (const graph::LoweredKernel& kernel : kernels) {
      const loop::Kernel bound = loop::bind(kernel.kernel, kernel.binding);
      ASSERT_TRUE(kernel.steps) << kernel.name;
      EXPECT_EQ(codegen::checked_schedule(kernel, bound, codegen::dialect_of(target), *kernel.steps).text(),
                *kernel.steps)
          << kernel.name << " for " << target;
    }
    const auto read = codegen::parse_schedules(target, kernels, codegen::print_schedules(kernels, "a test"));
    EXPECT_EQ(codegen::emit(target, read, "a test").text, codegen::emit(target, kernels, "a test").text);
  }
}

}  // namespace
}  // namespace megalith
