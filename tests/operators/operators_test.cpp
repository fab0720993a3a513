// Every operator, on the sizes it declares, in every float dtype, with full and with partly filled dynamic sizes,
// against the interpreter of its loop kernel. All cases are nodes of one graph, so that one compilation serves them
// all. Products are those of f32, as loop kernels say; those that round are tested in codegen/gemv_test.cpp.
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

TEST(Operators, EveryDeclaredCaseEqualsTheInterpreter) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  const testing::OperatorCases all = testing::operator_cases();
  testing::GraphMemory memory(all.graph);
  testing::fill_operator_cases(all, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(all.graph, graph::lower(all.graph, "cpu"), expected, 1);
  testing::run_compiled(all.graph, memory, 2);
  EXPECT_EQ(testing::wrong_operators(all, memory, expected, testing::cpu_slack), "");
}

}  // namespace
}  // namespace megalith
