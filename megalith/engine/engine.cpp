#include "megalith/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/options.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {

namespace {

// Records that the mailbox holds: so many tokens may be made while the host is not looking.
constexpr uint32_t kMailboxCapacity = 4096;
constexpr uint64_t kMailboxTimeoutNanoseconds = 50'000'000;

std::vector<int> find_stop_tokens(const std::string& folder, const ModelConfig& config, bool dummy) {
  std::vector<int> ids = config.eos_token_ids;
  if (!dummy)
    for (int id : generation_config_read(folder).eos_token_ids) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::map<std::string, DType> weight_dtypes(const Weights& weights, DType usual) {
  std::map<std::string, DType> result;
  for (const std::string& name : weights.names()) {
    const WeightTensor* tensor = weights.find(name);
    if (tensor && tensor->dtype != usual) result[name] = tensor->dtype;
  }
  return result;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int default_num_workers() {
  if (option_is_set("MEGALITH_THREADS")) {
    const int64_t threads = option_integer("MEGALITH_THREADS");
    MEGALITH_CHECK(threads >= 1 && threads <= 1024, "MEGALITH_THREADS is {}, want 1 to 1024", threads);
    return static_cast<int>(threads);
  }
  return runtime::cpu_topology().num_usable();
}

Engine::Engine(const std::string& folder, const EngineOptions& options)
    : config_(config_read(folder)),
      stop_tokens_(find_stop_tokens(folder, config_, options.dummy_weights)),
      decoder_options_(options.decoder.resolved(config_)),
      num_workers_(options.num_workers > 0 ? options.num_workers : default_num_workers()) {
  if (!options.dummy_weights) {
    weights_ = Weights::open(folder);
    decoder_options_.weight_dtypes = weight_dtypes(*weights_, config_.dtype);
  }
  graph_ = std::make_unique<graph::Graph>(build_decoder(config_, decoder_options_));
  if (weights_)
    memory_.bind_weights(*graph_, *weights_);
  else
    memory_.bind_random(*graph_, options.dummy_seed);
  memory_.bind_rope(*graph_, config_);
  kernel_ =
      jit::compile(*graph_, {.target = options.target, .num_workers = num_workers_, .pipeline = options.pipeline});
  memory_.bind_states(*graph_);

  MEGALITH_CHECK(static_cast<int64_t>(stop_tokens_.size()) <= decoder_options_.max_stop_tokens,
                 "the model has {} stop tokens, at most {} are supported", stop_tokens_.size(),
                 decoder_options_.max_stop_tokens);
  mail_.resize(kMailboxCapacity);
  program_ = std::make_unique<runtime::Program>(*graph_, kernel_, memory_.addresses());
  launcher_ =
      std::make_unique<runtime::Launcher>(program_->entry(), program_->image(),
                                          runtime::LaunchOptions{.mailbox = memory_.get<runtime::Mailbox>("mailbox")});
}

void Engine::check(const std::vector<Request>& requests) const {
  MEGALITH_CHECK(!requests.empty(), "there is no prompt to go on from");
  MEGALITH_CHECK(static_cast<int64_t>(requests.size()) <= decoder_options_.max_requests,
                 "{} prompts in one batch, but the kernel was compiled for {} (--max-batch)", requests.size(),
                 decoder_options_.max_requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto length = static_cast<int64_t>(request.prompt.size());
    MEGALITH_CHECK(length > 0, "prompt {} is empty: give at least one token", r);
    MEGALITH_CHECK(length < decoder_options_.max_seq_len,
                   "prompt {} has {} tokens, but a text may have {} (--max-seq-len) and needs room for one more", r,
                   length, decoder_options_.max_seq_len);
    MEGALITH_CHECK(request.max_new_tokens >= 1, "request {} asks for {} new tokens, want at least 1", r,
                   request.max_new_tokens);
    for (int token : request.prompt)
      MEGALITH_CHECK(token >= 0 && token < config_.vocab_size,
                     "prompt {} contains the token {}, but the vocabulary has {} tokens", r, token, config_.vocab_size);
    const Sampling& s = request.sampling;
    MEGALITH_CHECK(s.temperature >= 0 && s.temperature < 100, "the temperature is {}, want 0 to 100", s.temperature);
    MEGALITH_CHECK(s.top_p > 0 && s.top_p <= 1, "top-p is {}, want more than 0 and at most 1", s.top_p);
    MEGALITH_CHECK(s.top_k >= 0, "top-k is {}, want 0 (all) or more", s.top_k);
  }
}

void Engine::fill_batch_block(const std::vector<Request>& requests) {
  const int64_t max_requests = decoder_options_.max_requests, max_seq_len = decoder_options_.max_seq_len;
  const int64_t pages = decoder_options_.pages_per_request();
  for (const char* name : {"counts", "row_token", "row_request", "row_position", "sample_row", "sample_request",
                           "requests", "sampling_f32", "sampling_i32", "history", "stop"})
    std::memset(memory_.get<void>(name), 0, static_cast<size_t>(graph_->tensor(graph_->find(name)).bytes()));

  for (int64_t e = 0; e < decoder_options_.max_stop_tokens; ++e)
    memory_.get<int32_t>("stop_tokens")[e] =
        e < static_cast<int64_t>(stop_tokens_.size()) ? stop_tokens_[static_cast<size_t>(e)] : -1;
  for (int64_t page = 0; page < max_requests * pages; ++page)
    memory_.get<int32_t>("page_table")[page] = static_cast<int32_t>(page);

  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto length = static_cast<int64_t>(request.prompt.size());
    int32_t* fields = memory_.get<int32_t>("requests") + r * batch::kRequestFields;
    fields[batch::kState] = batch::kActive;
    fields[batch::kLength] = static_cast<int32_t>(length);
    fields[batch::kLimit] = static_cast<int32_t>(std::min(length + request.max_new_tokens, max_seq_len));
    fields[batch::kIgnoreStop] = request.ignore_stop_tokens;
    std::copy(request.prompt.begin(), request.prompt.end(),
              memory_.get<int32_t>("history") + static_cast<int64_t>(r) * max_seq_len);
    float* f32s = memory_.get<float>("sampling_f32") + r * batch::kSamplingFloats;
    f32s[batch::kTemperature] = request.sampling.temperature;
    f32s[batch::kTopP] = request.sampling.top_p;
    int32_t* i32s = memory_.get<int32_t>("sampling_i32") + r * batch::kSamplingInts;
    i32s[batch::kTopK] = request.sampling.top_k;
    i32s[batch::kSeedLow] = static_cast<int32_t>(request.sampling.seed);
    i32s[batch::kSeedHigh] = static_cast<int32_t>(request.sampling.seed >> 32);
  }
}

Generation Engine::generate(const std::vector<Request>& requests,
                            const std::function<void(const TokenEvent&)>& on_token) {
  check(requests);
  fill_batch_block(requests);
  auto* mailbox = memory_.get<runtime::Mailbox>("mailbox");
  runtime::mailbox_init(mailbox, mail_.data(), kMailboxCapacity);

  Generation result;
  result.tokens.resize(requests.size());
  result.reasons.resize(requests.size(), batch::kNotFinished);
  const auto start = std::chrono::steady_clock::now();
  auto take_in = [&](const runtime::MailRecord& record) {
    TokenEvent event{static_cast<int>(record.request), record.token, false, batch::kNotFinished};
    if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::finished) {
      event.finished = true;
      event.reason = result.reasons[record.request] = static_cast<batch::FinishReason>(record.reason);
    } else {
      if (result.first_token_ms == 0) result.first_token_ms = milliseconds_since(start);
      result.tokens[record.request].push_back(record.token);
    }
    if (on_token) on_token(event);
  };

  launcher_->start();
  try {
    runtime::MailRecord record;
    while (!launcher_->finished())
      if (runtime::mailbox_take(mailbox, &record, kMailboxTimeoutNanoseconds)) take_in(record);
    while (runtime::mailbox_take(mailbox, &record, 0)) take_in(record);
  } catch (...) {  // on_token threw: the kernel must not run on without a reader
    launcher_->cancel();
    launcher_->wait();
    throw;
  }
  result.cancelled = launcher_->wait() == runtime::RunEnd::cancelled;
  result.total_ms = milliseconds_since(start);
  return result;
}

void Engine::cancel() noexcept {
  if (launcher_) launcher_->cancel();
}

int64_t Engine::weight_bytes_per_token() const {
  int64_t bytes = 0;
  for (const graph::Tensor& tensor : graph_->tensors()) {
    const bool table = tensor.name == "rope.cos" || tensor.name == "rope.sin" ||
                       (tensor.name == "model.embed_tokens.weight" && !config_.tie_word_embeddings);
    if (tensor.kind == graph::TensorKind::constant && !table) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace megalith::engine
