#include "megalith/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "megalith/base/amx.h"
#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/machine/products.h"
#include "megalith/model/architecture.h"
#include "megalith/model/draft_model.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/limits.h"
#include "megalith/optimize/optimize.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/mailbox.h"

namespace megalith {

using graph::Dim;
using graph::Graph;
using graph::TensorId;

namespace {

// Rows of an iteration unless somebody says how many. On a CPU a chunk of a prompt reads all weights once, at a few
// hundred operations a byte: sixteen blocks of a product's rows are enough for that to vanish beside the products. With
// tiles these are sixteen times as fast, and memory is not.
constexpr int64_t kRowsOnCpu = 192, kRowsInTiles = 512, kRowsOnGpu = 4;

// Of rows that requests with drafts take together. Up to so many take little longer than one: weights are read once for all.
constexpr int64_t kDraftRows = 32;

// Rows up to which a step takes as long as with one: on a GPU (engine/regimes.h). On a CPU each row takes its time.
constexpr int64_t kFreeDraftRowsOnGpu = 8;

// Tokens that all pages together have room for.
constexpr int64_t kMaxCached = std::numeric_limits<int32_t>::max();

// A norm's weight or a bias.
bool is_vector(const std::string& weight) { return weight.ends_with("norm.weight") || weight.ends_with(".bias"); }

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
  MEGALITH_CHECK(r.max_requests >= 1 && r.max_requests <= 1024, "--max-batch is {}, want 1 to 1024", r.max_requests);
  const bool gpu = r.target.starts_with("cuda");
  if (r.draft_model) {
    check_draft_model(*r.draft_model, config, r.max_seq_len);
    if (r.draft_tokens == 0) r.draft_tokens = kDraftModelTokens;
  }
  // On a GPU rows share the room that weights stream through; on a CPU a longer chunk of a prompt only helps.
  MEGALITH_CHECK(r.draft_tokens >= 0 && r.draft_tokens <= batch::kMaxDrafts, "--draft-tokens is {}, want 0 to {}",
                 r.draft_tokens, batch::kMaxDrafts);
  MEGALITH_CHECK(r.draft_match >= 1 && r.draft_match <= batch::kLongestMatch, "--draft-match is {}, want 1 to {}",
                 r.draft_match, batch::kLongestMatch);
  const int64_t rows_of_drafts = r.draft_tokens > 0 ? std::min(kDraftRows, r.max_requests * (1 + r.draft_tokens)) : 0;
  const bool in_tiles = amx_is_usable() && machine::chosen_products() == machine::Products::amx;
  if (r.max_rows == 0)
    r.max_rows = std::max({r.max_requests, rows_of_drafts, gpu ? kRowsOnGpu : in_tiles ? kRowsInTiles : kRowsOnCpu});
  r.max_rows = optimize::whole_rows(r.target, r.max_rows);
  if (r.draft_rows == 0) r.draft_rows = std::min(rows_of_drafts, r.max_rows);
  // As transformers does that loads a model in its dtype. Matrices stay what they are.
  if (gpu && dtype_is_half(config.dtype) &&
      std::ranges::all_of(r.weight_dtypes, [](const auto& weight) { return is_vector(weight.first); }))
    r.rounded_weights.merge(std::exchange(r.weight_dtypes, {}));
  const bool narrow = dtype_is_half(config.dtype) && optimize::multiplies_narrow(r.target, r.max_rows);
  MEGALITH_CHECK(
      r.quant_columns == 0 || !gpu || (narrow && r.weight_dtypes.empty()),
      "--quantization on {} is for models that stream (docs/gpu.md): of bf16 or f16 altogether, with at most {} "
      "tokens a step, not {}; use fewer --max-batched-tokens, or --target cpu",
      r.target, optimize::kMaxNarrowRows, r.max_rows);
  MEGALITH_CHECK(!gpu || r.quant_columns % optimize::kQuantRun == 0,
                 "--quantization int8:{}: want a multiple of {} columns to a scale on {}", r.quant_columns,
                 optimize::kQuantRun, r.target);
  MEGALITH_CHECK(r.quant_columns >= 0 && r.quant_columns % optimize::kQuantMultiple == 0,
                 "--quantization int8:{}: want a multiple of {} columns to a scale, such as 32 or 128", r.quant_columns,
                 optimize::kQuantMultiple);
  // Where attention rounds keys and values, they may as well be kept so (kernels/cpu/attention_tiles.h).
  const bool is_rounded = !gpu && config.dtype == DType::bf16 && r.quant_columns == 0 && r.weight_dtypes.empty() &&
                          machine::chosen_products() == machine::Products::amx;
  if (!r.kv_dtype) r.kv_dtype = narrow || is_rounded ? DType::bf16 : DType::f32;
  MEGALITH_CHECK(r.max_pages >= 0 && r.max_pages <= r.pages_per_request() * r.max_requests,
                 "--num-pages is {}, want 1 to {} (all that {} requests of {} tokens can use), or 0 for those",
                 r.max_pages, r.pages_per_request() * r.max_requests, r.max_requests, r.max_seq_len);
  MEGALITH_CHECK(r.num_pages() <= kMaxCached / r.page_size,
                 "the KV cache would have {} pages of {} tokens, but its tokens are counted in 32 bits: use a shorter "
                 "--max-seq-len ({}), fewer requests (--max-batch {}), or --num-pages up to {}",
                 r.num_pages(), r.page_size, r.max_seq_len, r.max_requests, kMaxCached / r.page_size);
  MEGALITH_CHECK(r.max_rows >= 1 && r.max_rows <= 4096, "--max-batched-tokens is {}, want 1 to 4096", r.max_rows);
  return r;
}

void DecoderOptions::check_holds_all_requests() const {
  MEGALITH_CHECK(max_rows >= max_requests, "--max-batched-tokens is {}, want {} (one token per request) to 4096",
                 max_rows, max_requests);
}

int64_t DecoderOptions::positions() const {
  return ceil_div(max_seq_len, optimize::kSplitPositions) * optimize::kSplitPositions;
}

int64_t DecoderOptions::pages_per_request() const { return ceil_div(positions(), page_size); }

int64_t DecoderOptions::num_pages() const { return max_pages > 0 ? max_pages : pages_per_request() * max_requests; }

int64_t DecoderOptions::num_samples() const { return std::min(std::max(max_requests, draft_rows), max_rows); }

// Those that the other model works on, and one more of each request at most. If there is but one, it has either drafts, whose rows are
// no rows of the first step, or no other row; or it begins again, and needs none.
int64_t DecoderOptions::draft_model_rows() const {
  return optimize::whole_rows(target, max_requests > 1 ? max_rows + max_requests : std::max<int64_t>(max_rows, 2));
}

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
      own_graph_(ops::builtin(), config.name.empty() ? config.architecture : config.name),
      graph_(own_graph_) {
  const int64_t num_requests = options_.max_requests, num_samples = options_.num_samples();
  const TensorId counts = graph_.state("counts", DType::i32, {batch::kCountFields});
  graph_.dynamic_size("rows", counts, batch::kRows);
  graph_.dynamic_size("samples", counts, batch::kSamples);
  const Dim rows(options_.max_rows, "rows"), samples(num_samples, "samples");
  row_token_ = graph_.state("row_token", DType::i32, {rows});
  row_request_ = graph_.state("row_request", DType::i32, {rows});
  row_position_ = graph_.state("row_position", DType::i32, {rows});
  graph_.state("row_start", DType::i32, {rows});
  graph_.state("sample_row", DType::i32, {samples});
  graph_.state("sample_request", DType::i32, {samples});
  page_table_ = graph_.state("page_table", DType::i32, {num_requests, options_.pages_per_request()});
  rope_cos_ = graph_.constant("rope.cos", DType::f32, {options_.positions(), config_.head_dim / 2});
  rope_sin_ = graph_.constant("rope.sin", DType::f32, {options_.positions(), config_.head_dim / 2});
}

DecoderBuilder::DecoderBuilder(const ModelConfig& config, const DecoderOptions& options, const Place& place)
    : config_(config),
      options_(options),
      own_graph_(ops::builtin()),
      graph_(place.graph),
      weights_(place.weights),
      nodes_(place.nodes),
      page_table_(graph_.find("page_table")),
      row_token_(place.token),
      row_request_(place.request),
      row_position_(place.position) {
  const auto table = [&](const char* name) {
    const std::string full = weights_ + name;
    return graph_.has(full) ? graph_.find(full)
                            : graph_.constant(full, DType::f32, {options_.positions(), config_.head_dim / 2});
  };
  rope_cos_ = table("rope.cos");
  rope_sin_ = table("rope.sin");
}

// A quantised matrix is what it was, and marked: what becomes of it is the target's business.
TensorId DecoderBuilder::weight(const std::string& of_model, std::vector<Dim> shape) {
  const std::string name = weights_ + of_model;
  if (graph_.has(name)) return graph_.find(name);
  const auto found = options_.weight_dtypes.find(name);
  const bool is_matrix = shape.size() == 2;
  const TensorId weight =
      graph_.constant(name, found == options_.weight_dtypes.end() ? config_.dtype : found->second, std::move(shape));
  if (options_.quant_columns > 0 && is_matrix) graph_.quantize(weight, options_.quant_columns);
  return weight;
}

TensorId DecoderBuilder::norm(int64_t layer, const std::string& node, TensorId x, const std::string& name) {
  return normalise(fmt::format("{}layer.{}.{}", nodes_, layer, node), x,
                   fmt::format("model.layers.{}.{}", layer, name));
}

TensorId DecoderBuilder::normalise(const std::string& node, TensorId x, const std::string& name) {
  return graph_.apply("rmsnorm", node, {x, weight(name, {config_.hidden_size})},
                      {.attributes = {{"eps", config_.rms_norm_eps}}});
}

TensorId DecoderBuilder::embed() {
  const TensorId table = weight("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
  return graph_.apply("embedding", nodes_ + "embed", {row_token_, table});
}

// The bias stands beside the weight in the checkpoint.
TensorId DecoderBuilder::add_bias(const std::string& node, TensorId x, const std::string& matrix, int64_t size) {
  const std::string bias = matrix.substr(0, matrix.rfind('.')) + ".bias";
  return graph_.apply("row_bias", node + "_bias", {x, weight(bias, {size})});
}

TensorId DecoderBuilder::project(const std::string& node, TensorId x, const std::string& matrix, int64_t rows,
                                 int64_t columns, bool has_bias) {
  const TensorId y = graph_.apply("linear", node, {x, weight(matrix, {rows, columns})});
  return has_bias ? add_bias(node, y, matrix, rows) : y;
}

TensorId DecoderBuilder::add(int64_t layer, const std::string& node, TensorId x, TensorId y) {
  return graph_.apply("add", fmt::format("{}layer.{}.{}", nodes_, layer, node), {x, y});
}

// One of q and k: projection, q/k norm where the architecture has it, rotation.
TensorId DecoderBuilder::heads(const std::string& name, TensorId x, const std::string& weight_name, int64_t num_heads,
                               const std::string& norm_name) {
  TensorId y = project(name, x, weight_name, num_heads * config_.head_dim, config_.hidden_size, config_.qkv_bias);
  if (config_.qk_norm)
    y = graph_.apply("head_norm", name + "_norm", {y, weight(norm_name, {config_.head_dim})},
                     {.attributes = {{"eps", config_.rms_norm_eps}}});
  return graph_.apply("rope", name + "_rope", {y, rope_cos_, rope_sin_, row_position_},
                      {.sizes = {{"M", config_.head_dim / 2}}});
}

TensorId DecoderBuilder::attention(int64_t layer, TensorId n) {
  const std::string at = fmt::format("{}layer.{}.", nodes_, layer), names = fmt::format("model.layers.{}.", layer);
  const std::string self = names + "self_attn.";
  const int64_t d = config_.head_dim, kv_heads = config_.num_kv_heads;
  const TensorId q = heads(at + "q", n, self + "q_proj.weight", config_.num_heads, self + "q_norm.weight");
  const TensorId k = heads(at + "k", n, self + "k_proj.weight", kv_heads, self + "k_norm.weight");
  const TensorId v = project(at + "v", n, self + "v_proj.weight", kv_heads * d, config_.hidden_size, config_.qkv_bias);

  const std::vector<Dim> cache_shape = {options_.num_pages(), options_.page_size, kv_heads, d};
  const auto cache = [&](const char* which) {
    const std::string name = fmt::format("{}layer.{}.{}", weights_, layer, which);
    return graph_.has(name)
               ? graph_.find(name)
               : graph_.state(name, *options_.kv_dtype, cache_shape, !options_.caches_in_rows, options_.shares_caches);
  };
  const TensorId k_cache = cache("k_cache"), v_cache = cache("v_cache");
  graph_.add("kv_append", at + "append", {k, v, page_table_, row_request_, row_position_, k_cache, v_cache});
  const TensorId y = graph_.apply(
      "attention", at + "attention", {q, k_cache, v_cache, page_table_, row_request_, row_position_},
      {.sizes = {{"S", options_.positions()}}, .attributes = {{"scale", 1 / std::sqrt(static_cast<double>(d))}}});
  return project(at + "o", y, self + "o_proj.weight", config_.hidden_size, config_.num_heads * d, config_.o_bias);
}

TensorId DecoderBuilder::mlp(int64_t layer, TensorId n) {
  const std::string at = fmt::format("{}layer.{}.", nodes_, layer), names = fmt::format("model.layers.{}.", layer);
  const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
  const bool bias = config_.mlp_bias;
  const TensorId gate = project(at + "gate", n, names + "mlp.gate_proj.weight", intermediate, hidden, bias),
                 up = project(at + "up", n, names + "mlp.up_proj.weight", intermediate, hidden, bias),
                 y = graph_.apply("silu_mul", at + "gate_up", {gate, up});
  return project(at + "down", y, names + "mlp.down_proj.weight", hidden, intermediate, bias);
}

// Attention, then the MLP, each behind its norm and added to the stream.
TensorId DecoderBuilder::layer(int64_t layer, TensorId x) {
  const Architecture* const architecture = architecture_of_name(config_.architecture);
  if (architecture && architecture->block) return architecture->block(*this, layer, x);
  x = add(layer, "o_sum", x, attention(layer, norm(layer, "norm", x, "input_layernorm.weight")));
  return add(layer, "down_sum", x, mlp(layer, norm(layer, "mlp_norm", x, "post_attention_layernorm.weight")));
}

TensorId DecoderBuilder::head(TensorId x, std::optional<TensorId> rows, std::optional<TensorId> logits) {
  if (rows) x = graph_.apply("gather_rows", nodes_ + "last_rows", {x, *rows});
  const TensorId matrix = weight(config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                                 {config_.vocab_size, config_.hidden_size});
  graph::NodeOptions options;
  if (logits) options.outputs["y"] = *logits;
  return graph_.apply("linear", nodes_ + "lm_head", {normalise(nodes_ + "final_norm", x, "model.norm.weight"), matrix},
                      options);
}

void DecoderBuilder::sample(TensorId x) {
  const int64_t num_requests = options_.max_requests, vocab = config_.vocab_size;
  const TensorId sample_row = graph_.find("sample_row"), sample_request = graph_.find("sample_request");
  const TensorId logits = graph_.state("logits", DType::f32, {graph_.tensor(sample_row).shape[0], vocab});
  head(x, sample_row, logits);
  const TensorId best = graph_.apply("argmax", "argmax", {logits});

  const TensorId requests = table("requests", batch::kRequestFields);
  const TensorId sampling_f32 = graph_.state("sampling_f32", DType::f32, {num_requests, batch::kSamplingFloats});
  const TensorId sampling_i32 = graph_.state("sampling_i32", DType::i32, {num_requests, batch::kSamplingInts});
  const TensorId history = table("history", options_.max_seq_len);
  const TensorId stop_tokens = graph_.state("stop_tokens", DType::i32, {options_.max_stop_tokens});
  const TensorId own_stops = graph_.state("own_stops", DType::i32, {num_requests, batch::kMaxOwnStops});
  const TensorId bias_tokens = graph_.state("bias_tokens", DType::i32, {num_requests, batch::kMaxBiases});
  const TensorId biases = graph_.state("biases", DType::f32, {num_requests, batch::kMaxBiases});
  const TensorId masks = graph_.state("masks", DType::i32, {num_requests, (vocab + 31) / 32});
  const TensorId mask_lengths = graph_.state("mask_lengths", DType::i32, {num_requests});
  const auto sampled = graph_.add("sampling", "sampling",
                                  {logits, best, sample_request, requests, history, sampling_f32, sampling_i32,
                                   stop_tokens, own_stops, bias_tokens, biases, masks, mask_lengths});
  const TensorId token = sampled[0], logprob = sampled[1], top_token = sampled[4], top_logprob = sampled[5];

  const TensorId mailbox =
      graph_.state("mailbox", DType::i32, {static_cast<int64_t>(sizeof(runtime::Mailbox) / sizeof(int32_t))});
  const TensorId stop = graph_.state("stop", DType::i32, {1});
  const int64_t free_rows =
      options_.target.starts_with("cuda") ? std::min(kFreeDraftRowsOnGpu, options_.draft_rows) : 0;
  graph_.add(
      "advance", "advance",
      {token, logprob, top_token, top_logprob, stop_tokens, own_stops, requests, history, graph_.find("counts"),
       row_token_, row_request_, row_position_, graph_.find("row_start"), sample_row, sample_request, mailbox, stop},
      {.attributes = {{"draft_tokens", static_cast<double>(options_.draft_tokens)},
                      {"draft_match", static_cast<double>(options_.draft_match)},
                      {"draft_rows", static_cast<double>(options_.draft_rows)},
                      {"draft_free_rows", static_cast<double>(free_rows)},
                      {"draft_model", options_.draft_model ? 1.0 : 0.0}}});
  graph_.set_gate("advance", stop);
}

// A line for each request.
TensorId DecoderBuilder::table(const std::string& name, int64_t columns) {
  return graph_.has(name) ? graph_.find(name) : graph_.state(name, DType::i32, {options_.max_requests, columns});
}

void DecoderBuilder::draft() {
  if (!options_.draft_model) return;
  table("requests", batch::kRequestFields);
  table("history", options_.max_seq_len);
  build_draft_model(graph_, *options_.draft_model, options_, config_.vocab_size);
}

Graph build_decoder(const ModelConfig& config, const DecoderOptions& options) {
  DecoderBuilder model(config, options.resolved(config));
  model.draft();
  TensorId x = model.embed();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) x = model.layer(layer, x);
  model.sample(x);
  return optimize::optimize(model.finish(), options.target);
}

}  // namespace megalith
