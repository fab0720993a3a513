// Every operator, on the sizes it declares, in every float dtype, with full and with partly filled dynamic sizes (of the
// combinations, which take minutes to compile, some; `make test-all` has them all), against the interpreter of its loop
// kernel. Products are those of f32, as loop kernels say; those that round are
// tested in codegen/gemv_test.cpp.
#include <gtest/gtest.h>

#include <cstring>

#include "base/temporary_folder.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/optimize/schedule.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

// The same values, one element behind a cache line: as slices lie that somebody else cut.
struct Slices {
  explicit Slices(const graph::Graph& graph, testing::GraphMemory& whole) {
    constexpr size_t kLine = 64;
    for (const auto& [name, from] : whole.addresses()) {
      const graph::Tensor& tensor = graph.tensor(graph.find(name));
      const auto size = static_cast<size_t>(tensor.bytes());
      std::vector<std::byte>& block = blocks.emplace(name, size + 2 * kLine).first->second;
      const size_t to_line = kLine - reinterpret_cast<uintptr_t>(block.data()) % kLine;
      std::byte* const to = block.data() + to_line + dtype_bytes(tensor.dtype);
      std::memcpy(to, from, size);
      addresses[name] = to;
    }
  }
  std::map<std::string, std::vector<std::byte>> blocks;
  std::map<std::string, void*> addresses;
};

std::map<std::string, engine::TensorMemory> memory_of(const Slices& slices) {
  std::map<std::string, engine::TensorMemory> memory;
  for (const auto& [name, address] : slices.addresses) memory[name] = {address};
  return memory;
}

// All cases of an operator are nodes of one graph, so that one compilation serves them; of all operators it would take
// longer than those of each together.
class Operators : public ::testing::TestWithParam<std::string> {};
TEST_P(Operators, EveryDeclaredCaseEqualsTheInterpreter) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  const testing::OperatorCases cases = testing::some_operator_cases(GetParam());
  testing::GraphMemory memory(cases.graph);
  testing::fill_operator_cases(cases, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(cases.graph, optimize::lower(cases.graph, "cpu"), expected, 1);
  const Slices slices(cases.graph, memory);
  const jit::CompiledKernel kernel = testing::run_compiled(cases.graph, memory, 2);
  EXPECT_EQ(testing::wrong_operators(cases, memory, expected, testing::cpu_slack), "");

  engine::GraphRunner runner(cases.graph, kernel, memory_of(slices));
  runner.run();
  for (const auto& [name, address] : memory.addresses()) {
    const auto size = static_cast<size_t>(cases.graph.tensor(cases.graph.find(name)).bytes());
    EXPECT_EQ(std::memcmp(slices.addresses.at(name), address, size), 0) << name << " in a slice";
  }
}
INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(testing::operators_with_cases()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace megalith
