// megalith chat: a conversation. Each turn goes on from all that was said before.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/printable.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/text_stream.h"
#include "tools/chat_input.h"
#include "tools/chat_prompt.h"
#include "tools/command.h"
#include "tools/generation_line.h"
#include "tools/interrupt.h"
#include "tools/line_reader.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/terminal.h"
#include "tools/vocabulary.h"

namespace megalith::tools {

namespace {

struct TalkOptions {
  ModelOptions model;
  SamplingOptions sampling{.max_new_tokens = 1024};  // an answer ends by itself; this is for one that does not
  ChatPromptOptions prompt;
  bool thinking = false, no_thinking = false;
};

// Of a message that is taken for a command.
constexpr size_t kShownBytes = 80;

constexpr const char* kHelp =
    "/help   this list\n"
    "/clear  forgets what was said\n"
    "/regen  answers the last message anew\n"
    "/stats  how fast the last answer was made, and how long the conversation is\n"
    "/exit   ends, as Ctrl-D does; Ctrl-C ends an answer\n"
    "A line that ends with \\ goes on in the next; \"\"\" begins and ends a message of several lines.";

// A text that is token ids has no room for a template.
ChatPrompt open_prompt(const TalkOptions& options, const Vocabulary& vocabulary) {
  ChatPromptOptions prompt = options.prompt;
  prompt.no_template |= !vocabulary.tokenizer();
  return {options.model.folder(), prompt};
}

engine::EngineOptions engine_options(const TalkOptions& options, const Vocabulary& vocabulary,
                                     const TurnTokens& turns) {
  engine::EngineOptions result = options.model.engine(1);
  result.stop_tokens = turns.ends;
  if (const std::optional<int> end = vocabulary.end_token()) result.stop_tokens.push_back(*end);
  return result;
}

class Chat {
 public:
  explicit Chat(const TalkOptions& options)
      : options_(options),
        vocabulary_(options.model),
        prompt_(open_prompt(options, vocabulary_)),
        turns_(vocabulary_.tokenizer() ? prompt_.turn_tokens(*vocabulary_.tokenizer()) : TurnTokens()),
        theirs_(SamplingOptions::makers_wishes(options.model.folder())),
        sampling_(options.sampling.over(theirs_)),
        engine_(options.model.folder(), engine_options(options, vocabulary_, turns_)) {}

  bool has_template() const { return prompt_.has_template(); }
  /// A message got no answer.
  bool has_failed() const { return has_failed_; }

  /// False once the conversation is over.
  bool take(const std::string& message) {
    if (message.empty()) return true;
    if (!message.starts_with('/')) return say(message), true;
    if (message == "/exit" || message == "/bye" || message == "/quit") return false;
    if (message == "/clear")
      messages_.clear(), tokens_ = 0;
    else if (message == "/regen")
      regenerate();
    else if (message == "/stats")
      note(Lines{statistics()});
    else if (message == "/help")
      note(Lines{kHelp});
    else
      note(fmt::format("there is no command {}; /help lists them", shortened(message, kShownBytes)));
    return true;
  }

 private:
  void say(const std::string& message) {
    messages_.push_back({"user", message});
    answer();
  }

  void regenerate() {
    if (messages_.empty()) return note("there is nothing to answer yet");
    if (messages_.back().role == "assistant") messages_.pop_back();
    answer();
  }

  // An answer that cannot be made (the conversation became too long) ends the turn, not the program.
  void answer() {
    engine::TextOptions shown_options = options_.sampling.text_options(theirs_, engine_);
    engine::TextStream shown(vocabulary_.tokenizer(), shown_options);
    shown_options.show_special = false;
    engine::TextStream said(vocabulary_.tokenizer(), shown_options);  // what the template is given the next time
    std::string text;
    std::string trouble;
    bool is_cut = false;
    auto show = [&](const std::string& piece) {
      if (!piece.empty()) print(piece);
    };
    try {
      const engine::Request request = options_.sampling.request(
          vocabulary_.encode(prompt_.render(messages_), !prompt_.has_template(), turns_.markers), sampling_);
      ++sampling_.seed;  // another answer next time, also to the same words
      const InterruptGuard guard([&] { engine_.cancel(); });
      const engine::Generation generation = engine_.generate({request}, [&](const engine::TokenEvent& event) {
        show(event.finished ? shown.finish() : shown.push(event.token));
        text += event.finished ? said.finish() : said.push(event.token);
        if (shown.is_over() && !event.finished) engine_.cancel();
      });
      show(shown.finish());
      text += said.finish();
      statistics_ = generation_line(engine_, {request}, generation);
      tokens_ = static_cast<int64_t>(request.prompt.size() + generation.tokens[0].size());
      trouble = engine_.logits_trouble(generation);
      is_cut = generation.reasons[0] == batch::kLengthLimit && !shown.is_stopped();
    } catch (const UserError& error) {
      messages_.pop_back();
      has_failed_ = true;
      return note(Lines{fmt::format("{}\n/clear begins anew", error.what())});
    }
    print("\n");
    if (!trouble.empty()) log_warn("{}", trouble);
    if (is_cut) note(cut_note());
    messages_.push_back({"assistant", text});
  }

  std::string cut_note() const {
    const int64_t most = engine_.decoder_options().max_seq_len;
    if (tokens_ >= most)
      return fmt::format("[ cut: the conversation fills all {} positions (--max-seq-len); /clear begins anew ]", most);
    return fmt::format("[ cut after {} (--max-new-tokens) ]", plural(options_.sampling.max_new_tokens, "token"));
  }

  std::string statistics() const {
    if (statistics_.empty()) return "nothing was answered yet";
    return fmt::format("{}\n{} in {} of {} positions", statistics_,
                       plural(static_cast<int64_t>(messages_.size()), "message"), tokens_,
                       engine_.decoder_options().max_seq_len);
  }

  const TalkOptions& options_;
  Vocabulary vocabulary_;
  ChatPrompt prompt_;
  TurnTokens turns_;
  GenerationConfig theirs_;
  engine::Sampling sampling_;
  engine::Engine engine_;
  std::vector<ChatMessage> messages_;
  std::string statistics_;
  int64_t tokens_ = 0;
  bool has_failed_ = false;
};

void check(TalkOptions& options) {
  ChatPromptOptions& prompt = options.prompt;
  if (prompt.no_template && !prompt.template_name.empty())
    throw UsageError{"--chat-template or --no-chat-template, not both"};
  if (options.thinking && options.no_thinking) throw UsageError{"--enable-thinking or --no-enable-thinking, not both"};
  if (options.thinking || options.no_thinking) prompt.thinking = options.thinking;
  if (prompt.no_template && (prompt.thinking || !prompt.variables.empty() || !prompt.tools_file.empty()))
    throw UsageError{
        "--chat-template-kwargs, --tools and --enable-thinking are for a chat template, which "
        "--no-chat-template leaves out"};
  options.sampling.request({}, {});  // what is wrong with it is said before the model is loaded
}

int run_chat(TalkOptions options) {
  check(options);
  Chat chat(options);
  if (!chat.has_template())
    note(fmt::format("{} {}: it continues the conversation as plain text", options.model.folder(),
                     options.prompt.no_template ? "is used without a chat template" : "has no chat template"));
  LineReader reader("chat_history");
  if (reader.is_terminal()) note("/help lists the commands, Ctrl-D ends");
  // Somebody at a terminal has read of it and went on; a script has only this.
  const auto exit_code = [&] { return chat.has_failed() && !reader.is_terminal() ? kExitError : kExitOk; };
  ChatInput input;
  while (std::optional<std::string> line = reader.next(input.is_open() ? ". " : "> ")) {
    const std::optional<std::string> message = input.line(std::move(*line));
    if (message && !chat.take(*message)) return exit_code();
  }
  if (const std::optional<std::string> rest = input.finish()) chat.take(*rest);
  if (reader.is_terminal()) std::fputc('\n', stderr);
  return exit_code();
}

Action declare_chat(Arguments& arguments) {
  auto options = std::make_shared<TalkOptions>();
  arguments.group("Conversation");
  arguments.text("--system", options->prompt.system, "TEXT", "the system prompt", true);
  arguments.text("--chat-template", options->prompt.template_name, "NAME|FILE",
                 "one of the model's templates by its name, or a file with one in Jinja");
  arguments.flag("--no-chat-template", options->prompt.no_template, "continues the conversation as plain text");
  arguments.text("--chat-template-kwargs", options->prompt.variables, "JSON",
                 "variables for the template, as an object: {\"enable_thinking\": false}");
  arguments.flag("--enable-thinking", options->thinking, "the variable enable_thinking is true");
  arguments.flag("--no-enable-thinking", options->no_thinking, "and false: reasoning models answer at once");
  arguments.text("--tools", options->prompt.tools_file, "FILE", "tools for the template, as a JSON list");
  options->sampling.declare(arguments);
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_chat(*options); };
}

}  // namespace

Command chat_command() {
  return {"chat", "a conversation; each answer follows from all messages before it", "megalith chat models/storyteller",
          declare_chat};
}

}  // namespace megalith::tools
