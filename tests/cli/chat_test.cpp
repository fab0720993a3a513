// megalith chat, and its parts that need no model.
#include <gmock/gmock.h>

#include "cli/command_run.h"
#include "tools/chat_input.h"
#include "tools/statistics.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tools::ChatInput;

CommandResult chat(const std::string& lines, std::vector<std::string> more = {},
                   const std::string& model = kStoryteller) {
  std::vector<std::string> arguments = {"chat", model, "-c", "256", "-n", "12", "--temp", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments, {.stdin_text = lines});
}

std::string story_of(const std::string& prompt) {
  const std::string out =
      megalith_command({"run", kStoryteller, "-c", "256", "-n", "12", "--temp", "0", "-p", prompt}).out;
  EXPECT_THAT(out, StartsWith(prompt));
  return out.substr(prompt.size());
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.substr(text.find_first_not_of(" \n"));
}

/// The storyteller with another template, or with none.
struct Storyteller : ModelCopy {
  explicit Storyteller(const std::string& chat_template) {
    std::filesystem::remove(*this / "chat_template.jinja");
    if (!chat_template.empty()) write_text(*this / "chat_template.jinja", chat_template);
  }
};

TEST(Chat, GoesOnFromAllThatWasSaidAsTheTemplateHasIt) {
  const std::string first = story_of("Once upon a time");
  const std::string so_far = "Once upon a time\n\n" + trimmed(first) + "\n\nThen the king";
  const CommandResult result = chat("Once upon a time\n Then the king\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, first + story_of(so_far));
  EXPECT_EQ(result.err.find("chat template"), std::string::npos) << result.err;
}

TEST(Chat, WithoutATemplateItGoesOnFromPlainText) {
  const std::string first = story_of("Once upon a time");
  const std::string so_far = "Once upon a time" + first.substr(0, first.size() - 1) + " Then the king";
  const std::string lines = "Once upon a time\n Then the king\n";
  const Storyteller bare("");
  const CommandResult result = chat(lines, {}, bare.path());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, first + story_of(so_far));
  EXPECT_THAT(result.err, HasSubstr("has no chat template: it continues the conversation as plain text\n"));
  const CommandResult asked = chat(lines, {"--no-chat-template"});
  EXPECT_EQ(asked.out, result.out);
  EXPECT_THAT(asked.err, HasSubstr("is used without a chat template: "));
}

TEST(Chat, TheSystemPromptAndATemplateOfOnesOwn) {
  const TemporaryFolder folder;
  write_text(folder / "names.jinja",
             "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}The king said");
  const CommandResult result =
      chat("Who is there?\n", {"--system", "A tale.", "--chat-template", folder / "names.jinja"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, story_of("SYSTEM: A tale.\nUSER: Who is there?\nThe king said"));
  // Without a template it is the beginning of the text.
  EXPECT_EQ(chat("Once\n", {"--system", "A tale.", "--no-chat-template"}).out, story_of("A tale.\n\nOnce"));
}

TEST(Chat, TheEndOfATurnEndsAnAnswer) {
  // A storyteller whose template ends turns with the token " and", which generation_config.json does not know.
  std::string tokenizer = read_text(kStoryteller + "/tokenizer.json");
  const std::string before = "\"added_tokens\": [";
  ASSERT_NE(tokenizer.find("\"Ġand\": 270"), std::string::npos);
  tokenizer.insert(tokenizer.find(before) + before.size(),
                   R"({"id": 270, "content": "Ġand", "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": true},)");
  const Storyteller model(
      "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}Ġand{% endif %}{% endfor %}");
  model.replace("tokenizer.json", tokenizer);
  const std::string whole =
      megalith_command({"run", kStoryteller, "-c", "256", "-n", "40", "--temp", "0", "-p", "Once upon a time"}).out;
  const std::string answer = whole.substr(16, whole.find(" and ") - 16);
  ASSERT_NE(whole.find(" and "), std::string::npos) << whole;
  const CommandResult result = chat("Once upon a time\n/stats\n", {"-n", "40"}, model.path());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, answer + "\n");
  EXPECT_EQ(result.err.find("[ cut"), std::string::npos) << result.err;
  const CommandResult on = chat("Once upon a time\n", {"-n", "40", "--ignore-eos"}, model.path());
  EXPECT_GT(on.out.size(), result.out.size());
  EXPECT_THAT(on.err, HasSubstr("[ cut after 40 tokens (--max-new-tokens) ]"));
}

TEST(Chat, StopStringsEndAnAnswer) {
  const std::string whole = story_of("Once upon a time");
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const CommandResult result = chat("Once upon a time\n", {"--stop", stop});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_EQ(result.err.find("[ cut"), std::string::npos) << result.err;
}

TEST(Chat, ABadTemplateIsAnErrorThatNamesWhatWasNotUnderstood) {
  auto refused = [](const std::string& chat_template, std::vector<std::string> more = {}) {
    const Storyteller model(chat_template);
    const CommandResult result = chat("Once\n", std::move(more), model.path());
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("megalith: error: "), HasSubstr("; --chat-template takes another one")));
    return result.err;
  };
  EXPECT_THAT(
      refused("\n{{ messages | frobnicate }}"),
      HasSubstr("/storyteller/chat_template.jinja, line 2: found the filter \"frobnicate\", supported are abs"));
  EXPECT_THAT(refused("{% include 'x' %}"), HasSubstr("line 1: found the statement \"include\", supported are for"));
  EXPECT_THAT(refused("{% for m in messages %}"), HasSubstr("want {% endfor %}"));
  // One that is understood may refuse what it is given, and says so before the model is loaded.
  EXPECT_THAT(refused("{% if messages[0].role == 'system' %}{{ raise_exception('no system prompts') }}{% endif %}x",
                      {"--system", "Be kind."}),
              HasSubstr("the template refuses these messages: no system prompts"));
  EXPECT_THAT(chat("Once\n", {"--chat-template", "/no/such.jinja"}).err,
              HasSubstr("megalith: error: cannot open /no/such.jinja"));
  const CommandResult both = chat("", {"--chat-template", "x", "--no-chat-template"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--chat-template or --no-chat-template, not both"));
}

TEST(Chat, ClearForgetsAndRegenAnswersAnew) {
  const std::string first = story_of("Once upon a time"), other = story_of("The king");
  const CommandResult result = chat("Once upon a time\n/regen\n/clear\nThe king\n/exit\nnever read\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, first + first + other);  // greedy: the same answer
  const CommandResult sampled = chat("Once upon a time\n/regen\n", {"--temp", "1.2", "--seed", "5"});
  const size_t half = sampled.out.find('\n');
  EXPECT_NE(sampled.out.substr(0, half + 1), sampled.out.substr(half + 1));
}

TEST(Chat, CommandsAnswerOnStderr) {
  const CommandResult result = chat("/help\n/stats\n/regen\n/nonsense\nOnce\n/stats\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, story_of("Once"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("/clear  forgets"), HasSubstr("nothing was answered yet"),
                                HasSubstr("there is nothing to answer yet"), HasSubstr("there is no command /nonsense"),
                                HasSubstr("t/s | Generation: "), HasSubstr("2 messages in ")));
}

TEST(Chat, AConversationThatBecomesTooLongGoesOnAfterClear) {
  const CommandResult result = chat(std::string(3000, 'a') + "\n/clear\nOnce upon a time\n");
  EXPECT_EQ(result.code, 1) << result.err;  // a message got no answer
  EXPECT_THAT(result.err, AllOf(HasSubstr("a sequence may have 256"), HasSubstr("/clear begins anew")));
  EXPECT_EQ(result.out, story_of("Once upon a time"));
}

TEST(Chat, ControlCEndsTheAnswerButNotTheProgram) {
  const CommandResult result = megalith_command({"chat", kStoryteller, "-n", "900", "--ignore-eos", "-t", "1"},
                                                {.stdin_text = "Once upon a time\n/stats\n", .interrupt_after = 40});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 messages in "));
}

TEST(ChatInput, JoinsLines) {
  ChatInput input;
  EXPECT_EQ(input.line("one\r"), "one");
  EXPECT_EQ(input.line("two\\"), std::nullopt);
  EXPECT_TRUE(input.is_open());
  EXPECT_EQ(input.line("lines"), "two\nlines");
  EXPECT_FALSE(input.is_open());
  EXPECT_EQ(input.line("\"\"\""), std::nullopt);
  EXPECT_EQ(input.line("a \\"), std::nullopt);
  EXPECT_EQ(input.line(""), std::nullopt);
  EXPECT_EQ(input.line("/exit"), std::nullopt);  // no command in here
  EXPECT_EQ(input.line("\"\"\""), "a \\\n\n/exit");
  EXPECT_EQ(input.line("\"\"\"all of it\"\"\""), "all of it");
  EXPECT_EQ(input.finish(), std::nullopt);
  EXPECT_EQ(input.line("never ended\\"), std::nullopt);
  EXPECT_EQ(input.finish(), "never ended\n");
  EXPECT_FALSE(input.is_open());
}

TEST(Statistics, AreThoseOfTheTextbook) {
  const std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(tools::mean(samples), 2.5);
  EXPECT_NEAR(tools::standard_deviation(samples), 1.2909944, 1e-6);
  EXPECT_DOUBLE_EQ(tools::percentile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(tools::percentile(samples, 50), 2.5);
  EXPECT_DOUBLE_EQ(tools::percentile(samples, 90), 3.7);
  EXPECT_DOUBLE_EQ(tools::percentile(samples, 100), 4);
  EXPECT_DOUBLE_EQ(tools::standard_deviation({7}), 0);
  EXPECT_DOUBLE_EQ(tools::mean({}), 0);
  EXPECT_DOUBLE_EQ(tools::percentile({}, 50), 0);
}

}  // namespace
}  // namespace megalith::test
