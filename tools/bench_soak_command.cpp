// megalith bench soak: the same texts again and again, for hours if need be, as many at a time as there is room for.
// Every time they must have the same bits: each token and, at its end, each logit. A hang ends with the watchdog's
// report. With --requests they come and go at random instead (request_soak.h).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/stage.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/request_soak.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

/// Where no progress is drawn, a line of the log says how far it is.
constexpr double kMillisecondsBetweenLines = 10000;

struct SoakOptions {
  ModelOptions model;
  int64_t steps = 100000, output_len = 0;
  int64_t requests = 0, seed = 0;  // 0 requests: sequences that do not come and go
};

template <class T>
std::string hash_of(const T* values, size_t count) {
  return hash_hex({reinterpret_cast<const char*>(values), count * sizeof(T)});
}

/// Tokens and logits of all texts, as far as they are to be the same.
struct Signature {
  std::string tokens, logits;
  bool operator==(const Signature&) const = default;
};

Signature signature_of(const engine::Engine& engine, const engine::Generation& generation) {
  std::vector<int> tokens;
  for (const std::vector<int>& of_text : generation.tokens) tokens.insert(tokens.end(), of_text.begin(), of_text.end());
  return {hash_of(tokens.data(), tokens.size()),
          hash_of(engine.logits(), generation.tokens.size() * static_cast<size_t>(engine.config().vocab_size))};
}

int run_bench_soak(const SoakOptions& options) {
  engine::Engine engine(options.model.folder(), options.model.engine(1));
  const int64_t longest = engine.decoder_options().max_seq_len - 1,
                length = options.output_len > 0 ? std::min(options.output_len, longest) : longest;
  std::vector<engine::Request> requests;
  for (int64_t i = 0; i < engine.decoder_options().max_requests; ++i)
    requests.push_back({.prompt = {static_cast<int>((13 + i) % engine.config().vocab_size)},
                        .max_new_tokens = length,
                        .ignore_stop_tokens = true});

  const InterruptGuard guard([&] { engine.cancel(); });
  Progress progress("soaking", options.steps);
  const auto begin = std::chrono::steady_clock::now();
  auto last_line = begin;
  Signature first;
  int64_t steps = 0, runs = 0;
  while (steps < options.steps) {
    const engine::Generation generation = engine.generate(requests, [&](const engine::TokenEvent& event) {
      if (!event.finished && event.request == 0) progress.advance();
    });
    if (guard.interrupted()) break;
    const Signature found = signature_of(engine, generation);
    if (runs == 0) first = found;
    if (found != first) {
      progress_erase();
      print(fmt::format("run {} differs from the first one, after {} steps: tokens {}, want {}; logits {}, want {}\n",
                        runs + 1, steps, found.tokens, first.tokens, found.logits, first.logits));
      return kExitError;
    }
    ++runs;
    steps += static_cast<int64_t>(generation.tokens[0].size());
    if (jit::milliseconds_since(last_line) > kMillisecondsBetweenLines) {
      last_line = std::chrono::steady_clock::now();
      log_info("[soak] {} of {} steps, {} with the same bits", steps, options.steps, plural(runs, "run"));
    }
  }
  const double seconds = jit::milliseconds_since(begin) / 1000;
  progress_erase();
  print(fmt::format("{} in {:.1f} s, {} with the same bits: tokens {}, logits {}\n", plural(steps, "step"), seconds,
                    plural(runs, "run"), first.tokens, first.logits));
  return guard.interrupted() ? kExitInterrupt : kExitOk;
}

/// What is wrong, or "". `same_bits`: with one kernel (--batch-invariant) sequences are those that each is alone.
std::string verdict(const RequestSoakResult& result, bool same_bits) {
  if (same_bits && (result.other_tokens > 0 || result.other_logprobs > 0))
    return fmt::format("not the same bits: {}", result.first_difference);
  if (result.after.pages_used != result.before.pages_used)
    return fmt::format("{} of the KV cache's {} pages are still in use", result.after.pages_used, result.after.pages);
  if (result.descriptors_after > result.descriptors_before)
    return fmt::format("{} files are open, {} were", result.descriptors_after, result.descriptors_before);
  return "";
}

std::string drafts_line(const engine::ServiceLoad& load) {
  return fmt::format("  drafts {} times, {}, {} of them right\n", load.drafts, plural(load.drafted_tokens, "token"),
                     load.accepted_tokens);
}

int run_request_soak(const SoakOptions& options) {
  engine::Engine engine(options.model.folder(),
                        options.model.engine(engine::default_service_batch(options.model.target)));
  const bool same_bits = engine.regimes().size() == 1;
  // On a CPU a sequence has the same bits in every kernel, so those without drafts show that drafts change nothing.
  std::optional<engine::Engine> without_drafts;
  if (options.model.draft_tokens > 0 && !options.model.target.starts_with("cuda")) {
    ModelOptions plain = options.model;
    plain.draft_tokens = plain.num_pages = 0;
    plain.draft_model.clear();
    without_drafts.emplace(options.model.folder(), plain.engine(engine::default_service_batch(options.model.target)));
  }
  engine::Engine& alone = without_drafts ? *without_drafts : engine;
  std::atomic<bool> goes_on{true};
  const InterruptGuard guard([&] {
    goes_on = false;
    engine.cancel();
    alone.cancel();
  });
  Progress progress("soaking", options.requests);
  auto last_line = std::chrono::steady_clock::now();
  int64_t done = 0;
  const RequestSoakResult result = soak_requests(
      engine, alone, {.requests = options.requests, .seed = static_cast<uint64_t>(options.seed)}, [&](int64_t ended) {
        progress.advance(ended - std::exchange(done, ended));
        if (jit::milliseconds_since(last_line) > kMillisecondsBetweenLines) {
          last_line = std::chrono::steady_clock::now();
          log_info("[soak] {} of {} requests have ended", ended, options.requests);
        }
        return goes_on.load();
      });
  progress_erase();
  if (result.interrupted && result.seconds == 0) return kExitInterrupt;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  print(fmt::format(
      "{} in {:.1f} s, {} of them given up: {}, {}, {} preempted\n"
      "  with other tokens than alone {}, with other log-probabilities {}{}\n"
      "{}"
      "  pages in use {} of {}, {} were; prompt tokens found in the prefix cache {} of {}\n"
      "  resident memory {:.0f} MiB, {:.0f} after a tenth of the requests; open files {}, {} then\n",
      plural(result.ended + result.aborted, "request"), result.seconds, result.aborted, plural(result.tokens, "token"),
      plural(result.steps, "step"), result.after.preemptions, result.other_tokens, result.other_logprobs,
      result.largest_gap > 0 ? fmt::format(", the two likeliest apart by {:.4f} at most", result.largest_gap) : "",
      options.model.draft_tokens > 0 ? drafts_line(result.after) : "", result.after.pages_used, result.after.pages,
      result.before.pages_used, result.after.prefix_hits, result.after.prefix_queries, mib(result.resident_after),
      mib(result.resident_before), result.descriptors_after, result.descriptors_before));
  if (result.interrupted) return kExitInterrupt;
  const std::string wrong = verdict(result, same_bits);
  if (!wrong.empty()) print(fmt::format("{}\n", wrong));
  return wrong.empty() ? kExitOk : kExitError;
}

Action declare_bench_soak(Arguments& arguments) {
  auto options = std::make_shared<SoakOptions>();
  arguments.group("Test");
  arguments.integer("-n,--steps", options->steps, "decode steps, over all runs (100000)", 1);
  arguments.integer("--output-len", options->output_len, "steps of a run (as long as sequences may get)", 0, 1 << 20);
  arguments.integer("--requests", options->requests, "requests that come and go at random, a third given up, instead",
                    1);
  arguments.integer("--seed", options->seed, "of those requests (0)", 0);
  options->model.declare(arguments, kDefaultContext, "one, or with --requests as many as a server has");
  return [options] { return options->requests > 0 ? run_request_soak(*options) : run_bench_soak(*options); };
}

}  // namespace

Command bench_soak_command() {
  return {"bench soak", "the same sequences again and again: whether results always have the same bits",
          "megalith bench soak models/storyteller --steps 1M --target cuda", declare_bench_soak};
}

}  // namespace megalith::tools
