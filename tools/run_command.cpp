// megalith run: prompts in, texts out.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/text_stream.h"
#include "megalith/model/encode_budget.h"
#include "tools/command.h"
#include "tools/generation_line.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/terminal.h"
#include "tools/vocabulary.h"

namespace megalith::tools {

namespace {

// Prompts that are worked on once: to compile a kernel for them, and to copy the weights once more, takes about as long as
// 200 passes over the weights, of 4 tokens each. A kernel for fewer tokens saves a fifth of a pass at most, so it never is.
bool are_worth_a_kernel(const std::vector<engine::Request>& requests) {
  constexpr size_t kLeastTokens = 1024;
  size_t tokens = 0;
  for (const engine::Request& request : requests) tokens += request.prompt.size();
  return tokens >= kLeastTokens;
}

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::string file;
  std::string schema, grammar;  // files
  SamplingOptions sampling;
  std::optional<int64_t> logprobs;
};

// What the sequences may say; nothing: anything.
grammar::GrammarUse grammar_of(const RunOptions& options, const Vocabulary& vocabulary, int64_t vocab_size) {
  if (options.schema.empty() && options.grammar.empty()) return {};
  if (!options.schema.empty() && !options.grammar.empty())
    throw UsageError{"--json-schema and --grammar both say what is made: give one of them"};
  MEGALITH_CHECK(vocabulary.tokenizer(), "{} needs a tokenizer, but the folder has no tokenizer.json",
                 options.schema.empty() ? "--grammar" : "--json-schema");
  grammar::GrammarCompiler compiler(*vocabulary.tokenizer(), vocab_size);
  if (!options.schema.empty())
    return {.grammar =
                compiler.compile({grammar::GrammarKind::json_schema, read_input(options.schema, kMaxTextBytes)})};
  return {.grammar = compiler.compile({grammar::GrammarKind::ebnf, read_input(options.grammar, kMaxTextBytes)})};
}

// Editors and echo end a file with a newline that nobody means.
std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::vector<std::string> all_prompts(const RunOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.file.empty()) prompts.push_back(without_last_newline(read_input(options.file, kMaxTextBytes)));
  if (prompts.empty()) {
    if (::isatty(STDIN_FILENO)) throw UsageError{"no prompt: give one with -p or -f, or pipe it in"};
    prompts.push_back(without_last_newline(read_stdin(kMaxTextBytes)));
  }
  return prompts;
}

// Nothing ended the text; that --max-new-tokens did is what was asked for, that its context was full is not.
bool is_cut_by_context(const engine::Engine& engine, const engine::Request& request,
                       const engine::Generation& generation, size_t r) {
  const auto tokens = static_cast<int64_t>(request.prompt.size() + generation.tokens[r].size());
  return generation.reasons[r] == batch::kLengthLimit && tokens >= engine.decoder_options().max_seq_len &&
         static_cast<int64_t>(generation.tokens[r].size()) < request.max_new_tokens;
}

// A line for each token: its text, the logarithm of its probability, and behind a bar the most probable ones in its place.
std::string logprob_lines(const Vocabulary& vocabulary, const engine::Generation& generation, size_t r) {
  const auto shown = [&](int token, float logprob) {
    const std::string text =
        vocabulary.tokenizer() ? json_quote(vocabulary.tokenizer()->token_bytes(token)) : fmt::format("{}", token);
    return fmt::format("{:<16} {:9.4f}", text, logprob);
  };
  std::string lines;
  for (size_t i = 0; i < generation.tokens[r].size(); ++i) {
    lines += shown(generation.tokens[r][i], generation.logprobs[r][i]);
    if (!generation.top[r].empty())
      for (const engine::TopToken& top : generation.top[r][i])
        lines += (&top == generation.top[r][i].data() ? "  |  " : "  ") + shown(top.token, top.logprob);
    lines += '\n';
  }
  return lines;
}

int run_run(const RunOptions& options) {
  const std::string folder = options.model.folder();
  const ModelConfig config = config_read(folder);  // a wrong folder is said before the prompt is asked for
  const std::vector<std::string> prompts = all_prompts(options);
  const auto num_prompts = static_cast<int64_t>(prompts.size());
  const Vocabulary vocabulary(options.model);
  const GenerationConfig theirs = SamplingOptions::makers_wishes(folder);
  const engine::Sampling sampling = options.sampling.over(theirs);
  const grammar::GrammarUse grammar = grammar_of(options, vocabulary, config.vocab_size);
  std::vector<engine::Request> requests;
  for (const std::string& prompt : prompts) {
    engine::Request request = options.sampling.request(vocabulary.encode(prompt), sampling);
    request.grammar = grammar;
    request.sampling.seed += requests.size();  // so that the same prompt given twice makes two texts
    request.logprobs = options.logprobs.has_value();
    request.top_logprobs = static_cast<int>(options.logprobs.value_or(0));
    requests.push_back(std::move(request));
  }

  engine::EngineOptions engine_options = options.model.engine(num_prompts);
  engine_options.end_token = vocabulary.end_token();
  engine::check_requests(folder, engine_options, requests);
  if (!engine_options.prompt_rows && !are_worth_a_kernel(requests)) engine_options.prompt_rows = 0;
  if (!engine_options.regimes) engine_options.regimes.emplace();
  engine::Engine engine(folder, engine_options);
  if (log_level() >= LogLevel::info)
    log_line(LogLevel::info, Lines{fmt::format("compiled for {}:\n{}", plural(engine.num_workers(), "worker"),
                                               engine.kernel().report.table())});

  const bool stream = prompts.size() == 1;
  std::vector<std::string> texts = prompts;
  const engine::TextOptions text_options = options.sampling.text_options(theirs, engine);
  std::vector<engine::TextStream> streams(prompts.size(), {vocabulary.tokenizer(), text_options});
  bool echoed = false;
  auto echo = [&] {  // with the first token and not before, because the run may yet fail
    if (stream && !echoed) print(prompts[0]);
    echoed = true;
  };
  auto show = [&](size_t r, const std::string& piece) {
    if (!stream)
      texts[r] += piece;
    else if (!piece.empty())
      print(piece);
  };
  auto on_token = [&](const engine::TokenEvent& event) {
    const auto r = static_cast<size_t>(event.request);
    echo();
    show(r, event.finished ? streams[r].finish() : streams[r].push(event.token));
    // Texts that found a stop string go on unseen until all have ended.
    if (std::ranges::all_of(streams, &engine::TextStream::is_over)) engine.cancel();
  };

  engine::Generation generation;
  bool interrupted = false;
  {
    const InterruptGuard guard([&] { engine.cancel(); });
    generation = engine.generate(requests, on_token);
    interrupted = guard.interrupted();
  }
  echo();
  for (size_t r = 0; r < streams.size(); ++r) show(r, streams[r].finish());
  const auto logprobs = [&](size_t r) {
    return options.logprobs ? "\n" + logprob_lines(vocabulary, generation, r) : std::string();
  };
  if (stream) {
    print("\n" + logprobs(0));
  } else {
    for (size_t r = 0; r < texts.size(); ++r)
      print(fmt::format("{}=== {} of {} ===\n{}\n{}", r ? "\n" : "", r + 1, texts.size(), texts[r], logprobs(r)));
  }
  for (size_t r = 0; r < requests.size(); ++r)
    if (is_cut_by_context(engine, requests[r], generation, r) && !streams[r].is_stopped())
      note(fmt::format("[ {}cut: it fills all {} positions (--max-seq-len) ]",
                       stream ? "" : fmt::format("sequence {} ", r + 1), engine.decoder_options().max_seq_len));
  if (const std::string trouble = engine.logits_trouble(generation); !trouble.empty()) log_warn("{}", trouble);
  note(generation_line(engine, requests, generation));
  return interrupted ? kExitInterrupt : kExitOk;
}

Action declare_run(Arguments& arguments) {
  auto options = std::make_shared<RunOptions>();
  arguments.group("Prompt");
  arguments.texts("-p,--prompt", options->prompts, "TEXT",
                  "prompt to continue; several make one batch; without it, stdin is the prompt", true);
  arguments.text("-f,--file", options->file, "FILE", "file or pipe with the prompt; - is stdin");
  options->sampling.declare(arguments);
  arguments.integer("--logprobs", options->logprobs,
                    "print how likely each token was, and so many others in its place, behind the text", 0,
                    batch::kMaxTop);
  arguments.text("--json-schema", options->schema, "FILE", "what is made is JSON of this schema");
  arguments.text("--grammar", options->grammar, "FILE", "what is made is what this grammar says, in the form of GBNF");
  options->model.declare(arguments);
  return [options] { return run_run(*options); };
}

}  // namespace

Command run_command() {
  return {"run", "continue a prompt; the text is streamed to stdout",
          "megalith run models/storyteller -p \"Once upon a time\" -n 200", declare_run};
}

}  // namespace megalith::tools
