#include "megalith/engine/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <new>
#include <span>
#include <utility>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/engine/batch_block.h"
#include "megalith/engine/memory_report.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/engine/regimes.h"
#include "megalith/engine/request_check.h"
#include "megalith/engine/token_stream.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/machine/machine.h"
#include "megalith/model/draft_model.h"
#include "megalith/model/rope.h"
#include "megalith/model/weight_names.h"
#include "megalith/optimize/limits.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/topology.h"
#include "megalith/task/partition.h"
#include "megalith/task/verify_changes.h"

namespace megalith::engine {

namespace {

std::vector<int> find_stop_tokens(const std::string& folder, const ModelConfig& config, const EngineOptions& options) {
  std::vector<int> ids = config.eos_token_ids;
  if (!options.dummy_weights)
    for (int id : generation_config_read(folder).eos_token_ids) ids.push_back(id);
  // Files and tokenizers may name more tokens than the model has; it never makes them.
  const auto is_unknown = [&](int id) { return id < 0 || id >= config.vocab_size; };
  std::erase_if(ids, is_unknown);
  if (ids.empty() && options.end_token) ids.push_back(*options.end_token);
  ids.insert(ids.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  std::erase_if(ids, is_unknown);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool is_weight(const graph::Tensor& tensor) {
  return tensor.kind == graph::TensorKind::constant && !is_rope_table(tensor);
}
// Not a draft model's.
bool is_own_weight(const graph::Tensor& tensor) { return is_weight(tensor) && !tensor.name.starts_with(kDraftPrefix); }

// Before anything is compiled, read or allocated. A GPU's own check comes with its plan (make_cuda_machine).
void check_memory(const graph::Graph& graph, const DecoderOptions& options, bool made_up) {
  const std::string report =
      memory_report(host_memory_needs(graph, options, made_up), runtime::memory_available_bytes());
  if (!report.empty()) throw SystemError(fmt::format("[memory] {}", report));
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";

bool is_scale(const graph::Tensor& tensor) { return tensor.name.ends_with(graph::quant_scale_name("")); }

std::string trouble_text(const std::string& where) {
  return fmt::format(
      "the model's logits{} are NaN or infinite, so that what is made of them means nothing: its weights are "
      "damaged, or numbers outgrew their type",
      where);
}

}  // namespace

int default_num_workers() {
  if (option_is_set("MEGALITH_THREADS")) {
    const int64_t threads = option_integer("MEGALITH_THREADS");
    MEGALITH_CHECK(threads >= 1 && threads <= task::kMaxWorkers, "MEGALITH_THREADS is {}, want 1 to {}", threads,
                   task::kMaxWorkers);
    return static_cast<int>(threads);
  }
  return runtime::cpu_topology().num_usable();
}

int default_num_workers(const std::string& target) {
  if (!jit::is_cuda_target(target)) return default_num_workers();
  try {
    return jit::cuda_device().num_multiprocessors;
  } catch (const SystemError&) {
    if (target == "cuda") throw;
    return machine::gpu_of_target(target).multiprocessors;
  }
}

void check_requests(const std::string& folder, const EngineOptions& options, const std::vector<Request>& requests) {
  const ModelConfig config = config_read(folder);
  DecoderOptions decoder = options.decoder;
  // An Engine looks at its tokens, too.
  if (!options.draft_model.empty())
    decoder.draft_model = std::make_shared<const ModelConfig>(config_read(options.draft_model));
  decoder.target = jit::target_with_architecture(options.target);
  decoder = decoder.resolved(config);
  decoder.check_holds_all_requests();
  check_batch(requests, config, decoder, find_stop_tokens(folder, config, options), options.dummy_weights);
}

Engine::Engine(const std::string& folder, const EngineOptions& options) try
    : dummy_weights_(options.dummy_weights),
      config_(config_read(folder)),
      stop_tokens_(find_stop_tokens(folder, config_, options)),
      num_workers_(options.num_workers > 0 ? options.num_workers : default_num_workers(options.target)) {
  decoder_options_ = options.decoder;
  decoder_options_.target = jit::target_with_architecture(options.target);  // what is fused depends on it
  if (!options.draft_model.empty()) decoder_options_.draft_model = read_draft_model(options.draft_model, folder);
  if (!options.dummy_weights) {
    weights_ = open_weights(folder, config_);
    decoder_options_.weight_dtypes = weight_dtypes(*weights_, config_.dtype);
    if (!options.draft_model.empty()) open_draft_weights(options.draft_model);
  }
  decoder_options_ = decoder_options_.resolved(config_);
  decoder_options_.check_holds_all_requests();
  if (chooses_regimes(options)) prompt_regimes_ = shared_prompt_regimes(config_, decoder_options_);
  if (const std::vector<WantedRegime> others = wanted_regimes(options, 0); !others.empty()) {
    decoder_options_.shares_caches = true;
    decoder_options_.caches_in_rows = want_caches_in_rows(config_, decoder_options_, others);
  }
  if (const auto& rounded = decoder_options_.rounded_weights; !rounded.empty())
    log_warn(
        "{} norms and biases of {} (\"{}\" is {}) are rounded to {} for the GPU, as the rest of the model is; --target "
        "cpu "
        "takes them as they are",
        rounded.size(), folder, rounded.begin()->first, dtype_name(rounded.begin()->second), dtype_name(config_.dtype));
  regimes_.push_back(std::make_unique<Regime>(
      Regime{decoder_options_, std::make_shared<const graph::Graph>(build_decoder(config_, decoder_options_))}));
  base_regime_ = regimes_[0].get();
  if (!jit::is_cuda_target(options.target)) check_memory(graph(), decoder_options_, dummy_weights_);
  // While kernels are compiled.
  std::future<std::shared_ptr<const void>> gpu;
  if (jit::is_cuda_target(options.target)) gpu = std::async(std::launch::async, hold_gpu);
  std::future<void> made_up;
  if (weights_)
    memory_.bind_weights(graph(), *weights_);
  else
    made_up = std::async(std::launch::async, [&, &graph = graph()] { memory_.bind_random(graph, options.dummy_seed); });
  compile(options);
  if (made_up.valid()) made_up.get();
  fit_rope(0);
  memory_.bind_states(*regimes_.back()->graph, !jit::is_cuda_target(options.target));

  MEGALITH_CHECK(static_cast<int64_t>(stop_tokens_.size()) <= decoder_options_.max_stop_tokens,
                 "the model has {} stop tokens, at most {} are supported", stop_tokens_.size(),
                 decoder_options_.max_stop_tokens);
  machine_ = make_machine();
  if (weights_) weights_->check_files();
} catch (const std::bad_alloc&) { runtime::throw_out_of_memory(fmt::format("loading {}", folder)); }

std::vector<int64_t> Engine::regimes() const {
  std::vector<int64_t> rows;
  for (const auto& regime : regimes_) rows.push_back(regime->options.max_rows);
  return rows;
}

// Where tokens come a few at a time, and many at a time stream as they do: on a GPU.
bool Engine::chooses_regimes(const EngineOptions& options) const {
  return jit::is_cuda_target(options.target) && options.decoder.max_rows == 0 &&
         decoder_options_.max_rows <= optimize::kMaxNarrowRows;
}

std::vector<WantedRegime> Engine::wanted_regimes(const EngineOptions& options, int64_t weight_bytes) const {
  const int64_t base = decoder_options_.max_rows;
  const bool chooses = chooses_regimes(options);
  std::vector<WantedRegime> wanted;
  const auto whole = [&](int64_t rows) { return optimize::whole_rows(decoder_options_.target, rows); };
  if (options.regimes) {
    for (const int64_t rows : *options.regimes) {
      MEGALITH_CHECK(
          rows >= 1 && whole(rows) < base,
          "--regimes has a kernel of {} tokens at a time, want 1 to {}: fewer than the {} of the one that holds "
          "every sequence (-b, or --max-batch)",
          whole(rows), base - 1, base);
      for (const WantedRegime& other : wanted)
        MEGALITH_CHECK(other.rows != whole(rows), "--regimes has two kernels of {} tokens at a time, want each once",
                       whole(rows));
      wanted.push_back({whole(rows), "--regimes"});
    }
  } else if (chooses) {
    const int64_t step_rows = std::max(decoder_options_.max_requests, decoder_options_.draft_rows);
    for (const int64_t rows : smaller_regimes(base, step_rows, weight_bytes)) wanted.push_back({rows, nullptr});
  }
  if (options.prompt_rows && *options.prompt_rows != 0) {
    MEGALITH_CHECK(
        *options.prompt_rows > base,
        "--prompt-rows is {}, want more than the {} tokens that the other kernel works on at a time (-b), or 0",
        *options.prompt_rows, base);
    wanted.push_back({*options.prompt_rows, "--prompt-rows"});
  } else if (!options.prompt_rows && chooses) {
    const int64_t most_tokens = decoder_options_.max_requests * decoder_options_.max_seq_len;
    int64_t held = base;  // of as many the next one would never be chosen
    for (const int64_t rows : prompt_regimes_) {
      if (held >= most_tokens || !suits_prompts(rows, weight_bytes)) break;
      wanted.push_back({rows, nullptr});
      held = rows;
    }
  }
  return wanted;
}

void Engine::compile(const EngineOptions& options) {
  // So long that one that finds its kernels in the cache has all of them.
  constexpr std::chrono::milliseconds kPatience(500);
  const auto source = std::make_shared<const RegimeSource>(
      RegimeSource{config_, decoder_options_, base_regime_->graph, options.target, num_workers_});
  const std::vector<WantedRegime> wanted = wanted_regimes(options, weight_bytes());
  auto others = std::make_unique<RegimeBuild>(source, wanted, options.starts_early);
  // Taking in its successor stops the model, which taking in others does in any case. No quick kernel for more tokens
  // has run on a GPU.
  constexpr int64_t kMostQuickRows = 128;
  const bool is_hasty = options.starts_early && !wanted.empty() && decoder_options_.max_rows <= kMostQuickRows;
  regimes_[base_]->kernel =
      jit::compile(graph(), {.target = options.target,
                             .num_workers = num_workers_,
                             .effort = is_hasty ? codegen::Effort::quick : codegen::Effort::chosen,
                             .pipeline = options.pipeline});
  const bool is_quick = regimes_[base_]->kernel.is_quick;
  if (is_quick) others->add_base();
  others->check();
  if (options.starts_early && (is_quick || !others->is_ready(kPatience))) {
    log_info("[engine] {} tokens at a time{}, until kernels for {} are compiled", decoder_options_.max_rows,
             is_quick ? ", by a kernel that was compiled quickly" : "", fmt::join(others->rows(), ", "));
    late_ = std::move(others);
  } else {
    add_regimes(others->take());
  }
}

void Engine::add_regimes(std::vector<Regime> others) {
  for (Regime& other : others)
    if (other.graph == base_regime_->graph)
      regimes_[base_]->kernel = std::move(other.kernel);
    else
      regimes_.push_back(std::make_unique<Regime>(std::move(other)));
  const auto rows = [](const std::unique_ptr<Regime>& regime) { return regime->options.max_rows; };
  std::ranges::sort(regimes_, {}, rows);
  base_ = static_cast<size_t>(std::ranges::find(regimes_, decoder_options_.max_rows, rows) - regimes_.begin());
  if (jit::is_cuda_target(decoder_options_.target)) fit_regimes();
  check_changes();
  log_info("[engine] tokens at a time: {}", fmt::join(regimes(), ", "));
}

void Engine::take_in_late_regimes(std::mutex& mutex) {
  const std::unique_ptr<RegimeBuild> late = std::move(late_);
  const auto exchange = [&](std::unique_ptr<RegimeMachine> machine) {
    const std::lock_guard lock(mutex);
    machine_.swap(machine);
    return machine;
  };
  const bool is_gpu = jit::is_cuda_target(decoder_options_.target);
  std::shared_ptr<const void> gpu;  // from one machine to the next
  try {
    std::vector<Regime> others = late->take([&](int64_t rows, const std::exception& error) {
      log_warn("[engine] no {}kernel for {} tokens at a time: {}", rows == decoder_options_.max_rows ? "better " : "",
               rows, error.what());
    });
    if (others.empty()) return;
    if (is_gpu) gpu = hold_gpu();
    exchange(nullptr).reset();  // whose memory they need
    add_regimes(std::move(others));
    memory_.bind_states(*regimes_.back()->graph, !is_gpu);
    exchange(make_machine());
    return;
  } catch (const std::exception& error) {
    log_warn(
        "[engine] the kernels beside that of {} tokens at a time cannot be taken in, so that one goes on alone: {}",
        decoder_options_.max_rows, error.what());
  }
  if (machine_) return;
  std::erase_if(regimes_, [&](const auto& regime) { return regime->options.max_rows != decoder_options_.max_rows; });
  base_ = 0;
  exchange(make_machine());
}

void Engine::fit_regimes() {
  while (regimes_.size() > 1) {
    std::vector<const jit::CompiledKernel*> kernels;
    std::vector<bool> named;
    for (const auto& regime : regimes_) {
      kernels.push_back(&regime->kernel);
      named.push_back(regime->is_named);
    }
    const std::string report = cuda_memory_report(*regimes_.back()->graph, regimes_.back()->options, kernels);
    if (report.empty()) return;
    const std::optional<size_t> least = regime_to_leave_out(regimes(), named, base_);
    MEGALITH_CHECK(least, "[cuda] with kernels for {} tokens at a time (--regimes, --prompt-rows) {}",
                   fmt::join(regimes(), ", "), report);
    log_info("[engine] no kernel for {} tokens at a time: with it {}", regimes_[*least]->options.max_rows, report);
    regimes_.erase(regimes_.begin() + static_cast<ptrdiff_t>(*least));
    base_ -= *least < base_;
  }
}

void Engine::check_changes() const {
  if (regimes_.size() == 1) return;
  const Regimes loads(regimes());
  std::vector<task::Turn> turns;
  for (size_t i = 0; i < regimes_.size(); ++i) {
    const LoadRange range = loads.range(i);
    turns.push_back(
        {&regimes_[i]->kernel.tasks, regimes_[i]->kernel.schedule.layouts, loads.rows(i), range.least, range.most});
  }
  const task::VerifyResult result = task::verify_changes(turns, change_tables());
  MEGALITH_CHECK(result.ok(), "[engine] the kernels cannot take turns: {}; --regimes 0 --prompt-rows 0 has one alone",
                 result.findings.front().message);
}

std::unique_ptr<RegimeMachine> Engine::make_machine() {
  std::vector<std::unique_ptr<Machine>> machines(regimes_.size());
  if (jit::is_cuda_target(decoder_options_.target)) {
    std::vector<CudaMachineParts> parts;
    for (const auto& regime : regimes_) parts.push_back({*regime->graph, regime->options, regime->kernel});
    machines = make_cuda_machines(parts, memory_);
  } else {
    for (size_t i = machines.size(); i-- > 0;)
      machines[i] = make_cpu_machine(*regimes_[i]->graph, regimes_[i]->kernel, memory_, i == 0 && !has_late_regimes());
  }
  std::vector<RegimeMachine::Kernel> kernels;
  for (size_t i = 0; i < machines.size(); ++i)
    kernels.push_back({regimes_[i]->options.max_rows, std::move(machines[i])});
  return std::make_unique<RegimeMachine>(std::move(kernels), base_, *regimes_.back()->graph, memory_);
}

int64_t Engine::prompt_passes(int64_t tokens) const {
  return ceil_div(tokens, regimes_[is_profiled_ ? base_ : regimes_.size() - 1]->options.max_rows);
}

// A CPU reads some weights where they are mapped; a GPU has its copy.
void Engine::check_weights() const {
  if (weights_ && !jit::is_cuda_target(decoder_options_.target)) weights_->check_files();
}

void Engine::check(const std::vector<Request>& requests) const {
  check_batch(requests, config_, decoder_options_, stop_tokens_, dummy_weights_);
}

std::vector<std::string> Engine::fill_block(const std::vector<Request>& requests) {
  batch_block_fill_requests(*regimes_.back()->graph, decoder_options_, stop_tokens_, requests, memory_);
  std::vector<std::string> changed = batch_block_changes(requests);
  for (const Request& request : requests)
    if (request.cached_tokens > 0)
      for (std::string& state : make_up_cache()) changed.push_back(std::move(state));
  // Of a batch the longest prompt counts, as in transformers.
  size_t longest = 0;
  for (const Request& request : requests) longest = std::max(longest, request.prompt.size());
  for (std::string& table : fit_rope(static_cast<int64_t>(longest))) changed.push_back(std::move(table));
  return changed;
}

// Tables stay as they are while requests come, so they are those for the longest, as in vLLM.
std::vector<std::string> Engine::clear_block() {
  batch_block_clear(*regimes_.back()->graph, decoder_options_, stop_tokens_, memory_);
  std::vector<std::string> changed = batch_block_tensors();
  for (std::string& table : fit_rope(decoder_options_.max_seq_len)) changed.push_back(std::move(table));
  return changed;
}

Generation Engine::generate(const std::vector<Request>& requests,
                            const std::function<void(const TokenEvent&)>& on_token) {
  TokenStream stream(*this, requests);
  stream.start();
  while (const std::optional<TokenEvent> event = stream.next())
    if (on_token) on_token(*event);
  return stream.finish();
}

std::string Engine::logits_trouble() const {
  const std::span row(logits(), static_cast<size_t>(config_.vocab_size));
  return std::ranges::all_of(row, [](float logit) { return std::isfinite(logit); }) ? "" : trouble_text("");
}

std::string Engine::logits_trouble(const Generation& generation) const {
  const bool is_batch = generation.unsound_from.size() > 1;
  std::vector<std::string> places;
  for (size_t r = 0; r < generation.unsound_from.size(); ++r)
    if (const std::optional<size_t> first = generation.unsound_from[r])
      places.push_back(
          fmt::format("{}from token {} on", is_batch ? fmt::format("of sequence {} ", r + 1) : "", *first + 1));
  return places.empty() ? logits_trouble() : trouble_text(fmt::format(" {}", fmt::join(places, ", ")));
}

// Its weights get names of their own, and are this engine's then.
void Engine::open_draft_weights(const std::string& folder) {
  ModelConfig config = *decoder_options_.draft_model;
  Weights weights = open_weights(folder, config);
  weights.rename([](const std::string& name) { return kDraftPrefix + name; });
  decoder_options_.weight_dtypes.merge(weight_dtypes(weights, config.dtype));
  decoder_options_.draft_model = std::make_shared<const ModelConfig>(std::move(config));
  weights_->join(std::move(weights));
}

std::vector<std::string> Engine::fit_rope(int64_t longest) {
  std::vector<std::string> changed;
  const auto fit = [&](const ModelConfig& config, int64_t& filled_for, const std::string& prefix) {
    const int64_t prompt = rope_prompt(config, longest);
    const bool is_filled = memory_.addresses().contains(prefix + "rope.cos");
    if (prompt == std::exchange(filled_for, prompt) && is_filled) return;
    memory_.bind_rope(graph(), config, decoder_options_.max_seq_len, prompt, prefix);
    changed.insert(changed.end(), {prefix + "rope.cos", prefix + "rope.sin"});
  };
  fit(config_, rope_prompt_, "");
  if (decoder_options_.draft_model) fit(*decoder_options_.draft_model, draft_rope_prompt_, kDraftPrefix);
  return changed;
}

std::vector<std::string> Engine::make_up_cache() {
  std::vector<std::string> changed;
  if (std::exchange(cache_made_up_, true)) return changed;
  uint64_t own = 0, of_draft = 0;  // so a draft model that is the model itself has its cache, too
  for (const graph::Tensor& tensor : graph().tensors()) {
    if (!is_kv_cache(tensor)) continue;
    memory_.fill_state(graph(), tensor.name, tensor.name.starts_with(kDraftPrefix) ? of_draft++ : own++);
    changed.push_back(tensor.name);
  }
  return changed;
}

void Engine::cancel() noexcept {
  if (machine_) machine_->cancel();
}

int64_t Engine::weight_bytes_per_token() const {
  int64_t bytes = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (is_own_weight(tensor) && (!tensor.name.starts_with(kEmbedding) || config_.tie_word_embeddings))
      bytes += tensor.streamed_bytes();
  return bytes;
}

int64_t Engine::head_bytes() const {
  const std::string name = config_.tie_word_embeddings ? kEmbedding : "lm_head.weight";
  int64_t bytes = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (tensor.name == name || tensor.name == graph::quant_scale_name(name)) bytes += tensor.streamed_bytes();
  return bytes;
}

int64_t Engine::weights_per_token() const {
  int64_t count = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (is_own_weight(tensor) && !tensor.name.ends_with(graph::quant_scale_name("")) &&
        (!tensor.name.starts_with(kEmbedding) || config_.tie_word_embeddings))
      count += tensor.num_elements();
  return count;
}

int64_t Engine::head_weights() const { return config_.vocab_size * config_.hidden_size; }

int64_t Engine::weight_bytes() const {
  int64_t bytes = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (is_weight(tensor)) bytes += tensor.streamed_bytes();
  return bytes;
}

int64_t Engine::num_parameters() const {
  int64_t count = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (is_own_weight(tensor) && !is_scale(tensor)) count += tensor.num_elements();
  return count;
}

int64_t Engine::kv_bytes() const {
  int64_t bytes = 0;
  for (const graph::Tensor& tensor : graph().tensors())
    if (is_kv_cache(tensor)) bytes += tensor.bytes();
  return bytes;
}

}  // namespace megalith::engine
