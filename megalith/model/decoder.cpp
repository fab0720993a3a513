#include "megalith/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/kernels/attention_layout.h"
#include "megalith/kernels/batch.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/machine/machine.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/runtime/mailbox.h"

namespace megalith {

using graph::Dim;
using graph::Graph;
using graph::TensorId;

namespace {

// Columns per chunk of the search for the largest logit: small enough to spread over many workers, large enough that
// the last step has little to do.
constexpr int64_t kArgmaxChunk = 1024;

// Rows of an iteration unless somebody says how many. On a CPU a chunk of a prompt reads all weights once, at a few
// hundred operations a byte: sixteen blocks of a product's rows are enough for that to vanish beside the products.
constexpr int64_t kRowsOnCpu = 192, kRowsOnGpu = 4;

// Tokens that all pages together have room for.
constexpr int64_t kMaxCached = std::numeric_limits<int32_t>::max();

// A norm's weight or a bias.
bool is_vector(const std::string& weight) { return weight.ends_with("norm.weight") || weight.ends_with(".bias"); }

// Fused, a multiplication or the attention of several rows has what it works on in shared memory, and weights stream
// through what is left of that.
bool leaves_room(const ModelConfig& config, int64_t rows, int64_t requests, const std::string& target) {
  const int64_t closing = std::max(config.intermediate_size, config.num_heads * config.head_dim);
  const auto opening = [&](int64_t r) {
    return r > stream::kMaxRows ? stream::wide_bytes(64) : stream::scratch_bytes(r, config.hidden_size, false);
  };
  const int64_t linear = std::max({opening(rows), opening(std::min(rows, requests)),  // the last is for logits
                                   rows > stream::kMaxRows ? 0 : stream::scratch_bytes(rows, closing, true)});
  const int64_t per_group = config.num_heads / config.num_kv_heads;
  const int64_t attention = rows > stream::kMaxRows ? attention::whole_bytes(per_group, config.head_dim, true)
                                                    : attention::chunk_bytes(rows, per_group, config.head_dim);
  return stream::ring_slots(machine::gpu_of_target(target).shared_bytes, std::max(linear, attention), rows) > 0;
}

}  // namespace

DecoderOptions DecoderOptions::resolved(const ModelConfig& config) const {
  DecoderOptions r = *this;
  constexpr int64_t kDefaultLength = 4096;
  const int64_t longest = config.longest_sequence();
  if (r.max_seq_len == 0) r.max_seq_len = std::min(kDefaultLength, longest);
  MEGALITH_CHECK(
      !config.sliding_window || r.max_seq_len <= *config.sliding_window,
      "--max-seq-len is {}, but the model has a \"sliding_window\" of {}, and sequences longer than the window "
      "are not supported: try --max-seq-len {}",
      r.max_seq_len, *config.sliding_window, longest);
  MEGALITH_CHECK(r.max_seq_len >= 2 && r.max_seq_len <= longest, "--max-seq-len is {}, want 2 to {} ({} of the model)",
                 r.max_seq_len, longest,
                 longest > config.max_position_embeddings ? "the scaled context" : "max_position_embeddings");
  MEGALITH_CHECK(r.page_size >= 1 && r.page_size <= 65536, "--page-size is {}, want 1 to 65536", r.page_size);
  MEGALITH_CHECK(r.split_len >= 1, "the split length is {}, want at least 1", r.split_len);
  MEGALITH_CHECK(r.max_requests >= 1 && r.max_requests <= 1024, "--max-batch is {}, want 1 to 1024", r.max_requests);
  const bool gpu = r.target.starts_with("cuda");
  // On a GPU rows share the room that weights stream through; on a CPU a longer chunk of a prompt only helps.
  if (r.max_rows == 0) r.max_rows = std::max(r.max_requests, gpu ? kRowsOnGpu : kRowsOnCpu);
  // Activations of many rows lie in whole blocks.
  if (gpu && r.max_rows > stream::kMaxRows && r.max_rows <= stream::kMaxWideRows)
    r.max_rows = ceil_div(r.max_rows, int64_t{row_blocks::kRows}) * row_blocks::kRows;
  const bool fits = gpu && dtype_is_half(config.dtype) && !config.o_bias && !config.mlp_bias &&
                    r.max_rows <= stream::kMaxWideRows && leaves_room(config, r.max_rows, r.max_requests, r.target) &&
                    (r.max_rows <= stream::kMaxRows || config.hidden_size % row_blocks::kColumns == 0);
  // As transformers does that loads a model in its dtype. Matrices stay what they are.
  if (fits && std::ranges::all_of(r.weight_dtypes, [](const auto& weight) { return is_vector(weight.first); }))
    r.rounded_weights.merge(std::exchange(r.weight_dtypes, {}));
  r.fused = fits && r.weight_dtypes.empty();
  MEGALITH_CHECK(
      r.quant_columns == 0 || !gpu || r.fused,
      "--quantization on {} is for models that run fused (docs/gpu.md): of bf16 or f16, with at most {} tokens a "
      "step, not {}; use fewer --max-batched-tokens, or --target cpu",
      r.target, stream::kMaxWideRows, r.max_rows);
  MEGALITH_CHECK(!gpu || r.quant_columns % int8::kRun == 0,
                 "--quantization int8:{}: want a multiple of {} columns to a scale on {}", r.quant_columns, int8::kRun,
                 r.target);
  MEGALITH_CHECK(r.quant_columns >= 0 && r.quant_columns % panel::kQuad == 0,
                 "--quantization int8:{}: want a multiple of 4 columns to a scale, such as 32 or 128", r.quant_columns);
  if (!r.kv_dtype) r.kv_dtype = r.fused ? DType::bf16 : DType::f32;
  MEGALITH_CHECK(r.max_pages >= 0 && r.max_pages <= r.pages_per_request() * r.max_requests,
                 "--num-pages is {}, want 1 to {} (all that {} requests of {} tokens can use), or 0 for those",
                 r.max_pages, r.pages_per_request() * r.max_requests, r.max_requests, r.max_seq_len);
  MEGALITH_CHECK(r.num_pages() <= kMaxCached / r.page_size,
                 "the KV cache would have {} pages of {} tokens, but its tokens are counted in 32 bits: use a shorter "
                 "--max-seq-len ({}), fewer requests (--max-batch {}), or --num-pages up to {}",
                 r.num_pages(), r.page_size, r.max_seq_len, r.max_requests, kMaxCached / r.page_size);
  MEGALITH_CHECK(r.max_rows >= r.max_requests && r.max_rows <= 4096,
                 "--max-batched-tokens is {}, want {} (one token per request) to 4096", r.max_rows, r.max_requests);
  return r;
}

bool DecoderOptions::wide() const { return fused && max_rows > stream::kMaxRows; }

bool DecoderOptions::appends_first() const {
  constexpr int64_t kRowsOfPrompt = 8;  // of each request there is room for: many of them look at each other
  return wide() && (max_rows > stream::kWideRows || max_rows >= kRowsOfPrompt * max_requests);
}

int64_t DecoderOptions::pages_per_request() const {
  // The chunks of attention cover the pages exactly or end inside the last one.
  return ceil_div(ceil_div(max_seq_len, split_len) * split_len, page_size);
}

int64_t DecoderOptions::num_pages() const { return max_pages > 0 ? max_pages : pages_per_request() * max_requests; }

std::map<std::string, DType> weight_dtypes(const Weights& weights, DType usual) {
  std::map<std::string, DType> result;
  for (const std::string& name : weights.names()) {
    // The rest of a checkpoint is what its library computed, such as rotary_emb.inv_freq in f32: nothing here reads it.
    if (!name.ends_with(".weight") && !name.ends_with(".bias")) continue;
    const WeightTensor* tensor = weights.find(name);
    if (tensor && tensor->dtype != usual) result[name] = tensor->dtype;
  }
  return result;
}

DecoderBuilder::DecoderBuilder(const ModelConfig& config, const DecoderOptions& options)
    : config_(config),
      options_(options),
      graph_(ops::builtin(), config.name.empty() ? config.architecture : config.name) {
  const int64_t num_requests = options_.max_requests;
  const TensorId counts = graph_.state("counts", DType::i32, {batch::kCountFields});
  graph_.dynamic_size("rows", counts, batch::kRows);
  graph_.dynamic_size("samples", counts, batch::kSamples);
  const Dim rows(options_.max_rows, "rows"), samples(num_requests, "samples");
  row_token_ = graph_.state("row_token", DType::i32, {rows});
  row_request_ = graph_.state("row_request", DType::i32, {rows});
  row_position_ = graph_.state("row_position", DType::i32, {rows});
  graph_.state("row_start", DType::i32, {rows});
  graph_.state("sample_row", DType::i32, {samples});
  graph_.state("sample_request", DType::i32, {samples});
  page_table_ = graph_.state("page_table", DType::i32, {num_requests, options_.pages_per_request()});
  const int64_t positions = ceil_div(options_.max_seq_len, options_.split_len) * options_.split_len;
  rope_cos_ = graph_.constant("rope.cos", DType::f32, {positions, config_.head_dim / 2});
  rope_sin_ = graph_.constant("rope.sin", DType::f32, {positions, config_.head_dim / 2});
}

TensorId DecoderBuilder::weight(const std::string& name, std::vector<Dim> shape) {
  if (graph_.has(name)) return graph_.find(name);
  const auto found = options_.weight_dtypes.find(name);
  return streamed(
      graph_.constant(name, found == options_.weight_dtypes.end() ? config_.dtype : found->second, std::move(shape)));
}

// On a GPU a quantised matrix is what it was, and comes in int8 where it is multiplied.
TensorId DecoderBuilder::streamed(TensorId weight) {
  if (options_.fused && options_.quant_columns > 0 && graph_.tensor(weight).shape.size() == 2)
    graph_.quantize(weight, options_.quant_columns);
  return weight;
}

TensorId DecoderBuilder::multiply(const std::string& op, const std::string& node, std::vector<TensorId> inputs,
                                  size_t before, const std::vector<std::string>& matrices, int64_t rows,
                                  int64_t columns, graph::NodeOptions options) {
  const bool quantized = options_.quant_columns > 0;
  std::vector<TensorId> weights;
  for (const std::string& name : matrices) {
    if (!quantized) {
      weights.push_back(weight(name, {rows, columns}));
    } else if (graph_.has(name)) {
      weights.insert(weights.end(), {graph_.find(name), graph_.find(graph::quant_scale_name(name))});
    } else {
      const Graph::Quantized made = graph_.quantized(name, rows, columns, options_.quant_columns);
      weights.insert(weights.end(), {made.weight, made.scale});
    }
  }
  inputs.insert(inputs.begin() + static_cast<std::ptrdiff_t>(before), weights.begin(), weights.end());
  if (quantized) options.sizes["L"] = options_.quant_columns;
  return graph_.apply(quantized ? op + "_int8" : op, node, inputs, options);
}

TensorId DecoderBuilder::embed() {
  if (options_.fused) return fused_embed();
  return multiply("embedding", "embed", {row_token_}, 1, {"model.embed_tokens.weight"}, config_.vocab_size,
                  config_.hidden_size);
}

// The bias stands beside the weight in the checkpoint.
TensorId DecoderBuilder::add_bias(const std::string& node, TensorId x, const std::string& matrix, int64_t size) {
  const std::string bias = matrix.substr(0, matrix.rfind('.')) + ".bias";
  return graph_.apply("row_bias", node + "_bias", {x, weight(bias, {size})});
}

TensorId DecoderBuilder::project(const std::string& node, TensorId x, TensorId norm, const std::string& matrix,
                                 int64_t rows, bool has_bias) {
  const TensorId y = multiply("rmsnorm_linear", node, {x, norm}, 2, {matrix}, rows, config_.hidden_size,
                              {.attributes = {{"eps", config_.rms_norm_eps}}});
  return has_bias ? add_bias(node, y, matrix, rows) : y;
}

TensorId DecoderBuilder::project_residual(const std::string& node, TensorId y, TensorId x, const std::string& matrix,
                                          int64_t columns, bool has_bias) {
  x = multiply("linear_with_residual", node, {y, x}, 1, {matrix}, config_.hidden_size, columns);
  return has_bias ? add_bias(node, x, matrix, config_.hidden_size) : x;
}

// One of q and k: projection, q/k norm where the architecture has it, rotation.
TensorId DecoderBuilder::heads(const std::string& name, TensorId x, const std::string& weight_name, TensorId norm,
                               int64_t num_heads, const std::string& norm_name) {
  TensorId y = project(name, x, norm, weight_name, num_heads * config_.head_dim, config_.qkv_bias);
  if (config_.qk_norm)
    y = graph_.apply("head_norm", name + "_norm", {y, weight(norm_name, {config_.head_dim})},
                     {.attributes = {{"eps", config_.rms_norm_eps}}});
  return graph_.apply("rope", name + "_rope", {y, rope_cos_, rope_sin_, row_position_});
}

TensorId DecoderBuilder::attention(int64_t layer, TensorId x) {
  if (options_.fused) return fused_attention(layer, x);
  const std::string at = fmt::format("layer.{}.", layer), names = fmt::format("model.layers.{}.", layer);
  const int64_t d = config_.head_dim, kv_heads = config_.num_kv_heads;
  const TensorId norm = weight(names + "input_layernorm.weight", {config_.hidden_size});
  const TensorId q =
      heads(at + "q", x, names + "self_attn.q_proj.weight", norm, config_.num_heads, names + "self_attn.q_norm.weight");
  const TensorId k =
      heads(at + "k", x, names + "self_attn.k_proj.weight", norm, kv_heads, names + "self_attn.k_norm.weight");
  const TensorId v = project(at + "v", x, norm, names + "self_attn.v_proj.weight", kv_heads * d, config_.qkv_bias);

  const std::vector<Dim> cache_shape = {options_.num_pages(), options_.page_size, kv_heads, d};
  const TensorId k_cache = graph_.state(at + "k_cache", *options_.kv_dtype, cache_shape);
  const TensorId v_cache = graph_.state(at + "v_cache", *options_.kv_dtype, cache_shape);
  graph_.add("kv_append", at + "append", {k, v, page_table_, row_request_, row_position_, k_cache, v_cache});

  const int64_t num_splits = ceil_div(options_.max_seq_len, options_.split_len);
  const auto parts =
      graph_.add("attention_partial", at + "attention", {q, k_cache, v_cache, page_table_, row_request_, row_position_},
                 {.sizes = {{"C", num_splits}, {"L", options_.split_len}},
                  .attributes = {{"scale", 1 / std::sqrt(static_cast<double>(d))}}});
  const TensorId y = graph_.apply("attention_merge", at + "merge", {parts[0], parts[1], parts[2], row_position_},
                                  {.sizes = {{"L", options_.split_len}}});
  return project_residual(at + "o", y, x, names + "self_attn.o_proj.weight", config_.num_heads * d, config_.o_bias);
}

TensorId DecoderBuilder::mlp(int64_t layer, TensorId x) {
  if (norms_in_parts()) return scaled_mlp(layer, x);
  if (options_.fused) return fused_mlp(layer, x);
  const std::string at = fmt::format("layer.{}.", layer), names = fmt::format("model.layers.{}.", layer);
  const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
  const TensorId norm = weight(names + "post_attention_layernorm.weight", {hidden});
  const std::string gate = names + "mlp.gate_proj.weight", up = names + "mlp.up_proj.weight";
  const TensorId y = config_.mlp_bias  // which stands between the projections and the gate, and keeps them apart
                         ? graph_.apply("silu_mul", at + "gate_up",
                                        {project(at + "gate", x, norm, gate, intermediate, true),
                                         project(at + "up", x, norm, up, intermediate, true)})
                         : multiply("rmsnorm_gate_up", at + "gate_up", {x, norm}, 2, {gate, up}, intermediate, hidden,
                                    {.attributes = {{"eps", config_.rms_norm_eps}}});
  return project_residual(at + "down", y, x, names + "mlp.down_proj.weight", intermediate, config_.mlp_bias);
}

std::string DecoderBuilder::head_name() const {
  return config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
}

TensorId DecoderBuilder::head() { return weight(head_name(), {config_.vocab_size, config_.hidden_size}); }

TensorId DecoderBuilder::likeliest(TensorId x, TensorId logits) {
  // As many rows as requests, few or many, whatever an iteration has.
  if (options_.wide() && options_.max_requests > stream::kMaxRows) return wide_best(x, logits);
  if (options_.fused) return fused_best(norms_in_parts() ? x : copy_, logits);
  const int64_t vocab = config_.vocab_size;
  const TensorId last = graph_.apply("gather_rows", "last_rows", {x, graph_.find("sample_row")});
  const TensorId norm = weight("model.norm.weight", {config_.hidden_size});
  multiply("rmsnorm_linear", "lm_head", {last, norm}, 2, {head_name()}, vocab, config_.hidden_size,
           {.attributes = {{"eps", config_.rms_norm_eps}}, .outputs = {{"y", logits}}});
  const auto partial = graph_.add("argmax_partial", "argmax_partial", {logits},
                                  {.sizes = {{"C", ceil_div(vocab, kArgmaxChunk)}, {"L", kArgmaxChunk}}});
  return graph_.apply("argmax_reduce", "argmax", {partial[0], partial[1]});
}

void DecoderBuilder::sample(TensorId x) {
  const int64_t num_requests = options_.max_requests, vocab = config_.vocab_size;
  const TensorId sample_row = graph_.find("sample_row"), sample_request = graph_.find("sample_request");
  const TensorId logits = graph_.state("logits", DType::f32, {Dim(num_requests, "samples"), vocab});
  const TensorId best = likeliest(x, logits);
  fused_append();  // of the last layer

  const TensorId requests = graph_.state("requests", DType::i32, {num_requests, batch::kRequestFields});
  const TensorId sampling_f32 = graph_.state("sampling_f32", DType::f32, {num_requests, batch::kSamplingFloats});
  const TensorId sampling_i32 = graph_.state("sampling_i32", DType::i32, {num_requests, batch::kSamplingInts});
  const TensorId history = graph_.state("history", DType::i32, {num_requests, options_.max_seq_len});
  const auto sampled =
      graph_.add("sampling", "sampling", {logits, best, sample_request, requests, history, sampling_f32, sampling_i32});
  const TensorId token = sampled[0], logprob = sampled[1];

  const TensorId stop_tokens = graph_.state("stop_tokens", DType::i32, {options_.max_stop_tokens});
  const TensorId mailbox =
      graph_.state("mailbox", DType::i32, {static_cast<int64_t>(sizeof(runtime::Mailbox) / sizeof(int32_t))});
  const TensorId stop = graph_.state("stop", DType::i32, {1});
  graph_.add("advance", "advance",
             {token, logprob, stop_tokens, requests, history, graph_.find("counts"), row_token_, row_request_,
              row_position_, graph_.find("row_start"), sample_row, sample_request, mailbox, stop});
  graph_.set_gate("advance", stop);
}

Graph build_decoder(const ModelConfig& config, const DecoderOptions& options) {
  DecoderBuilder model(config, options.resolved(config));
  TensorId x = model.embed();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    x = model.attention(layer, x);
    x = model.mlp(layer, x);
  }
  model.sample(x);
  return optimize::optimize(model.finish(), options.target.starts_with("cuda") ? "cuda" : "cpu");
}

}  // namespace megalith
