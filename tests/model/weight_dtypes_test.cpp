// Which dtypes a decoder asks of a checkpoint.
#include <array>

#include "megalith/model/decoder.h"
#include "model/scratch.h"

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

}  // namespace
}  // namespace megalith
