// The engine: a model folder in, tokens out. Puts the parts together in order: configuration, graph, compilation,
// memory, launch; and turns requests into the batch block and the mailbox's records into calls.
//
//   engine::Engine engine("models/storyteller", {});
//   engine.generate({{.prompt = tokens}}, [](const engine::TokenEvent& event) { ... });
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megalith/base/turn.h"
#include "megalith/engine/batch_block.h"
#include "megalith/engine/machine.h"
#include "megalith/engine/memory_map.h"
#include "megalith/engine/regime_build.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"
#include "megalith/model/safetensors.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/program.h"

namespace megalith::engine {

struct EngineOptions {
  DecoderOptions decoder;
  std::string draft_model = {};  // folder of a small model of the same tokenizer, which makes drafts; "": none
  std::string target = "cpu";    // or cuda
  int num_workers = 0;           // 0: default_num_workers()
  bool dummy_weights = false;    // random weights; only config.json is needed
  uint64_t dummy_seed = 0;
  std::vector<int> stop_tokens = {};  // end a text, beside those that the model's files name
  // Beside the kernel of decoder.max_rows, which holds every sequence, there may be others of the same model, its regimes,
  // for other numbers of tokens at a time; the one that the load asks for works (engine/regimes.h). Their sums have
  // another order. Nothing: chosen.
  std::optional<std::vector<int64_t>> regimes = {};  // those of fewer tokens; empty: none
  std::optional<int64_t> prompt_rows = {};           // one of more, for prompts; 0: none
  // Ready when the kernel that holds every sequence is compiled, if the others take longer, and that one quickly
  // (codegen::Effort): an AsyncEngine takes those in when they are there, and that one as it is chosen. Which of them works
  // on a token then depends on when it comes.
  bool starts_early = false;
  std::optional<int> end_token = {};  // ends one if neither config.json nor generation_config.json names an end
  jit::PipelineOptions pipeline = jit::PipelineOptions::from_environment();
};

struct TokenEvent {
  int request = 0;
  int token = 0;
  bool finished = false;  // the last event of the request; `token` was already reported
  batch::FinishReason reason = batch::kNotFinished;
  float logprob = 0;               // of `token`, by the model's own logits, if the request asked for it
  std::vector<TopToken> top = {};  // in the place of `token`, likewise
};

struct Generation {
  std::vector<std::vector<int>> tokens;  // new ones, per request
  std::vector<batch::FinishReason> reasons;
  bool cancelled = false;
  std::vector<std::vector<float>> logprobs;                 // likewise, of requests that asked for them
  std::vector<std::vector<std::vector<TopToken>>> top;      // likewise
  std::vector<std::vector<PromptLogprob>> prompt_logprobs;  // likewise, of each token of the prompt but the first
  std::vector<std::vector<double>> token_ms;        // per request and token, from the launch until the kernel posted it
  double first_token_ms = 0;                        // from the launch to the first token of any request
  double last_token_ms = 0;                         // from the launch to the last token
  std::vector<std::optional<size_t>> unsound_from;  // per request the first token made of NaN or infinite logits
  std::vector<int64_t> regimes;        // tokens at a time of the kernels that worked on it, one behind the other
  uint64_t drafted = 0, accepted = 0;  // drafts that were worked on, and those that were right
  uint64_t draft_steps = 0;            // steps of a sequence that had some
};

/// Workers to use when nobody says: MEGALITH_THREADS, or every core that this process may use.
int default_num_workers();
/// Of any target: on a GPU one worker for each of its multiprocessors, or of an H200's if there is no GPU here.
int default_num_workers(const std::string& target);

/// What an Engine of these would refuse of `requests`, but before a model is compiled and read for them: UserError as
/// from generate().
void check_requests(const std::string& folder, const EngineOptions& options, const std::vector<Request>& requests);

class Engine {
 public:
  Engine(const std::string& folder, const EngineOptions& options);

  /// Runs all requests as one batch until each has ended. `on_token` is called on this thread as tokens are made; what it
  /// throws ends the run. Threads that call at once take turns. UserError for an empty or too long prompt, a token outside
  /// the vocabulary, more requests than max_requests; SystemError if the checkpoint's files have become shorter meanwhile.
  Generation generate(const std::vector<Request>& requests,
                      const std::function<void(const TokenEvent&)>& on_token = {});
  /// Ends a generate() in progress within 100 ms plus the longest task. From any thread, and from a signal handler.
  void cancel() noexcept;

  /// Those that end a text, by their ids.
  const std::vector<int>& stop_tokens() const { return stop_tokens_; }

  /// Makes the next calls of generate() record when each task ran, for their newest `iterations` at least; 0: no
  /// longer. One kernel does all of what is recorded. UserError where the target cannot.
  void profile(uint32_t iterations) {
    machine_->profile(iterations);
    is_profiled_ = iterations > 0;
  }
  /// The records of the last generate().
  runtime::Profile profile_take() { return machine_->profile_take(); }

  /// Logits of the rows sampled in the last iteration, [samples, V] in the order of requests.
  const float* logits() const { return memory_.get<float>("logits"); }
  /// That some of the first row's logits are NaN or infinite, so that what is made of them means nothing; or "".
  std::string logits_trouble() const;
  /// The same of all that was generated just now, naming the texts and where it began in them, also in those that ended
  /// early. If no text's whole rows are wrong, the last iteration's first row is looked at for what a damaged head does.
  std::string logits_trouble(const Generation& generation) const;

  const ModelConfig& config() const { return config_; }
  const DecoderOptions& decoder_options() const { return decoder_options_; }
  /// Those of the kernel of decoder_options().max_rows tokens at a time, which holds every sequence. Of one that started early,
  /// the kernel not while an AsyncEngine has it.
  const graph::Graph& graph() const { return *base_regime_->graph; }
  const jit::CompiledKernel& kernel() const { return base_regime_->kernel; }
  /// Tokens at a time of each kernel, ascending.
  std::vector<int64_t> regimes() const;
  /// Tokens at a time of the kernel for prompts; 0: there is none.
  int64_t prompt_rows() const { return base_ + 1 < regimes_.size() ? regimes_.back()->options.max_rows : 0; }
  /// Passes over the weights that `tokens` tokens of prompts take.
  int64_t prompt_passes(int64_t tokens) const;
  /// Of one that started early: whether there are other kernels to come. Not while an AsyncEngine has it.
  bool has_late_regimes() const { return late_ != nullptr; }
  const MemoryMap& memory() const { return memory_; }
  int num_workers() const { return num_workers_; }
  /// Bytes of weights that one decode step reads.
  int64_t weight_bytes_per_token() const;
  /// Of them, those of the output projection, which only rows that are sampled need.
  int64_t head_bytes() const;
  /// The same in numbers instead of bytes.
  int64_t weights_per_token() const;
  int64_t head_weights() const;
  /// Bytes of all weights, and how many numbers they are.
  int64_t weight_bytes() const;
  int64_t num_parameters() const;
  /// Of them, those that were packed: they lie in memory of their own instead of in the checkpoint's mapped files.
  int64_t packed_bytes() const { return machine_->weights_held(); }
  /// Bytes of the KV cache, all pages.
  int64_t kv_bytes() const;

 private:
  friend class TokenStream;  // one run of the machine
  friend class AsyncEngine;  // one that takes requests as they come

  bool chooses_regimes(const EngineOptions& options) const;
  std::vector<WantedRegime> wanted_regimes(const EngineOptions& options, int64_t weight_bytes) const;
  /// Compiles the kernel, and beside it others that are wanted and can share this one's memory.
  void compile(const EngineOptions& options);
  void add_regimes(std::vector<Regime> others);
  /// Leaves out chosen ones for which the GPU has no memory.
  void fit_regimes();
  /// UserError if one of the kernels could not go on where another ends.
  void check_changes() const;
  std::unique_ptr<RegimeMachine> make_machine();

  /// Of one that started early: whether its other kernels are there.
  bool are_late_regimes_ready() const { return late_ != nullptr && late_->is_ready(); }
  /// Takes them in: between two runs, with the turn. `mutex`: held while the machine is exchanged, for those that cancel() it. If
  /// they cannot be had, says why and stays as it is.
  void take_in_late_regimes(std::mutex& mutex);

  void check(const std::vector<Request>& requests) const;
  /// Readies the batch block for a run. The states that changed.
  std::vector<std::string> fill_block(const std::vector<Request>& requests);
  /// The same for one in which requests of any length may come.
  std::vector<std::string> clear_block();
  /// SystemError if a file that weights are read from has become shorter.
  void check_weights() const;
  /// Those of the draft model in `folder` beside the weights that are open.
  void open_draft_weights(const std::string& folder);
  /// Fills the tables of RoPE again if prompts of up to `longest` tokens want others. The tensors that changed.
  std::vector<std::string> fit_rope(int64_t longest);
  /// Makes up a past for requests that begin with cached tokens: memory that was never written costs nothing to read.
  /// The states that changed, which are none the second time.
  std::vector<std::string> make_up_cache();

  bool dummy_weights_;
  ModelConfig config_;
  std::vector<int> stop_tokens_;
  DecoderOptions decoder_options_;
  int num_workers_;
  std::vector<int64_t> prompt_regimes_;  // rows of chosen kernels for prompts
  std::optional<Weights> weights_;
  std::vector<std::unique_ptr<Regime>> regimes_;  // by max_rows, ascending
  size_t base_ = 0;                               // the one that holds every sequence
  const Regime* base_regime_ = nullptr;           // the same, also while others are taken in
  std::unique_ptr<RegimeBuild> late_;
  bool is_profiled_ = false;
  MemoryMap memory_;
  std::unique_ptr<RegimeMachine> machine_;
  Turn turn_{"model"};
  bool cache_made_up_ = false;
  int64_t rope_prompt_ = 0, draft_rope_prompt_ = 0;  // what the tables of RoPE were filled for
};

}  // namespace megalith::engine
