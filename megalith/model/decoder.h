// Decoder-only transformers in the graph API: the layers, and the batch block around them. What sets architectures apart
// stands in their configuration (architecture.h).
//
// One graph serves every phase. It works on up to max_rows token rows; each row belongs to a request and has its own
// position and pages, so a decode step, a chunk of a prompt and a batch of requests differ only in how many rows the
// last iteration's `advance` task laid out (kernels/batch.h).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"

namespace megalith {

/// Sizes of the running system, as against those of the model.
struct DecoderOptions {
  int64_t max_rows = 0;          // T: token rows per iteration, so also the longest chunk of a prompt; 0: chosen
  int64_t max_requests = 1;      // N
  int64_t max_seq_len = 0;       // S: positions per request; 0: the model's own limit, but at most 4096
  int64_t page_size = 16;        // B: positions per KV page
  int64_t max_pages = 0;         // P; 0: enough for every request at its longest
  int64_t split_len = 256;       // positions per chunk of attention; part of the meaning, see ops/attention_partial.cpp
  int64_t max_stop_tokens = 16;  // E
  DType activation_dtype = DType::f32;
  std::optional<DType> kv_dtype = {};               // nothing: chosen
  std::string target = "cpu";                       // what the graph is to be compiled for, or "cuda"
  bool fused = false;                               // chosen: neighbouring operators in one, for a GPU
  int64_t quant_columns = 0;                        // matrices in int8, so many columns to a scale; 0: as they are
  std::map<std::string, DType> weight_dtypes = {};  // of weights whose dtype is not the configuration's
  /// Chosen: those of them that are rounded to the configuration's dtype, norms and biases of a fused decoder.
  std::map<std::string, DType> rounded_weights = {};

  /// Fused for more rows than weights are streamed past one by one (kernels/stream_layout.h).
  bool wide() const;
  /// Wide, with room for chunks of prompts: a layer's cache is written before its attention, which takes all from it.
  bool appends_first() const;
  /// With every choice made and the limits checked against the model; UserError naming the option.
  DecoderOptions resolved(const ModelConfig& config) const;
  /// Rows that a task of attention has in a wide decoder of so many groups of heads.
  int64_t attention_rows(int64_t groups) const;
  int64_t pages_per_request() const;  // Q
  int64_t num_pages() const;          // P
};

/// The weights and biases of a checkpoint whose dtype is not the `usual` one, for DecoderOptions::weight_dtypes.
std::map<std::string, DType> weight_dtypes(const Weights& weights, DType usual);

/// The graph of one iteration for this configuration. Constants carry the checkpoint's tensor names; beside them stand
/// "rope.cos" and "rope.sin", [S, head_dim / 2] in f32. States are the batch block and "layer.<i>.k_cache" / "v_cache".
graph::Graph build_decoder(const ModelConfig& config, const DecoderOptions& options);

/// The parts that build_decoder() puts together.
class DecoderBuilder {
 public:
  DecoderBuilder(const ModelConfig& config, const DecoderOptions& options);

  graph::TensorId embed();                                      // (T, H)
  graph::TensorId attention(int64_t layer, graph::TensorId x);  // (T, H) -> (T, H), residual added
  graph::TensorId mlp(int64_t layer, graph::TensorId x);        // (T, H) -> (T, H), residual added
  /// Final norm, logits of the rows that are sampled, sampling, and the end of the iteration.
  void sample(graph::TensorId x);
  graph::Graph finish() { return std::move(graph_); }

 private:
  graph::TensorId weight(const std::string& name, std::vector<graph::Dim> shape);
  graph::TensorId streamed(graph::TensorId weight);
  /// A node whose operator multiplies by matrices, quantised or not: `inputs` with matrices, each by its name, put in
  /// behind the first `before` of them; of a quantised one with its scales.
  graph::TensorId multiply(const std::string& op, const std::string& node, std::vector<graph::TensorId> inputs,
                           size_t before, const std::vector<std::string>& matrices, int64_t rows, int64_t columns,
                           graph::NodeOptions options = {});
  graph::TensorId heads(const std::string& name, graph::TensorId x, const std::string& weight_name,
                        graph::TensorId norm, int64_t num_heads, const std::string& norm_name);
  /// One of a layer's projections of `x`, normalised; with its bias if it `has_bias`.
  graph::TensorId project(const std::string& node, graph::TensorId x, graph::TensorId norm, const std::string& matrix,
                          int64_t rows, bool has_bias);
  /// A projection of `y` that is added to the residual stream `x`.
  graph::TensorId project_residual(const std::string& node, graph::TensorId y, graph::TensorId x,
                                   const std::string& matrix, int64_t columns, bool has_bias);
  graph::TensorId add_bias(const std::string& node, graph::TensorId x, const std::string& matrix, int64_t size);

  std::string head_name() const;
  graph::TensorId head();
  graph::TensorId likeliest(graph::TensorId x, graph::TensorId logits);  // token per sampled row
  // fused_decoder.cpp: the same parts for options.fused; of rows that travel as words, of a few more and of many.
  bool norms_in_parts() const;
  int64_t squares_columns() const;
  double copy_factor() const;
  double scaled_eps() const;
  graph::NodeOptions copy_options() const;
  graph::TensorId head_norm(const std::string& name);
  graph::TensorId fused_embed();
  graph::TensorId fused_attention(int64_t layer, graph::TensorId x);
  void fused_append();  // what fresh_ says
  graph::TensorId fused_mlp(int64_t layer, graph::TensorId x);
  graph::TensorId fused_residual(const std::string& name, graph::TensorId y, graph::TensorId matrix, graph::TensorId x);
  graph::TensorId fused_best(graph::TensorId x, graph::TensorId logits);
  graph::TensorId scaled_mlp(int64_t layer, graph::TensorId x);
  int64_t stretches_of(int64_t columns) const;
  graph::TensorId residual_squares(const std::string& name, graph::TensorId y, graph::TensorId matrix,
                                   graph::TensorId x, const std::string& next_norm);
  graph::TensorId wide_best(graph::TensorId x, graph::TensorId logits);

  ModelConfig config_;
  DecoderOptions options_;
  graph::Graph graph_;
  // Fused: the residual stream in 16 bits. With norms in parts it has the next norm's weight, and squares stand beside it.
  graph::TensorId copy_ = -1, squares_ = -1;
  /// Keys and values of a layer that are not in the cache yet.
  struct Fresh {
    int64_t layer;
    graph::TensorId qkv, k_cache, v_cache;
  };
  std::optional<Fresh> fresh_;
  graph::TensorId rope_cos_, rope_sin_, page_table_, row_token_, row_request_, row_position_;
};

}  // namespace megalith
