// megalith bench soak: the same text again and again, for hours if need be. Every time it must have the same bits: each
// token and, at its end, each logit. A hang ends with the watchdog's report.
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

/// Tokens and logits of a text, as far as they are to be the same.
struct Signature {
  std::string tokens, logits;
  bool operator==(const Signature&) const = default;
};

Signature signature_of(const engine::Engine& engine, const engine::Generation& generation) {
  const std::vector<int>& tokens = generation.tokens[0];
  return {hash_of(tokens.data(), tokens.size()),
          hash_of(engine.logits(), static_cast<size_t>(engine.config().vocab_size))};
}

int run(const SoakOptions& options) {
  engine::Engine engine(options.model.folder(), options.model.engine(1));
  engine::Request request{.prompt = {13}, .ignore_stop_tokens = true};
  request.prompt[0] = static_cast<int>(13 % engine.config().vocab_size);
  const int64_t longest = engine.decoder_options().max_seq_len - 1;
  request.max_new_tokens = options.output_len > 0 ? std::min(options.output_len, longest) : longest;

  const InterruptGuard guard([&] { engine.cancel(); });
  Progress progress("soaking", options.steps);
  const auto begin = std::chrono::steady_clock::now();
  auto last_line = begin;
  Signature first;
  int64_t steps = 0, texts = 0;
  while (steps < options.steps) {
    const engine::Generation generation = engine.generate({request}, [&](const engine::TokenEvent& event) {
      if (!event.finished) progress.advance();
    });
    if (guard.interrupted()) break;
    const Signature found = signature_of(engine, generation);
    if (texts == 0) first = found;
    if (found != first) {
      progress_erase();
      print(fmt::format("text {} differs from the first one, after {} steps: tokens {}, want {}; logits {}, want {}\n",
                        texts + 1, steps, found.tokens, first.tokens, found.logits, first.logits));
      return kExitError;
    }
    ++texts;
    steps += static_cast<int64_t>(generation.tokens[0].size());
    if (jit::milliseconds_since(last_line) > kMillisecondsBetweenLines) {
      last_line = std::chrono::steady_clock::now();
      log_info("[soak] {} of {} steps, {} with the same bits", steps, options.steps, plural(texts, "text"));
    }
  }
  const double seconds = jit::milliseconds_since(begin) / 1000;
  progress_erase();
  print(fmt::format("{} in {:.1f} s, {} with the same bits: tokens {}, logits {}\n", plural(steps, "step"), seconds,
                    plural(texts, "text"), first.tokens, first.logits));
  return guard.interrupted() ? kExitInterrupt : kExitOk;
}

Action declare(Arguments& arguments) {
  auto options = std::make_shared<SoakOptions>();
  arguments.group("Test");
  arguments.integer("-n,--steps", options->steps, "decode steps, over all texts (100000)", 1);
  arguments.integer("--output-len", options->output_len, "steps of a text (as long as it may get)", 0, 1 << 20);
  options->model.declare(arguments);
  return [options] { return run(*options); };
}

}  // namespace

Command bench_soak_command() {
  return {"bench soak", "the same text again and again: whether it always has the same bits",
          "megalith bench soak models/storyteller --steps 1M --target cuda", declare};
}

}  // namespace megalith::tools
