// Schedules that somebody edited, line by line at random: refused, or right. Never wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/graph/schedule_text.h"
#include "megalith/optimize/schedule.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

class Mutator {
 public:
  Mutator(const std::string& text, unsigned seed) : random_(seed) {
    std::istringstream from(text);
    for (std::string line; std::getline(from, line);) lines_.push_back(line);
  }

  std::string mutate() {
    std::vector<std::string> lines = lines_;
    for (int edits = pick(3); edits >= 0; --edits) edit(lines);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }

 private:
  int pick(size_t below) { return static_cast<int>(random_() % below); }
  std::string one_of(std::initializer_list<const char*> words) { return words.begin()[pick(words.size())]; }

  void edit(std::vector<std::string>& lines) {
    std::string& line = lines[static_cast<size_t>(pick(lines.size()))];
    const bool is_node = line.starts_with("node ");
    switch (pick(8)) {
      case 0: lines.erase(lines.begin() + (&line - lines.data())); break;
      case 1: std::swap(line, lines[static_cast<size_t>(pick(lines.size()))]); break;
      case 2: line[static_cast<size_t>(pick(line.size()))] = static_cast<char>(pick(256)); break;
      case 3:
      case 4:
        if (is_node) replace_word(line, 3, one_of({"generated", "generated", "gemv.h:gemv", "gemv.h:rmsnorm_gemv"}));
        break;
      case 5:
        if (is_node)
          line += fmt::format(" {}.{}={}", one_of({"tile", "pieces"}), one_of({"n", "t", "h", "i"}),
                              one_of({"1", "3", "16", "32", "48", "1000"}));
        break;
      default:
        if (!is_node)
          replace_word(line, 2, one_of({"rows", "rows", "panels", "flag-in-data", "fragments", "head-pairs"}));
    }
  }

  static void replace_word(std::string& line, int number, const std::string& by) {
    size_t at = 0;
    for (int word = 0; word < number && at != std::string::npos; ++word) at = line.find(' ', at + 1);
    if (at == std::string::npos) return;
    const size_t end = line.find(' ', at + 1);
    line.replace(at + 1, (end == std::string::npos ? line.size() : end) - at - 1, by);
  }

  std::vector<std::string> lines_;
  std::mt19937_64 random_;
};

// Each weight is read by a product and by something else.
graph::Graph small_graph() {
  graph::Graph graph(ops::builtin(), "small");
  const auto x = graph.state("x", DType::f32, {3, 64});
  const auto norm = graph.constant("norm", DType::bf16, {64});
  const auto w = graph.constant("w", DType::bf16, {64, 64});
  const auto h = graph.apply("rmsnorm_linear", "h", {x, norm, w});
  const auto z = graph.apply("linear", "z", {h, w});
  const auto y = graph.state("y", DType::f32, {3, 64});
  graph.add("linear", "y", {z, graph.constant("v", DType::f16, {64, 64})}, {.outputs = {{"y", y}}});
  return graph;
}

TEST(ScheduleMutations, AreRefusedOrRight) {
  constexpr int kMutants = 300;
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  const graph::Graph graph = small_graph();
  testing::GraphMemory memory(graph);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> value(-1, 1);
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    std::vector<double> values(static_cast<size_t>(tensor.num_elements()));
    for (double& one : values) one = value(random) / (tensor.name == "norm" ? 1 : 4);
    memory.set(tensor.name, values);
  }
  const loop::Arrays before = memory.arrays();
  loop::Arrays expected = before;
  graph::interpret(graph, optimize::lower(graph, "cpu"), expected, 1);

  const test::TemporaryFolder folder;
  Mutator mutator(graph::print(graph, optimize::make_schedule(graph, "cpu")), 1);
  int refused = 0, ran = 0;
  for (int i = 0; i < kMutants; ++i) {
    const std::string text = mutator.mutate();
    file_write_atomic(folder / "plan.txt", text);
    jit::CompiledKernel kernel;
    try {
      kernel = jit::compile(graph, {.num_workers = 2, .pipeline = {.override_directory = folder.path}});
    } catch (const UserError&) {
      ++refused;
      continue;
    }
    ++ran;
    memory.set("y", std::vector<double>(3 * 64, -1));
    runtime::Program program(graph, kernel, memory.addresses());
    runtime::Launcher(program.entry(), program.image()).run();
    EXPECT_LT(testing::error_in_roundings(memory.array("y"), expected.at("y"), DType::f32, 60), 1) << text;
  }
  std::printf("[ FIGURE   ] %d mutants of a schedule: %d refused, %d ran and were right\n", kMutants, refused, ran);
  EXPECT_GT(refused, kMutants / 10);
  EXPECT_GT(ran, kMutants / 10);
}

}  // namespace
}  // namespace megalith
