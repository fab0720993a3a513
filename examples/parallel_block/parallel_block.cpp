// A model that Megalith does not know, in one file: each layer's attention and MLP stand side by side behind one norm, and
// both are added to the stream (as in GPT-J and Command R; https://arxiv.org/abs/2204.02311, section 2). The program is
// the `megalith` command that knows it: run, bench, inspect and all others take its folders.
//
//   build/release/examples/parallel_block bench examples/parallel_block --load-format dummy --target cuda
//
// Nothing here says how it is computed. The rules of optimize/ find that the norm can be deferred, that q, k and v are one
// matrix, that gate and up are a pair, and that the attention's projection can add the stream where it writes.
#include "megalith/model/architecture.h"
#include "megalith/model/decoder.h"
#include "tools/command_line.h"

namespace {

int parallel_block(megalith::DecoderBuilder& model, int64_t layer, int x) {
  const int n = model.norm(layer, "norm", x, "input_layernorm.weight");
  const int attended = model.add(layer, "o_sum", x, model.attention(layer, n));
  return model.add(layer, "down_sum", attended, model.mlp(layer, n));
}

constexpr megalith::Architecture kParallel = {.name = "ParallelBlockForCausalLM",
                                              .model_type = "parallel_block",
                                              .vocab_size = 128256,
                                              .intermediate_size = 8192,
                                              .max_position_embeddings = 131072,
                                              .block = parallel_block};

}  // namespace

int main(int argc, char** argv) {
  megalith::add_architecture(kParallel);
  return megalith::tools::command_line(argc, argv);
}
