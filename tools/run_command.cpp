// megalith run: prompts in, texts out.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/engine/engine.h"
#include "megalith/model/stream_decoder.h"
#include "megalith/model/tokenizer.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::string file;
  int64_t max_new_tokens = 128;
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k, seed;
  bool ignore_eos = false;
};

// Editors and echo end a file with a newline that nobody means.
std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::vector<std::string> all_prompts(const RunOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.file.empty()) prompts.push_back(without_last_newline(file_read(options.file)));
  if (prompts.empty()) {
    if (::isatty(STDIN_FILENO)) throw UsageError{"no prompt: give one with -p or -f, or pipe it in"};
    prompts.push_back(without_last_newline(read_stdin()));
  }
  return prompts;
}

/// Text to tokens and back; for a folder without tokenizer (shapes to try out) a text is its token ids.
class Vocabulary {
 public:
  explicit Vocabulary(const ModelOptions& model) : folder_(model.folder()) {
    if (!model.dummy() || file_exists(folder_ + "/tokenizer.json")) tokenizer_ = Tokenizer::open(folder_);
  }

  std::vector<int> encode(const std::string& text) const {
    return tokenizer_ ? tokenizer_->encode(text) : ids_of(text);
  }

  /// Turns tokens into text as they come.
  class Stream {
   public:
    explicit Stream(const Vocabulary& vocabulary) {
      if (vocabulary.tokenizer_) decoder_.emplace(*vocabulary.tokenizer_);
    }
    std::string push(int token) { return decoder_ ? decoder_->push(token) : fmt::format(" {}", token); }
    std::string finish() { return decoder_ ? decoder_->finish() : ""; }

   private:
    std::optional<StreamDecoder> decoder_;
  };

 private:
  std::vector<int> ids_of(const std::string& text) const {
    std::vector<int> ids;
    for (const char *at = text.data(), *end = at + text.size(); at != end;) {
      if (*at == ' ' || *at == ',' || *at == '\n') {
        ++at;
        continue;
      }
      int id = 0;
      auto [rest, code] = std::from_chars(at, end, id);
      MEGALITH_CHECK(code == std::errc(),
                     "{} has no tokenizer.json, so a prompt is a list of token ids such as \"1 2 3\", not \"{}\"",
                     folder_, text);
      ids.push_back(id);
      at = rest;
    }
    return ids;
  }

  std::string folder_;
  std::optional<Tokenizer> tokenizer_;
};

engine::Sampling sampling_of(const RunOptions& options) {
  const GenerationConfig theirs = generation_config_read(options.model.folder());
  engine::Sampling sampling;
  // A temperature given is a wish to sample; otherwise the model's makers decide.
  const double temperature = options.temperature.value_or(theirs.do_sample ? theirs.temperature : 0);
  sampling.temperature = static_cast<float>(temperature);
  sampling.top_p = static_cast<float>(options.top_p.value_or(theirs.do_sample ? theirs.top_p : 1));
  sampling.top_k = static_cast<int>(options.top_k.value_or(theirs.do_sample ? theirs.top_k : 0));
  if (options.seed) {
    sampling.seed = static_cast<uint64_t>(*options.seed);
  } else {
    std::random_device device;
    sampling.seed = device();  // 32 bits, easy to type again
  }
  log_info("temperature {}, top-p {}, top-k {}, seed {}", sampling.temperature, sampling.top_p, sampling.top_k,
           sampling.seed);
  return sampling;
}

std::string statistics(const engine::Engine& engine, const std::vector<engine::Request>& requests,
                       const engine::Generation& generation) {
  size_t prompt = 0, made = 0, longest = 0;
  for (const engine::Request& request : requests) prompt += request.prompt.size();
  size_t started = 0;
  for (const std::vector<int>& tokens : generation.tokens) {
    made += tokens.size();
    started += !tokens.empty();
    longest = std::max(longest, tokens.size());
  }
  if (made == 0) return "[ no token was made ]";
  // The first token of each request comes out of its prompt; the weights are read once for all requests.
  const double seconds = (generation.last_token_ms - generation.first_token_ms) / 1000;
  std::string rate = "-", bandwidth;
  if (made > started && seconds > 0) {
    rate = fmt::format("{:.1f}", static_cast<double>(made - started) / seconds);
    const double bytes = static_cast<double>(engine.weight_bytes_per_token()) * static_cast<double>(longest - 1);
    bandwidth = fmt::format(", weights {:.2f} GB/s", bytes / seconds / 1e9);
  }
  return fmt::format("[ Prompt: {:.1f} t/s | Generation: {} t/s ] first token {}{}, {} made on {}",
                     static_cast<double>(prompt) / (generation.first_token_ms / 1000), rate,
                     format_ms(generation.first_token_ms), bandwidth, plural(static_cast<int64_t>(made), "token"),
                     plural(engine.num_workers(), "worker"));
}

int run(const RunOptions& options) {
  const std::string folder = options.model.folder();
  config_read(folder);  // a wrong folder is said before the prompt is asked for
  const std::vector<std::string> prompts = all_prompts(options);
  const auto num_prompts = static_cast<int64_t>(prompts.size());
  const Vocabulary vocabulary(options.model);
  const engine::Sampling sampling = sampling_of(options);
  std::vector<engine::Request> requests;
  for (const std::string& prompt : prompts) {
    engine::Request request{vocabulary.encode(prompt), options.max_new_tokens, sampling, options.ignore_eos};
    request.sampling.seed += requests.size();  // so that the same prompt given twice makes two texts
    requests.push_back(std::move(request));
  }

  engine::Engine engine(folder, options.model.engine(num_prompts));
  log_info("compiled for {}:\n{}", plural(engine.num_workers(), "worker"), engine.kernel().report.table());

  const bool stream = prompts.size() == 1;
  std::vector<std::string> texts = prompts;
  std::vector<Vocabulary::Stream> streams(prompts.size(), Vocabulary::Stream(vocabulary));
  bool echoed = false;
  auto echo = [&] {  // with the first token and not before, because a prompt may yet be refused
    if (stream && !echoed) print(prompts[0]);
    echoed = true;
  };
  auto on_token = [&](const engine::TokenEvent& event) {
    const auto r = static_cast<size_t>(event.request);
    const std::string piece = event.finished ? streams[r].finish() : streams[r].push(event.token);
    echo();
    if (!stream)
      texts[r] += piece;
    else if (!piece.empty())
      print(piece);
  };

  engine::Generation generation;
  bool interrupted = false;
  {
    const InterruptGuard guard([&] { engine.cancel(); });
    generation = engine.generate(requests, on_token);
    interrupted = guard.interrupted();
  }
  echo();
  if (stream) {
    print((generation.cancelled ? streams[0].finish() : "") + "\n");
  } else {
    for (size_t r = 0; r < texts.size(); ++r)
      print(fmt::format("{}=== {} of {} ===\n{}{}\n", r ? "\n" : "", r + 1, texts.size(), texts[r],
                        generation.cancelled ? streams[r].finish() : ""));
  }
  note(statistics(engine, requests, generation));
  return interrupted ? kExitInterrupt : kExitOk;
}

Action declare(Arguments& arguments) {
  auto options = std::make_shared<RunOptions>();
  arguments.group("Prompt");
  arguments.texts("-p,--prompt", options->prompts, "TEXT",
                  "text to go on from; several make one batch; without it, stdin is the prompt");
  arguments.text("-f,--file", options->file, "FILE", "file with the prompt");
  arguments.group("Generation");
  arguments.integer("-n,--max-new-tokens,--predict,--n-predict", options->max_new_tokens,
                    "tokens to make at most (128)", 1, 1 << 24);
  arguments.number("--temp,--temperature", options->temperature,
                   "0 takes the likeliest token (as generation_config.json says)", 0, 99);
  arguments.integer("--top-k", options->top_k, "sample among the k likeliest tokens; 0: all", 0, 1 << 24);
  arguments.number("--top-p", options->top_p, "sample among the likeliest tokens of this total probability", 1e-6, 1);
  arguments.integer("-s,--seed", options->seed, "the same seed gives the same text (random; shown by -v)", 0);
  arguments.flag("--ignore-eos", options->ignore_eos, "go on where the model would stop");
  options->model.declare(arguments);
  return [options] { return run(*options); };
}

}  // namespace

Command run_command() {
  return {"run", "go on from a prompt, with the text streamed to stdout",
          "megalith run models/storyteller -p \"Once upon a time\" -n 200", declare};
}

}  // namespace megalith::tools
