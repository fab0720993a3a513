// megalith chat, and its parts that need no model.
#include <gmock/gmock.h>

#include "cli/command_run.h"
#include "tools/chat.h"
#include "tools/statistics.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tools::ChatInput;

CommandResult chat(const std::string& lines, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"chat", kStoryteller, "-c", "256", "-n", "12", "--temp", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments, {.stdin_text = lines});
}

std::string story_of(const std::string& prompt) {
  const std::string out =
      megalith_command({"run", kStoryteller, "-c", "256", "-n", "12", "--temp", "0", "-p", prompt}).out;
  EXPECT_THAT(out, StartsWith(prompt));
  return out.substr(prompt.size());
}

TEST(Chat, GoesOnFromAllThatWasSaid) {
  const std::string first = story_of("Once upon a time");
  const std::string so_far = "Once upon a time" + first.substr(0, first.size() - 1) + " Then the king";
  const CommandResult result = chat("Once upon a time\n Then the king\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, first + story_of(so_far));
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
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("a text may have 256"), HasSubstr("/clear begins anew")));
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

TEST(ChatText, OfPlainModelsIsWhatWasSaid) {
  EXPECT_EQ(tools::chat_text({{"user", "Once"}, {"assistant", " upon"}, {"user", " a"}}), "Once upon a");
  EXPECT_EQ(tools::chat_text({}), "");
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
