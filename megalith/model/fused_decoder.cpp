// The parts of a decoder with neighbouring operators fused, as a GPU wants them: four exchanges between workers in a
// layer instead of nine. The residual stream stays in f32 where it is added to; what is multiplied next travels as a
// copy in the weights' own 16 bits, bf16 or f16. Attention is in bf16 either way, and so is its cache: it has one body, and
// no key or value is out of range. A key of f16 has three bits more, which a model of bf16 does without.
//
// Of more rows than travel as words (a batch, a chunk of a prompt) that copy has the next norm's weight already, and
// who multiplies it scales the sums: by the squares of a row, which those who wrote it added up for their columns. Of
// many a row's attention is one task's: there are as many as workers anyway.
#include <algorithm>
#include <cmath>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/half_range.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/machine/machine.h"
#include "megalith/model/decoder.h"

namespace megalith {

using graph::Dim;
using graph::NodeOptions;
using graph::TensorId;

namespace {

// Positions of a text are dealt to chunks in blocks of so many. 32 positions keep all warps of a task busy at once.
constexpr int64_t kBlockPositions = 32;
// Chunks of attention that a task merges at most.
constexpr int64_t kMaxChunks = 32;
// Rows that a task merges, whose parts are under way together.
constexpr int64_t kMergeRows = 2;
// Tasks that write the cache, at most.
constexpr int64_t kMaxAppendTasks = 4;
// Columns of a chunk of the search for the largest logit: four for each lane of a warp.
constexpr int64_t kArgmaxChunk = 128;

// Chunks times groups of heads times fours of rows come to about as many tasks as the GPU has workers.
int64_t attention_workers(const DecoderOptions& options) {
  return machine::halving_workers(machine::gpu_of_target(options.target));
}

// As many as there are workers besides those of attention: they write the cache meanwhile.
int64_t append_tasks(const DecoderOptions& options) {
  const int64_t others = machine::gpu_of_target(options.target).multiprocessors - attention_workers(options);
  return std::clamp(others, int64_t{1}, kMaxAppendTasks);
}

std::string layer_name(int64_t layer) { return fmt::format("model.layers.{}.", layer); }
constexpr const char* kAttentionNorm = "input_layernorm.weight";
constexpr const char* kMlpNorm = "post_attention_layernorm.weight";

}  // namespace

// Of a few rows: where activations are held in registers, and their columns are dealt out in whole groups.
bool DecoderBuilder::norms_in_parts() const {
  if (options_.wide()) return true;
  return options_.fused &&
         stream::activations(options_.max_rows, config_.hidden_size, false) == stream::Activations::held &&
         config_.hidden_size % squares_columns() == 0;
}

// Columns of a row whose squares come as one sum: those of a group of rows of weights that write them.
int64_t DecoderBuilder::squares_columns() const {
  return options_.wide() ? row_blocks::kColumns : stream::group_rows(stream::slices(options_.max_rows));
}

// Of the residual stream what a copy that has a norm's weight is of; a norm of so much of it has another eps.
double DecoderBuilder::copy_factor() const { return config_.dtype == DType::f16 ? double{half_range::kNormed} : 1; }
double DecoderBuilder::scaled_eps() const { return config_.rms_norm_eps * copy_factor() * copy_factor(); }

NodeOptions DecoderBuilder::copy_options() const {
  NodeOptions options = {.sizes = {{"L", squares_columns()}}, .dtypes = {{"copy", config_.dtype}}};
  if (copy_factor() != 1) options.attributes["factor"] = copy_factor();
  return options;
}

// Attention's own norms are rounded to its dtype.
TensorId DecoderBuilder::head_norm(const std::string& name) {
  return graph_.has(name) ? graph_.find(name) : graph_.constant(name, DType::bf16, {config_.head_dim});
}

TensorId DecoderBuilder::fused_embed() {
  const TensorId embedding = weight("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
  if (norms_in_parts()) {
    const auto all = graph_.add("embedding_squares", "embed",
                                {row_token_, embedding, weight(layer_name(0) + kAttentionNorm, {config_.hidden_size})},
                                copy_options());
    copy_ = all[1];
    squares_ = all[2];
    return all[0];
  }
  copy_ = graph_.apply("embedding", "embed_copy", {row_token_, embedding},
                       {.tile = {{"h", config_.hidden_size}}, .dtypes = {{"y", config_.dtype}}});
  return graph_.apply("embedding", "embed", {row_token_, embedding},
                      {.tile = {{"h", config_.hidden_size}}, .dtypes = {{"y", DType::f32}}});
}

int64_t DecoderOptions::attention_rows(int64_t groups) const {
  return ceil_div(max_rows * groups, attention_workers(*this));
}

TensorId DecoderBuilder::fused_attention(int64_t layer, TensorId x) {
  const std::string at = fmt::format("layer.{}.", layer), names = layer_name(layer);
  const std::string self = names + "self_attn.";
  const int64_t d = config_.head_dim, groups = config_.num_kv_heads, hidden = config_.hidden_size;
  const int64_t per_group = config_.num_heads / groups, places = per_group + 2;

  const TensorId projection =
      streamed(graph_.stacked(self + "qkv_proj.weight", config_.dtype, {groups * places * d, hidden},
                              {self + "q_proj.weight", self + "k_proj.weight", self + "v_proj.weight"}, groups));
  const NodeOptions narrow = {.attributes = {{"eps", norms_in_parts() ? scaled_eps() : config_.rms_norm_eps}},
                              .dtypes = {{"y", DType::bf16}}};
  TensorId qkv = norms_in_parts() ? graph_.apply("scaled_linear", at + "qkv", {copy_, squares_, projection}, narrow)
                                  : graph_.apply("rmsnorm_linear", at + "qkv",
                                                 {copy_, weight(names + kAttentionNorm, {hidden}), projection}, narrow);

  if (config_.qkv_bias) {
    const TensorId bias = graph_.stacked(self + "qkv_proj.bias", config_.dtype, {groups * places * d},
                                         {self + "q_proj.bias", self + "k_proj.bias", self + "v_proj.bias"}, groups);
    qkv = graph_.apply("row_bias", at + "qkv_bias", {qkv, bias}, {.dtypes = {{"y", DType::bf16}}});
  }

  const std::vector<Dim> cache_shape = {options_.num_pages(), options_.page_size, groups, d};
  const TensorId k_cache = graph_.state(at + "k_cache", *options_.kv_dtype, cache_shape, true);
  const TensorId v_cache = graph_.state(at + "v_cache", *options_.kv_dtype, cache_shape, true);
  const bool appends_first = options_.appends_first();
  std::vector<TensorId> inputs = {qkv};
  if (config_.qk_norm) inputs.push_back(head_norm(self + "q_norm.weight"));
  if (config_.qk_norm && !appends_first) inputs.push_back(head_norm(self + "k_norm.weight"));
  for (TensorId more : {rope_cos_, rope_sin_, k_cache, v_cache, page_table_, row_request_, row_position_})
    inputs.push_back(more);
  if (!appends_first) inputs.push_back(graph_.find("row_start"));
  const TensorId o = weight(self + "o_proj.weight", {hidden, config_.num_heads * d});
  NodeOptions attention = {.sizes = {{"E", places}, {"M", per_group}},
                           .attributes = {{"scale", 1 / std::sqrt(static_cast<double>(d))}}};
  if (config_.qk_norm) attention.attributes["eps"] = config_.rms_norm_eps;
  if (options_.wide()) {
    attention.tile = {{"g", 1}, {"t", options_.attention_rows(groups)}};
    attention.dtypes = {{"y", config_.dtype}};
    const Fresh fresh = {layer, qkv, k_cache, v_cache};
    if (appends_first) {
      fresh_ = fresh;
      fused_append();
    }
    const std::string name = appends_first ? "attention_whole_cached" : "attention_whole_qkv";
    const TensorId y = graph_.apply(config_.qk_norm ? name + "_norm" : name, at + "attention", inputs, attention);
    if (!appends_first) {
      fused_append();
      fresh_ = fresh;
    }
    return residual_squares(at + "o", y, o, x, names + kMlpNorm);
  }
  const int64_t task_rows = attention::is_row_alone(options_.max_rows, d) ? 1 : int64_t{attention::kParts};
  attention.sizes["C"] = std::clamp(attention_workers(options_) / (groups * ceil_div(options_.max_rows, task_rows)),
                                    int64_t{1}, kMaxChunks);
  attention.sizes["L"] = kBlockPositions;
  attention.tile = {{"t", task_rows}};
  const auto parts = graph_.add(config_.qk_norm ? "attention_partial_qkv_norm" : "attention_partial_qkv",
                                at + "attention", inputs, attention);
  fused_append();
  fresh_ = {layer, qkv, k_cache, v_cache};
  const TensorId y = graph_.apply("attention_merge_chunks", at + "merge", {parts[0], parts[1]},
                                  {.tile = {{"t", kMergeRows}}, .dtypes = {{"y", config_.dtype}}});
  return norms_in_parts() ? residual_squares(at + "o", y, o, x, names + kMlpNorm) : fused_residual(at + "o", y, o, x);
}

// The cache is written behind all who read it, and nobody waits for that before the next iteration. So it is done
// beside the attention of the next layer, by a worker that has none of that; whoever did it in its own layer would wait
// for the others first, and they for it then. It is one task; of several rows as many as there are workers without
// attention, since with 64 rows a second one behind that would keep all others waiting for 8 us.
void DecoderBuilder::fused_append() {
  if (!fresh_) return;
  const auto [layer, qkv, k_cache, v_cache] = *fresh_;
  fresh_.reset();
  const int64_t groups = config_.num_kv_heads, tasks = options_.appends_first() ? groups
                                                       : options_.max_rows > 1  ? append_tasks(options_)
                                                                                : 1;
  std::vector<TensorId> inputs = {qkv};
  if (config_.qk_norm) inputs.push_back(head_norm(fmt::format("model.layers.{}.self_attn.k_norm.weight", layer)));
  for (TensorId more : {rope_cos_, rope_sin_, page_table_, row_request_, row_position_, k_cache, v_cache})
    inputs.push_back(more);
  NodeOptions options = {.sizes = {{"E", config_.num_heads / config_.num_kv_heads + 2}},
                         .tile = {{"g", ceil_div(groups, tasks)}}};
  if (config_.qk_norm) options.attributes["eps"] = config_.rms_norm_eps;
  graph_.add(config_.qk_norm ? "kv_append_qkv_norm" : "kv_append_qkv", fmt::format("layer.{}.append", layer), inputs,
             options);
}

TensorId DecoderBuilder::fused_residual(const std::string& name, TensorId y, TensorId matrix, TensorId x) {
  const auto both = graph_.add("linear_residual_copy", name, {y, matrix, x},
                               {.dtypes = {{"y", DType::f32}, {"copy", config_.dtype}}});
  copy_ = both[1];
  return both[0];
}

TensorId DecoderBuilder::fused_mlp(int64_t layer, TensorId x) {
  const std::string at = fmt::format("layer.{}.", layer), names = layer_name(layer);
  const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
  const TensorId y = graph_.apply(
      "rmsnorm_gate_up", at + "gate_up",
      {copy_, weight(names + kMlpNorm, {hidden}), weight(names + "mlp.gate_proj.weight", {intermediate, hidden}),
       weight(names + "mlp.up_proj.weight", {intermediate, hidden})},
      {.attributes = {{"eps", config_.rms_norm_eps}}, .dtypes = {{"y", config_.dtype}}});
  return fused_residual(at + "down", y, weight(names + "mlp.down_proj.weight", {hidden, intermediate}), x);
}

// With more than 64 rows of activations a worker of `down` would read all of them from the L2 for 32 rows of weights. It
// has a few columns of more rows instead, of so many stretches of them: then sums are handed over, which costs less
// where a row is long.
int64_t DecoderBuilder::stretches_of(int64_t columns) const {
  constexpr int64_t kRows = 128, kMax = 8;  // of weights that a worker has, of all stretches
  constexpr int64_t kShort = 4096;
  if (options_.max_rows <= stream::kWideRows || columns <= kShort) return 1;
  int64_t stretches = std::clamp(kRows * attention_workers(options_) / config_.hidden_size, int64_t{1}, kMax);
  const int64_t spans = options_.quant_columns > 0 ? int8::kSpans : 1;
  const auto chunk = [&] {
    return spans * stream::wide_columns(stream::wide_group(config_.hidden_size * stretches, 1));
  };
  while (stretches > 1 && columns % (stretches * chunk()) != 0) stretches /= 2;
  return stretches;
}

TensorId DecoderBuilder::residual_squares(const std::string& name, TensorId y, TensorId matrix, TensorId x,
                                          const std::string& next_norm) {
  const TensorId norm = weight(next_norm, {config_.hidden_size});
  NodeOptions options = copy_options();
  const int64_t stretches = stretches_of(graph_.tensor(matrix).shape[1].size);
  std::vector<TensorId> all;
  if (stretches > 1) {
    const int64_t rows = config_.hidden_size * stretches, group = stream::wide_group(rows, 1);
    const TensorId part = graph_.apply("linear_part", name + "_part", {y, matrix},
                                       {.sizes = {{"S", stretches}},
                                        .tile = {{"n", stream::wide_busiest(rows, group) * group}, {"s", 1}},
                                        .dtypes = {{"part", DType::f32}}});
    options.tile = {{"t", options_.max_rows}};
    all = graph_.add("add_parts_squares", name, {part, x, norm}, options);
  } else {
    all = graph_.add("linear_residual_squares", name, {y, matrix, x, norm}, options);
  }
  copy_ = all[1];
  squares_ = all[2];
  return all[0];
}

TensorId DecoderBuilder::scaled_mlp(int64_t layer, TensorId x) {
  const std::string at = fmt::format("layer.{}.", layer), names = layer_name(layer);
  const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
  const TensorId y = graph_.apply("scaled_gate_up", at + "gate_up",
                                  {copy_, squares_, weight(names + "mlp.gate_proj.weight", {intermediate, hidden}),
                                   weight(names + "mlp.up_proj.weight", {intermediate, hidden})},
                                  {.attributes = {{"eps", scaled_eps()}}, .dtypes = {{"y", config_.dtype}}});
  // Nobody multiplies what the last layer writes, but for a case of its own it would need a body of its own.
  const std::string next_norm =
      layer + 1 < config_.num_layers ? layer_name(layer + 1) + kAttentionNorm : "model.norm.weight";
  return residual_squares(at + "down", y, weight(names + "mlp.down_proj.weight", {hidden, intermediate}), x, next_norm);
}

TensorId DecoderBuilder::wide_best(TensorId x, TensorId logits) {
  const TensorId last = graph_.apply("gather_rows", "last_rows", {x, graph_.find("sample_row")});
  const TensorId norm =
      graph_.apply("rmsnorm", "final_norm", {last, weight("model.norm.weight", {config_.hidden_size})},
                   {.attributes = {{"eps", config_.rms_norm_eps}}, .dtypes = {{"y", config_.dtype}}});
  const int64_t chunk = stream::wide_group(config_.vocab_size, 1);
  const auto parts = graph_.add("linear_argmax", "lm_head", {norm, head()},
                                {.sizes = {{"C", ceil_div(config_.vocab_size, chunk)}, {"L", chunk}},
                                 .outputs = {{"logits", logits}},
                                 .dtypes = {{"value", DType::f32}}});
  return graph_.apply("argmax_reduce", "argmax", {parts[1], parts[2]});
}

TensorId DecoderBuilder::fused_best(TensorId x, TensorId logits) {
  const TensorId last =
      graph_.apply("gather_rows", "last_rows", {x, graph_.find("sample_row")}, {.dtypes = {{"y", config_.dtype}}});
  const TensorId norm = weight("model.norm.weight", {config_.hidden_size});
  const auto parts = graph_.add("rmsnorm_linear_argmax", "lm_head", {last, norm, head()},
                                {.sizes = {{"C", ceil_div(config_.vocab_size, kArgmaxChunk)}, {"L", kArgmaxChunk}},
                                 .attributes = {{"eps", config_.rms_norm_eps}},
                                 .outputs = {{"logits", logits}},
                                 .dtypes = {{"value", DType::f32}}});
  return graph_.apply("argmax_reduce", "argmax", {parts[1], parts[2]});
}

}  // namespace megalith
