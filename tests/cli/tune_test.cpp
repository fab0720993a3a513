// megalith tune: the table of what was tried, and that the fastest is used from then on.
#include <gmock/gmock.h>

#include "cli/command_run.h"
#include "support/running_operator.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGraph = std::string(megalith::testing::kRunningOperator) + R"(graph scan
state x: f32[1, 1024, 1024]
y: f32[1, 1024, 1024] = running(x)  # run
)";

class TuneCommand : public ::testing::Test {
 protected:
  TuneCommand() { write_text(graph_, kGraph); }
  CommandResult run(std::vector<std::string> arguments) const {
    return megalith_command(arguments, {.stdin_text = "", .environment = {{"MEGALITH_CACHE_DIR", folder_ / "cache"}}});
  }

  TemporaryFolder folder_;
  std::string graph_ = folder_ / "scan.graph";
};

TEST_F(TuneCommand, KeepsTheFastestAndForgetsIt) {
  const CommandResult dry = run({"tune", graph_, "-t", "1", "-r", "3", "--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(ContainsRegex("running_0 +[0-9.]+ +order t j i; .* taken"), HasSubstr("  proposed\n")));
  EXPECT_THAT(dry.err, HasSubstr("1 schedule faster than proposed; without --dry-run"));
  EXPECT_THAT(run({"tune", graph_, "--forget"}).err, HasSubstr("0 schedules"));
  const CommandResult tuned = run({"tune", graph_, "-t", "1", "-r", "3"});
  EXPECT_THAT(tuned.err, HasSubstr("kept in " + (folder_ / "cache") + ", and used from now on"));
  EXPECT_THAT(read_text(folder_ / "cache/compilers/tuned-cpu"),
              AllOf(HasSubstr("order t j i"), HasSubstr("# tuned: ")));
  EXPECT_THAT(run({"tune", graph_, "--forget"}).err, HasSubstr("1 schedule of this"));
  EXPECT_THAT(run({"tune", graph_, "--forget"}).err, HasSubstr("0 schedules"));
}

TEST_F(TuneCommand, TriesSchedulesOfAFile) {
  write_text(folder_ / "mine.txt", "body running_0\n# mine\norder t j i\nsplit i 8 -> a b\n");
  const CommandResult result =
      run({"tune", graph_, "-t", "1", "-r", "1", "--most", "1", "--try", folder_ / "mine.txt", "--dry-run"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("order t j i; split i 8 -> a b"), Not(HasSubstr("i_o"))));
  write_text(folder_ / "mine.txt", "body running_0\n# mine\ntag j vec\n");
  EXPECT_THAT(run({"tune", graph_, "--try", folder_ / "mine.txt"}).err, HasSubstr("line 3: "));
  write_text(folder_ / "mine.txt", "tag j vec\n");
  EXPECT_THAT(run({"tune", graph_, "--try", folder_ / "mine.txt"}).err,
              HasSubstr("mine.txt: line 1: \"tag\" stands before the first body"));
}

TEST_F(TuneCommand, IsOfAModelToo) {
  const std::string model = std::string(MEGALITH_SOURCE_DIR) + "/models/storyteller";
  const CommandResult result = run({"tune", model, "--body", "argmax_reduce_0"});
  EXPECT_THAT(result.out, ContainsRegex("argmax_reduce_0 +- +no other schedule of it is legal")) << result.err;
  EXPECT_THAT(run({"tune", model, "--body", "linear_0"}).err,
              HasSubstr("there is no generated body \"linear_0\": want embedding_0, "));
}

}  // namespace
}  // namespace megalith::test
