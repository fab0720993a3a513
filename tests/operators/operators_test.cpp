// Every operator, on the sizes it declares, in every float dtype, with full and with partly filled dynamic sizes,
// against the interpreter of its loop kernel. Products are those of f32, as loop kernels say; those that round are
// tested in codegen/gemv_test.cpp.
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

// All cases of an operator are nodes of one graph, so that one compilation serves them; of all operators it would take
// longer than those of each together.
class Operators : public ::testing::TestWithParam<std::string> {};
TEST_P(Operators, EveryDeclaredCaseEqualsTheInterpreter) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  const testing::OperatorCases cases = testing::operator_cases({GetParam()});
  testing::GraphMemory memory(cases.graph);
  testing::fill_operator_cases(cases, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(cases.graph, graph::lower(cases.graph, "cpu"), expected, 1);
  testing::run_compiled(cases.graph, memory, 2);
  EXPECT_EQ(testing::wrong_operators(cases, memory, expected, testing::cpu_slack), "");
}
INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(testing::operators_with_cases()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace megalith
