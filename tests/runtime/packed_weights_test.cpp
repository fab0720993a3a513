// Weights in panels: every element where the layout says, zeros around them, and the memory that they came from given
// up piece by piece.
#include "megalith/runtime/packed_weights.h"
#include "megalith/optimize/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <vector>

#include "megalith/graph/lower.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/layout.h"

namespace megalith::runtime {
namespace {

using graph::TensorId;

std::vector<std::byte> numbered(int64_t bytes) {
  std::vector<std::byte> result(static_cast<size_t>(bytes));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::byte>(i * 7 + i / 251 + 1);
  return result;
}

TEST(PanelLayout, IsWhatItsHeaderSays) {
  // Row 17 of 5 columns of bf16: the second panel, whose steps are pairs; 3 pairs hold 5 columns.
  EXPECT_EQ(panel::panel_elements(5, panel::kPair), 3 * 2 * 16);
  EXPECT_EQ(panel::index(17, 3, 5, panel::kPair), 3 * 2 * 16 + 1 * 2 * 16 + 1 * 2 + 1);
  EXPECT_EQ(panel::index(17, 3, 5, panel::kSingle), 5 * 16 + 3 * 16 + 1);
  EXPECT_EQ(panel::elements(17, 5, panel::kPair), 2 * 96);
  // An odd number of steps, whatever the columns: 4 pairs of them take the room of 5.
  EXPECT_EQ(panel::panel_elements(8, panel::kPair), 5 * 2 * 16);
  EXPECT_EQ(panel::index(16, 0, 8, panel::kPair), 5 * 2 * 16);
  EXPECT_EQ(panel::index(17, 6, 9, panel::kQuad), 3 * 4 * 16 + 1 * 4 * 16 + 1 * 4 + 2);
}

TEST(PackedWeights, HasEveryElementInItsPlaceAndZerosAround) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::i8})
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {16, 64}, {37, 129}, {48, 7}}) {
      graph::Tensor tensor{.name = "weight", .dtype = dtype, .shape = {rows, columns}};
      const std::vector<std::byte> from = numbered(tensor.bytes());
      std::vector<std::byte> to(static_cast<size_t>(packed_bytes(tensor)), std::byte{0xee});
      pack_rows(tensor, to.data(), from.data(), 0, rows);

      const int64_t size = dtype_bytes(dtype);
      std::vector<std::byte> want(to.size(), std::byte{0});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          std::copy_n(from.begin() + (r * columns + c) * size, size,
                      want.begin() + panel::index(r, c, columns, optimize::panel_columns(dtype)) * size);
      EXPECT_EQ(to, want) << dtype_name(dtype) << " " << rows << " x " << columns;
    }
}

// Two matrices, one of which is read by two nodes, and one that no body reads in panels.
struct Sample {
  graph::Graph graph{ops::builtin(), "sample"};
  TensorId x, narrow, wide, norm;
  std::map<std::string, std::vector<std::byte>> bytes;
  std::map<std::string, void*> memory;

  explicit Sample(int64_t rows) {
    const int64_t columns = 96;
    x = graph.state("x", DType::f32, {1, columns});
    narrow = graph.constant("narrow", DType::bf16, {columns, columns});
    wide = graph.constant("wide", DType::bf16, {rows, columns});
    norm = graph.constant("norm", DType::bf16, {columns});
    const TensorId y = graph.apply("linear", "first", {x, narrow});
    graph.apply("rmsnorm_linear", "second", {y, norm, wide});
    graph.apply("embedding", "third", {graph.state("ids", DType::i32, {1}), wide});
    for (const graph::Tensor& tensor : graph.tensors()) {
      bytes[tensor.name] = numbered(tensor.bytes());
      memory[tensor.name] = bytes[tensor.name].data();
    }
  }
};

TEST(PackedWeights, AreThoseThatBodiesReadInPanels) {
  Sample sample(100);
  const PackedWeights packed(sample.graph, optimize::make_schedule(sample.graph, "cpu"), sample.memory, {});
  EXPECT_EQ(packed.address(sample.x), nullptr);
  EXPECT_EQ(packed.address(sample.norm), nullptr);
  ASSERT_NE(packed.address(sample.narrow), nullptr);
  ASSERT_NE(packed.address(sample.wide), nullptr);
  EXPECT_LT(packed.address(sample.narrow), packed.address(sample.wide)) << "in the order of the nodes";
  for (const TensorId id : {sample.narrow, sample.wide}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.address(id)) % 64, 0u);
    const graph::Tensor& tensor = sample.graph.tensor(id);
    std::vector<std::byte> want(static_cast<size_t>(packed_bytes(tensor)));
    pack_rows(tensor, want.data(), sample.bytes.at(tensor.name).data(), 0, tensor.shape[0].size);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), static_cast<const std::byte*>(packed.address(id))));
  }
}

TEST(PackedWeights, GivesUpEachByteOfItsSourcesOnceAndPacksTheSameOnManyThreads) {
  Sample sample(130'000);  // more than one piece
  std::mutex mutex;
  std::vector<std::pair<const std::byte*, int64_t>> released;
  const PackedWeights packed(sample.graph, optimize::make_schedule(sample.graph, "cpu"), sample.memory,
                             {.num_threads = 3, .release = [&](const std::byte* begin, int64_t count) {
                                const std::lock_guard lock(mutex);
                                released.emplace_back(begin, count);
                              }});
  EXPECT_GT(released.size(), 3u);
  for (const TensorId id : {sample.narrow, sample.wide}) {
    const graph::Tensor& tensor = sample.graph.tensor(id);
    std::vector<int> times(static_cast<size_t>(tensor.bytes()));
    const std::byte* const first = sample.bytes.at(tensor.name).data();
    for (const auto& [begin, count] : released)
      if (begin >= first && begin < first + tensor.bytes())
        for (int64_t i = 0; i < count; ++i) ++times.at(static_cast<size_t>(begin - first + i));
    EXPECT_EQ(std::ranges::count(times, 1), tensor.bytes()) << tensor.name;
    std::vector<std::byte> want(static_cast<size_t>(packed_bytes(tensor)));
    pack_rows(tensor, want.data(), first, 0, tensor.shape[0].size);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), static_cast<const std::byte*>(packed.address(id))));
  }
}

}  // namespace
}  // namespace megalith::runtime
