#include "megalith/jit/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "megalith/base/file.h"

namespace megalith::jit {
namespace {

using megalith::test::EnvironmentVariable;
using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using testing::HasSubstr;

// A stage whose value is a number.
std::string print(const int& value) { return std::to_string(value); }
int parse(const std::string& text) {
  if (text.find_first_not_of("0123456789") != std::string::npos)
    throw UserError("line 1: want a number, got \"" + text + "\"");
  return std::stoi(text);
}
void check_even(const int& value) { MEGALITH_ASSERT(value % 2 == 0, "{} is odd", value); }

int run(Pipeline& pipeline, int value) {
  return pipeline.stage(
      {"count", "count.txt"}, [&] { return value; }, print, parse, check_even);
}

TEST(Stage, ReturnsWhatIsComputedAndReportsIt) {
  Pipeline pipeline("toy", {});
  EXPECT_EQ(run(pipeline, 42), 42);
  const CompileReport report = pipeline.finish();
  ASSERT_EQ(report.stages.size(), 1u);
  EXPECT_EQ(report.stages[0].name, "count");
  EXPECT_EQ(report.stages[0].file, "count.txt");
  EXPECT_EQ(report.stages[0].from, StageFrom::computed);
  EXPECT_EQ(report.stages[0].bytes, -1) << "nobody asked for the artifact, so it must not be printed";
  EXPECT_GE(report.total_ms, report.stages[0].ms);
  EXPECT_THAT(report.table(), HasSubstr("computed"));
}

TEST(Stage, MovesValuesThatCannotBeCopied) {
  Pipeline pipeline("toy", {});
  auto value = pipeline.stage(
      {"own", ""}, [] { return std::make_unique<int>(7); }, nullptr, nullptr, nullptr);
  EXPECT_EQ(*value, 7);
}

TEST(Stage, DumpsUnderTheKernelsName) {
  TemporaryFolder folder;
  EnvironmentVariable dump("MEGALITH_DUMP", folder / "dump");
  Pipeline pipeline("models/story teller");
  run(pipeline, 42);
  EXPECT_EQ(file_read(folder / "dump/models_story_teller/count.txt"), "42");
  EXPECT_EQ(pipeline.finish().stages[0].bytes, 2);
}

TEST(Stage, KeepsTheArtifactInTheReport) {
  Pipeline pipeline("toy", {.keep = {"count"}});
  run(pipeline, 42);
  EXPECT_EQ(pipeline.finish().stages[0].text, "42");
}

TEST(Stage, TakesAnEditedArtifactInstead) {
  TemporaryFolder folder;
  EnvironmentVariable variable("MEGALITH_OVERRIDE", folder.path);
  file_write_atomic(folder / "count.txt", "8");
  {
    Pipeline pipeline("toy");
    EXPECT_EQ(run(pipeline, 42), 8);
    EXPECT_EQ(pipeline.finish().stages[0].from, StageFrom::override_file);
  }
  // The file in the kernel's own folder is nearer.
  directory_create(folder / "toy");
  file_write_atomic(folder / "toy/count.txt", "6");
  Pipeline pipeline("toy");
  EXPECT_EQ(run(pipeline, 42), 6);
}

TEST(Stage, AnOverrideIsDumpedAsItWasEdited) {
  TemporaryFolder folder;
  file_write_atomic(folder / "count.txt", "0008");
  Pipeline pipeline("toy", {.dump_directory = folder / "dump", .override_directory = folder.path});
  EXPECT_EQ(run(pipeline, 42), 8);
  EXPECT_EQ(file_read(folder / "dump/toy/count.txt"), "0008");
}

TEST(Stage, AnOverrideThatDoesNotParseNamesTheFile) {
  TemporaryFolder folder;
  file_write_atomic(folder / "count.txt", "eight");
  Pipeline pipeline("toy", {.override_directory = folder.path});
  EXPECT_EQ(message_of<UserError>([&] { run(pipeline, 42); }),
            "[jit] the override " + folder.path +
                "/count.txt of stage \"count\" does not parse: line 1: want a number, got \"eight\" (MEGALITH_DUMP=dir "
                "writes "
                "one that does)");
}

TEST(Stage, AnOverrideThatFailsTheCheckNamesTheFile) {
  TemporaryFolder folder;
  file_write_atomic(folder / "count.txt", "7");
  Pipeline pipeline("toy", {.override_directory = folder.path});
  EXPECT_THAT(message_of<UserError>([&] { run(pipeline, 42); }),
              HasSubstr("[jit] the override " + folder.path + "/count.txt of stage \"count\" is wrong: 7 is odd"));
}

TEST(Stage, AnOverrideOfAStageThatCannotBeReadBackIsAnError) {
  TemporaryFolder folder;
  file_write_atomic(folder / "count.txt", "7");
  Pipeline pipeline("toy", {.override_directory = folder.path});
  auto no_parser = [&] {
    pipeline.stage(
        {"count", "count.txt"}, [] { return 1; }, print, nullptr, nullptr);
  };
  EXPECT_EQ(message_of<UserError>(no_parser),
            "[jit] " + folder.path +
                "/count.txt would replace the artifact of stage \"count\", which cannot be read "
                "back; remove it");
}

TEST(Stage, AMistypedOverrideDirectoryIsAnError) {
  EnvironmentVariable variable("MEGALITH_OVERRIDE", "/no/such/place");
  EXPECT_EQ(message_of<UserError>([] { Pipeline pipeline("toy"); }),
            "[jit] MEGALITH_OVERRIDE is \"/no/such/place\", which is not a directory");
}

TEST(Stage, AnOverrideDirectoryThatNoStageUsedIsWarnedOf) {
  TemporaryFolder folder;
  Pipeline pipeline("toy", {.override_directory = folder.path});
  run(pipeline, 42);
  testing::internal::CaptureStderr();
  pipeline.finish();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "megalith: warning: MEGALITH_OVERRIDE=" + folder.path +
                " holds no artifact of \"toy\"; the stages' files are count.txt\n");
}

TEST(Stage, AFailedCheckSaysWhereTheArtifactLies) {
  TemporaryFolder folder;
  Pipeline pipeline("toy", {.dump_directory = folder.path});
  EXPECT_THAT(message_of<InternalError>([&] { run(pipeline, 41); }),
              HasSubstr("(checking stage \"count\" of \"toy\"; its artifact is " + folder.path + "/toy/count.txt)"));
  EXPECT_EQ(file_read(folder / "toy/count.txt"), "41");
}

TEST(Stage, ErrorsInAStageKeepTheirKind) {
  Pipeline pipeline("toy", {});
  auto fail_with = [&](auto error) {
    pipeline.stage(
        {"count", "count.txt"}, [&]() -> int { throw error; }, print, parse, nullptr);
  };
  EXPECT_EQ(message_of<UserError>([&] { fail_with(UserError("[linear] no")); }), "[linear] no");
  EXPECT_EQ(message_of<SystemError>([&] { fail_with(SystemError("[jit] no")); }), "[jit] no");
  EXPECT_EQ(message_of<SystemError>([&] { fail_with(std::bad_alloc()); }),
            "[jit] memory does not suffice (in stage \"count\" of \"toy\"; MEGALITH_DUMP=dir keeps the artifacts)");
  EXPECT_EQ(message_of<InternalError>([&] { fail_with(std::runtime_error("vector::at")); }),
            "vector::at (in stage \"count\" of \"toy\"; MEGALITH_DUMP=dir keeps the artifacts)");
}

TEST(Stage, ListenersHearOfStagesAndOfTheEnd) {
  std::string heard;
  PipelineOptions options;
  options.listener.stage_begins = [&](const std::string& kernel, const StageSpec& spec) {
    heard += kernel + ":" + spec.name + " ";
  };
  options.listener.finished = [&](const CompileReport& report) { heard += report.cache_hit ? "hit" : "miss"; };
  Pipeline pipeline("toy", options);
  run(pipeline, 42);
  pipeline.finish();
  EXPECT_EQ(heard, "toy:count miss");
}

TEST(Stage, KernelNamesCannotLeaveTheDumpDirectory) {
  EXPECT_EQ(file_name_of("../../etc"), ".._.._etc");
  EXPECT_EQ(file_name_of(".."), ".._");
  EXPECT_EQ(file_name_of(""), "_");
}

}  // namespace
}  // namespace megalith::jit
