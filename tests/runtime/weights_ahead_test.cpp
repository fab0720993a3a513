// What a product asks for while it ends: the panels that its worker's next product begins with, round and round.
#include "megalith/runtime/weights_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megalith/ops/registry.h"
#include "megalith/runtime/program.h"

namespace megalith::runtime {
namespace {

TEST(WeightsAhead, AreTheFirstPanelsOfTheWorkersNextProduct) {
  constexpr int64_t kWidth = 96, kRows = 5 * 16;
  graph::Graph graph(ops::builtin(), "ahead");
  const graph::TensorId x = graph.state("x", DType::f32, {1, kWidth});
  const graph::TensorId norm = graph.constant("norm", DType::bf16, {kWidth});
  const graph::TensorId square = graph.constant("square", DType::bf16, {kWidth, kWidth});
  const graph::TensorId gate = graph.constant("gate", DType::bf16, {kRows, kWidth});
  const graph::TensorId up = graph.constant("up", DType::bf16, {kRows, kWidth});
  const graph::TensorId y = graph.apply("linear", "first", {x, square});
  graph.apply("rmsnorm_gate_up", "second", {y, norm, gate, up});

  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 2, .plan_only = true});
  // Any addresses will do, far enough from each other.
  std::vector<std::byte> memory(graph.tensors().size() << 16);
  std::vector<void*> addresses;
  for (size_t i = 0; i < graph.tensors().size(); ++i) addresses.push_back(memory.data() + (i << 16));
  ImageParts parts = image_parts(graph, kernel, addresses);
  const ImageParts before = parts;
  const std::vector<WeightsAhead> ahead = add_weights_ahead(parts, graph, kernel, addresses);

  auto panel_of = [&](graph::TensorId matrix, int64_t row) {
    return static_cast<const void*>(static_cast<std::byte*>(addresses[static_cast<size_t>(matrix)]) +
                                    panel::index(row, 0, kWidth, panel::kPair) * 2);
  };
  int num_first = 0, num_second = 0;
  for (size_t w = 0; w < 2; ++w) {
    const std::vector<int>& list = kernel.tasks.workers[w];
    ASSERT_EQ(list.size(), 2u);
    const auto first = static_cast<size_t>(list[0]), second = static_cast<size_t>(list[1]);
    // The next product of the first is the second: gate and up in turn, and the last panels again for want of more.
    const loop::Range rows = kernel.tasks.tasks[second].tile[0];
    for (size_t p = 0; p < ahead[first].size(); ++p) {
      const int64_t row = std::min(rows.begin + static_cast<int64_t>(p / 2) * 16, rows.end - 16);
      EXPECT_EQ(ahead[first][p], panel_of(p % 2 == 0 ? gate : up, row)) << w << ", " << p;
      ++num_first;
    }
    // That of the second is the first, in the next iteration.
    const loop::Range next = kernel.tasks.tasks[first].tile[0];
    for (size_t p = 0; p < ahead[second].size(); ++p) {
      const int64_t row = std::min(next.begin + static_cast<int64_t>(p) * 16, next.end - 16);
      EXPECT_EQ(ahead[second][p], panel_of(square, row)) << w << ", " << p;
      ++num_second;
    }
    // The operands are those that there were, and the table behind them.
    for (const size_t task : {first, second}) {
      const u32 count = before.num_operands[task];
      ASSERT_EQ(parts.num_operands[task], count + 1);
      for (u32 i = 0; i < count; ++i)
        EXPECT_EQ(parts.operands[parts.first_operands[task] + i], before.operands[before.first_operands[task] + i]);
      EXPECT_EQ(parts.operands[parts.first_operands[task] + count], &ahead[task]);
    }
  }
  EXPECT_EQ(num_first, 2 * panel::kMaxPanels);
  EXPECT_EQ(num_second, 2 * panel::kMaxPanels);
}

}  // namespace
}  // namespace megalith::runtime
