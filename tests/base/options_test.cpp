#include "megalith/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"

namespace megalith {
namespace {

using test::EnvironmentVariable;
using test::message_of;
using testing::HasSubstr;

TEST(Options, ADefaultUnlessSet) {
  EnvironmentVariable limit("MEGALITH_CACHE_LIMIT_MB", nullptr);
  EXPECT_EQ(option_integer("MEGALITH_CACHE_LIMIT_MB"), 2048);
  EXPECT_FALSE(option_is_set("MEGALITH_CACHE_LIMIT_MB"));
  limit.set("7");
  EXPECT_EQ(option_integer("MEGALITH_CACHE_LIMIT_MB"), 7);
  EXPECT_TRUE(option_is_set("MEGALITH_CACHE_LIMIT_MB"));
  // As a shell leaves it after "export X=".
  limit.set("");
  EXPECT_EQ(option_value("MEGALITH_CACHE_LIMIT_MB"), "2048");
  EXPECT_FALSE(option_is_set("MEGALITH_CACHE_LIMIT_MB"));
}

TEST(Options, ANumberThatIsNoneIsAnError) {
  for (const char* text : {"1G", "-1", "x", " 1", "8796093022208", "99999999999999999999"}) {
    EnvironmentVariable limit("MEGALITH_CACHE_LIMIT_MB", text);
    EXPECT_EQ(message_of<UserError>([] { option_integer("MEGALITH_CACHE_LIMIT_MB"); }),
              std::string("MEGALITH_CACHE_LIMIT_MB is \"") + text + "\", want a whole number of 0 to 1099511627776");
  }
}

TEST(Options, OneThatIsNotInTheTableIsOurMistake) {
  EXPECT_EQ(message_of<InternalError>([] { option_value("MEGALITH_TYPO"); }),
            "option MEGALITH_TYPO is not in the table of base/options.cpp");
}

TEST(Options, TheTableIsReadable) {
  std::set<std::string> names;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name << " is listed twice";
    EXPECT_THAT(option.meaning, testing::EndsWith(".")) << option.name;
    EXPECT_TRUE(std::string(option.name).starts_with("MEGALITH_") || std::string(option.name) == "NO_COLOR")
        << option.name;
  }
}

// docs/jit.md has the table, too.
TEST(Options, TheDocumentNamesEach) {
  const std::string page = file_read(MEGALITH_SOURCE_DIR "/docs/jit.md");
  for (const Option& option : option_table())
    EXPECT_THAT(page, HasSubstr("`" + std::string(option.name) + "`")) << "docs/jit.md, Environment";
}

// The header says which variables are read beside those of the table.
TEST(Options, NoOtherVariableIsRead) {
  const std::string header = file_read(MEGALITH_SOURCE_DIR "/megalith/base/options.h");
  const std::regex look(R"re(getenv\("(\w+)"\))re");
  for (const char* folder : {"/megalith", "/tools", "/python/src"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(MEGALITH_SOURCE_DIR + std::string(folder))) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
      const std::string text = file_read(entry.path());
      for (std::sregex_iterator found(text.begin(), text.end(), look), end; found != end; ++found)
        EXPECT_THAT(header, HasSubstr((*found)[1].str())) << entry.path();
    }
}

TEST(Error, ChecksThrowTheUsersError) {
  EXPECT_EQ(message_of<UserError>([] { MEGALITH_CHECK(1 == 2, "[linear] got {}, want {}", 1, 2); }),
            "[linear] got 1, want 2");
  MEGALITH_CHECK(true, "never");
}

TEST(Error, AssertsNameThePlace) {
  const std::string message = message_of<InternalError>([] { MEGALITH_ASSERT(1 == 2, "[task] lost {}", 3); });
  EXPECT_THAT(message, HasSubstr("[task] lost 3 (internal error at "));
  EXPECT_THAT(message, HasSubstr("options_test.cpp:"));
  EXPECT_THAT(message, HasSubstr("1 == 2 does not hold; please report it)"));
}

TEST(Error, SystemErrorsSayTheReason) {
  errno = ENOSPC;
  EXPECT_STREQ(system_error("cannot write a").what(), "cannot write a: No space left on device");
}

TEST(Error, AllKindsAreErrors) {
  EXPECT_THROW(throw UserError("x"), Error);
  EXPECT_THROW(throw InternalError("x"), Error);
  EXPECT_THROW(throw SystemError("x"), Error);
}

class LogTest : public testing::Test {
 protected:
  std::string written(LogLevel level, void (*action)()) {
    const LogLevel before = log_level();
    log_level_set(level);
    testing::internal::CaptureStderr();
    action();
    log_level_set(before);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, LevelsFilter) {
  auto all = [] {
    log_warn("w {}", 1);
    log_info("i {}", 2);
    log_debug("d {}", 3);
  };
  EXPECT_EQ(written(LogLevel::quiet, all), "");
  EXPECT_EQ(written(LogLevel::warn, all), "megalith: warning: w 1\n");
  EXPECT_EQ(written(LogLevel::info, all), "megalith: warning: w 1\nmegalith: i 2\n");
  EXPECT_EQ(written(LogLevel::debug, all), "megalith: warning: w 1\nmegalith: i 2\nmegalith: debug: d 3\n");
}

}  // namespace
}  // namespace megalith
