// The memory of a decoder's tensors.
#include "megalith/engine/memory_map.h"

#include <gmock/gmock.h>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/model/safetensors.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Nothing is touched here, so the system would hand out all of it.
TEST(MemoryMap, StatesThatFitOneByOneMustFitTogether) {
  graph::Graph graph(ops::builtin(), "large");
  for (const char* name : {"a.k_cache", "a.v_cache", "b.k_cache"})
    graph.state(name, DType::i8, {runtime::memory_available_bytes() / 2});
  MemoryMap memory;
  EXPECT_THAT([&] { memory.bind_states(graph); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("the states, most of which are the KV cache, need"),
                                               HasSubstr("--max-seq-len"), HasSubstr("--num-pages"))));
  EXPECT_TRUE(memory.addresses().empty());
  // Copies of what lies on a GPU are hardly touched.
  MemoryMap copies;
  copies.bind_states(graph, false);
  EXPECT_EQ(copies.addresses().size(), 3u);
}

// Those that a graph wants in bf16, alone and stacked in turns; matrices are never converted.
TEST(MemoryMap, VectorsAreRoundedWhereTheGraphSaysSo) {
  const test::TemporaryFolder folder;
  const std::vector<float> values = {1, 1 + 0x1p-9f, -3, 0.1f}, more = {5, 6};
  const auto bytes = [](const std::vector<float>& of) { return std::as_bytes(std::span(of)); };
  const std::vector<WeightTensor> tensors = {{"norm.weight", DType::f32, {4}, bytes(values)},
                                             {"q.bias", DType::f32, {4}, bytes(values)},
                                             {"k.bias", DType::f32, {2}, bytes(more)}};
  safetensors_write(folder / "model.safetensors", tensors);
  const Weights weights = Weights::open(folder / "model.safetensors");
  graph::Graph graph(ops::builtin(), "vectors");
  graph.constant("norm.weight", DType::bf16, {4});
  graph.stacked("qk.bias", DType::bf16, {6}, {"q.bias", "k.bias"}, 2);
  MemoryMap memory;
  memory.bind_weights(graph, weights);
  const auto found = [&](const std::string& name, int64_t i) {
    return element_load(memory.addresses().at(name), DType::bf16, i);
  };
  const double tenth = 0.10009765625;
  for (const auto& [i, want] : {std::pair{0, 1.0}, {1, 1.0}, {2, -3.0}, {3, tenth}})
    EXPECT_EQ(found("norm.weight", i), want) << i;
  for (const auto& [i, want] : {std::pair{0, 1.0}, {1, 1.0}, {2, 5.0}, {3, -3.0}, {4, tenth}, {5, 6.0}})
    EXPECT_EQ(found("qk.bias", i), want) << i;

  safetensors_write(folder / "model.safetensors",
                    std::vector<WeightTensor>{{"matrix", DType::f32, {2, 2}, bytes(values)}});
  graph::Graph matrix(ops::builtin(), "matrix");
  matrix.constant("matrix", DType::bf16, {2, 2});
  EXPECT_THAT([&] { MemoryMap().bind_weights(matrix, Weights::open(folder / "model.safetensors")); },
              ThrowsMessage<UserError>(HasSubstr("the weight \"matrix\" is f32, want bf16")));
}

}  // namespace
}  // namespace megalith::engine
