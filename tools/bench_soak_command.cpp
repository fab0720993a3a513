// megalith bench soak: the same texts again and again, for hours if need be, as many at a time as there is room for.
// Every time they must have the same bits: each token and, at its end, each logit. A hang ends with the watchdog's
// report.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>

#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/stage.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

/// Where no progress is drawn, a line of the log says how far it is.
constexpr double kMillisecondsBetweenLines = 10000;

struct SoakOptions {
  ModelOptions model;
  int64_t steps = 100000, output_len = 0;
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

Action declare_bench_soak(Arguments& arguments) {
  auto options = std::make_shared<SoakOptions>();
  arguments.group("Test");
  arguments.integer("-n,--steps", options->steps, "decode steps, over all runs (100000)", 1);
  arguments.integer("--output-len", options->output_len, "steps of a run (as long as sequences may get)", 0, 1 << 20);
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_bench_soak(*options); };
}

}  // namespace

Command bench_soak_command() {
  return {"bench soak", "the same sequences again and again: whether results always have the same bits",
          "megalith bench soak models/storyteller --steps 1M --target cuda", declare_bench_soak};
}

}  // namespace megalith::tools
