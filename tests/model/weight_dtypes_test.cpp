// Which dtypes a decoder asks of a checkpoint.
#include <array>

#include "megalith/base/error.h"
#include "megalith/model/decoder.h"
#include "model/scratch.h"
#include "support/streamed.h"

namespace megalith {
namespace {

class WeightDtypes : public ScratchTest {};

// Older checkpoints hold the table of rotary frequencies of each layer, in f32. One of them made a GPU's graph unfused.
TEST_F(WeightDtypes, AreThoseOfWeightsAndBiasesOnly) {
  const std::array<float, 4> zeros = {};
  const auto tensor = [&](const std::string& name, DType dtype) {
    return WeightTensor{name, dtype, {2}, std::as_bytes(std::span(zeros)).first(2 * dtype_bytes(dtype))};
  };
  const std::vector<WeightTensor> tensors = {tensor("model.norm.weight", DType::bf16),
                                             tensor("model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32),
                                             tensor("model.layers.0.self_attn.q_proj.bias", DType::f32),
                                             tensor("model.layers.0.self_attn.q_norm.weight", DType::f16)};
  safetensors_write(folder() + "/model.safetensors", tensors);
  const std::map<std::string, DType> want = {{"model.layers.0.self_attn.q_proj.bias", DType::f32},
                                             {"model.layers.0.self_attn.q_norm.weight", DType::f16}};
  EXPECT_EQ(weight_dtypes(Weights::open(folder()), DType::bf16), want);
}

// Norms and biases in f32 do not keep a GPU's decoder from being fused; a matrix does, and a CPU takes all as they are.
TEST(FusedWeights, OfNormsAndBiasesAreRounded) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen2.5-0.5B");
  const auto resolved = [&](const std::string& target, std::map<std::string, DType> dtypes) {
    return DecoderOptions{.max_rows = 4, .target = target, .weight_dtypes = std::move(dtypes)}.resolved(config);
  };
  const std::map<std::string, DType> vectors = {{"model.layers.0.input_layernorm.weight", DType::f32},
                                                {"model.layers.0.self_attn.q_proj.bias", DType::f16},
                                                {"model.norm.weight", DType::f32}};
  const DecoderOptions gpu = resolved("cuda:sm_90a", vectors), cpu = resolved("cpu", vectors);
  EXPECT_TRUE(testing::streams_all_products(build_decoder(config, gpu)));
  EXPECT_EQ(gpu.rounded_weights, vectors);
  EXPECT_TRUE(gpu.weight_dtypes.empty());
  EXPECT_EQ(cpu.weight_dtypes, vectors);
  EXPECT_TRUE(cpu.rounded_weights.empty());
  EXPECT_EQ(gpu.resolved(config).rounded_weights, vectors) << "again";
  std::map<std::string, DType> more = vectors;
  more["model.layers.0.mlp.up_proj.weight"] = DType::f32;
  EXPECT_FALSE(testing::streams_all_products(build_decoder(config, resolved("cuda:sm_90a", more))));
  ModelConfig f16 = config;
  f16.dtype = DType::f16;
  const DecoderOptions half = DecoderOptions{.max_rows = 4, .target = "cuda:sm_90a"}.resolved(f16);
  EXPECT_TRUE(testing::streams_all_products(build_decoder(f16, half)));
  EXPECT_EQ(resolved("cuda:sm_90a", more).weight_dtypes, more);
}

// In int8 a GPU's decoder has the matrices that it had, to be rounded where they are streamed; a CPU's has
// others, by a rule.
TEST(QuantizedWeights, OnAGpuAreMarked) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen2.5-0.5B");
  const auto down = [&](const std::string& target) {
    const graph::Graph graph = build_decoder(config, {.max_rows = 4, .target = target, .quant_columns = 64});
    return graph.tensor(graph.find("model.layers.3.mlp.down_proj.weight"));
  };
  const graph::Tensor gpu = down("cuda:sm_90a"), cpu = down("cpu");
  EXPECT_EQ(gpu.dtype, DType::bf16);
  EXPECT_EQ(cpu.dtype, DType::i8);
  EXPECT_EQ(gpu.quant_columns, 64);
  EXPECT_EQ(cpu.quant_columns, 64);
  EXPECT_EQ(gpu.streamed_bytes(), gpu.num_elements() * 17 / 16);
  EXPECT_EQ(cpu.streamed_bytes(), cpu.num_elements());
}

TEST(QuantizedWeights, OnAGpuWantAFusedDecoderAndRunsOf32) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen2.5-0.5B");
  const auto error = [&](int64_t rows, int64_t columns) {
    try {
      DecoderOptions{.max_rows = rows, .target = "cuda:sm_90a", .quant_columns = columns}.resolved(config);
      return std::string();
    } catch (const UserError& e) { return std::string(e.what()); }
  };
  EXPECT_EQ(error(256, 32), "");
  EXPECT_NE(error(2064, 32).find("with at most 2048 tokens a step, not 2064"), std::string::npos) << error(2064, 32);
  EXPECT_NE(error(4, 48).find("int8:48: want a multiple of 32 columns"), std::string::npos) << error(4, 48);
}

}  // namespace
}  // namespace megalith
