// megalith loops: what is shown of a scheduled kernel, and that it runs.
#include <gmock/gmock.h>

#include "cli/command_run.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kExamples = std::string(MEGALITH_SOURCE_DIR) + "/examples/loops/";
const std::vector<std::string> kMatmul = {"loops", kExamples + "matmul.loops", "--apply",
                                          kExamples + "matmul.schedule"};

CommandResult loops(std::vector<std::string> arguments, const std::vector<std::string>& more,
                    const CommandInput& input = {}) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments, input);
}

TEST(LoopsCommand, ShowsEachStepAndTheSource) {
  const CommandResult each = loops(kMatmul, {"--each", "--source", "--target", "cuda"});
  ASSERT_EQ(each.code, 0) << each.err;
  EXPECT_THAT(each.out, AllOf(HasSubstr("# tile i j 16 16 -> "), HasSubstr("2 barriers, 256 threads"),
                              HasSubstr("__shared__ f32 a_s[256];")));
}

TEST(LoopsCommand, ThePassesBeforeASchedule) {
  const CommandResult result = loops({"loops", kExamples + "softmax.loops"}, {"--passes"});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\n# types\n"), HasSubstr("\n# common_subexpressions\n"), HasSubstr("\n# dependences\n"),
                    HasSubstr("insn1 reads top[i] after insn0 writes top[i]: "), HasSubstr("\n# domains\n"),
                    HasSubstr("= max(sum_0[0], x[i, k])")));
}

TEST(LoopsCommand, CountsChecksAndTimes) {
  const CommandResult result = loops(kMatmul, {"--counts", "--check", "--bench", "--sizes", "n=40,m=24,l=33"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("# f32 mul: 31680\n"), HasSubstr("# c: 0 loads of 0 bytes, 960 stores of 3840"),
                    HasSubstr("# right: the largest difference to the interpreter is "), HasSubstr(" % of a copy's "),
                    HasSubstr(" % of what a core multiplies at, ")));
}

TEST(LoopsCommand, GivesAssembly) {
  const CommandResult cpu = loops(kMatmul, {"--asm", "--sizes", "n=40,m=24,l=33"});
  ASSERT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_THAT(cpu.out, HasSubstr("matmul:\n"));
}

TEST(LoopsCommand, TakesAnOperatorsName) {
  const CommandResult result = loops({"loops", "rmsnorm"}, {"--check", "--sizes", "T=3,H=20"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("y[t, h] = "), HasSubstr("# right")));
}

TEST(LoopsCommand, ChecksABatchAndAFixedSize) {
  const std::vector<std::string> arguments = {"loops", kExamples + "matmul.loops", "--apply", "-"};
  const CommandResult batch =
      loops(arguments, {"--check", "--bench", "--sizes", "n=7,m=5,l=6,B=3"},
            {.stdin_text = "batch r B shared b\nsplit i 4 -> o p\ntag r g.0 o g.1 p l.0\nrename b w\n"});
  ASSERT_EQ(batch.code, 0) << batch.err;
  EXPECT_THAT(batch.out, AllOf(HasSubstr("# right: the largest difference"), HasSubstr(" GFLOP/s")));
  const CommandResult fixed =
      loops(arguments, {"--check", "--sizes", "n=7,m=5"}, {.stdin_text = "fix_parameters l 6\nsplit i 4 -> o p\n"});
  EXPECT_THAT(fixed.out, HasSubstr("# right: the largest difference")) << fixed.err;
}

TEST(LoopsCommand, SaysWhatIsWrong) {
  EXPECT_THAT(loops(kMatmul, {"--check", "--sizes", "n=4"}).err,
              HasSubstr("the size m is not known: want --sizes m=..."));
  EXPECT_THAT(loops(kMatmul, {"--check", "--sizes", "n=4,m=4,l=4,q=1"}).err, HasSubstr("there is no size \"q\""));
  EXPECT_THAT(loops(kMatmul, {"--check", "--sizes", "n"}).err, HasSubstr("--sizes: \"n\" is none: want n=1024,m=64"));
  EXPECT_THAT(loops(kMatmul, {"--target", "tpu"}).err,
              HasSubstr("--target: \"tpu\" is none of cpu, cuda, cuda:sm_90a"));
  EXPECT_THAT(loops({"loops", "-"}, {}, {.stdin_text = "{ [i] : 0 <= i < n }\n"}).err,
              HasSubstr("wanted an instruction such as"));
}

}  // namespace
}  // namespace megalith::test
