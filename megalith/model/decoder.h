// Decoder-only transformers in the graph API: the layers, and the batch block around them. What sets architectures apart
// stands in their configuration (architecture.h).
//
// One graph serves every phase. It works on up to max_rows token rows; each row belongs to a request and has its own
// position and pages, so a decode step, a chunk of a prompt and a batch of requests differ only in how many rows the
// last iteration's `advance` task laid out (runtime/batch.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"

namespace megalith {

/// Sizes of the running system, as against those of the model.
struct DecoderOptions {
  int64_t max_rows = 0;          // T: token rows per iteration, so also the longest chunk of a prompt; 0: chosen. Fewer
                                 // than requests: of a kernel that works beside one with more (engine/regimes.h)
  int64_t max_requests = 1;      // N
  int64_t max_seq_len = 0;       // S: positions per request; 0: the model's own limit, but at most 4096
  int64_t page_size = 16;        // B: positions per KV page
  int64_t max_pages = 0;         // P; 0: enough for every request at its longest
  int64_t max_stop_tokens = 16;  // E
  // Drafts (kernels/drafts.h): how many a sequence has at most beside its last token, 0 for none; how many tokens of its end must
  // have stood there before; and how many rows those that have drafts take together, 0: chosen.
  int64_t draft_tokens = 0, draft_match = 3, draft_rows = 0;
  std::shared_ptr<const ModelConfig> draft_model = nullptr;  // of the model that makes drafts (model/draft_model.h)
  // With kernels of other numbers of rows, which lay them out alike: in rows, if one of them takes them no other way.
  bool shares_caches = false, caches_in_rows = false;
  DType activation_dtype = DType::f32;
  std::optional<DType> kv_dtype = {};               // nothing: chosen
  std::string target = "cpu";                       // what the graph is to be compiled for, or "cuda"
  int64_t quant_columns = 0;                        // matrices in int8, so many columns to a scale; 0: as they are
  std::map<std::string, DType> weight_dtypes = {};  // of weights whose dtype is not the configuration's
  /// Chosen: those of them that are rounded to the configuration's dtype, norms and biases for a GPU.
  std::map<std::string, DType> rounded_weights = {};

  /// With every choice made and the limits checked against the model; UserError naming the option.
  DecoderOptions resolved(const ModelConfig& config) const;
  /// UserError unless the kernel has a row for every request, as the one that any load may come to must have.
  void check_holds_all_requests() const;
  int64_t positions() const;          // S in whole chunks of attention (optimize/rules.h)
  int64_t pages_per_request() const;  // Q
  int64_t num_pages() const;          // P
  int64_t num_samples() const;        // R
  int64_t draft_model_rows() const;   // D: of the first step of a draft model
};

/// The weights and biases of a checkpoint whose dtype is not the `usual` one, for DecoderOptions::weight_dtypes.
std::map<std::string, DType> weight_dtypes(const Weights& weights, DType usual);

/// The graph of one iteration for this configuration. Constants carry the checkpoint's tensor names; beside them stand
/// "rope.cos" and "rope.sin", [S, head_dim / 2] in f32. States are the batch block and "layer.<i>.k_cache" / "v_cache". The names of
/// a draft model's begin with "draft.".
graph::Graph build_decoder(const ModelConfig& config, const DecoderOptions& options);

/// The parts that build_decoder() puts together.
class DecoderBuilder {
 public:
  DecoderBuilder(const ModelConfig& config, const DecoderOptions& options);
  /// Where another model's layers work, in the middle of somebody's graph.
  struct Place {
    graph::Graph& graph;
    std::string weights, nodes;  // what the names of its weights and caches begin with, and those of its nodes
    graph::TensorId token, request, position;  // of its rows
  };
  DecoderBuilder(const ModelConfig& config, const DecoderOptions& options, const Place& place);
  DecoderBuilder(const DecoderBuilder&) = delete;

  graph::TensorId embed();                                  // (T, H)
  graph::TensorId layer(int64_t layer, graph::TensorId x);  // (T, H) -> (T, H)
  // What layers are made of. `node` is called "layer.<layer>.<node>" in the graph; (T, H) -> (T, H) each.
  /// `weight`: behind "model.layers.<layer>." in the checkpoint.
  graph::TensorId norm(int64_t layer, const std::string& node, graph::TensorId x, const std::string& weight);
  graph::TensorId attention(int64_t layer, graph::TensorId n);  // projections, cache and all; of rows behind their norm
  graph::TensorId mlp(int64_t layer, graph::TensorId n);
  graph::TensorId add(int64_t layer, const std::string& node, graph::TensorId x, graph::TensorId y);
  /// Final norm and logits, of some rows or all; into a state, if one is given.
  graph::TensorId head(graph::TensorId x, std::optional<graph::TensorId> rows = {},
                       std::optional<graph::TensorId> logits = {});
  /// Logits of the rows that are sampled, sampling, and the end of the iteration.
  void sample(graph::TensorId x);
  /// The steps of the draft model, in front of all layers.
  void draft();
  graph::Graph finish() { return std::move(graph_); }

 private:
  graph::TensorId weight(const std::string& of_model, std::vector<graph::Dim> shape);
  graph::TensorId table(const std::string& name, int64_t columns);
  graph::TensorId normalise(const std::string& node, graph::TensorId x, const std::string& weight_name);
  graph::TensorId heads(const std::string& name, graph::TensorId x, const std::string& weight_name, int64_t num_heads,
                        const std::string& norm_name);
  /// A projection of `x`; with its bias if it `has_bias`.
  graph::TensorId project(const std::string& node, graph::TensorId x, const std::string& matrix, int64_t rows,
                          int64_t columns, bool has_bias);
  graph::TensorId add_bias(const std::string& node, graph::TensorId x, const std::string& matrix, int64_t size);

  ModelConfig config_;
  DecoderOptions options_;
  graph::Graph own_graph_;
  graph::Graph& graph_;
  std::string weights_, nodes_;  // what names begin with (Place)
  graph::TensorId rope_cos_, rope_sin_, page_table_, row_token_, row_request_, row_position_;
};

}  // namespace megalith
