// Compilers that take for ever, as a library in this process and as a process: what a user hears, and how it ends.
#include "megalith/jit/patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/interruption.h"
#include "megalith/jit/process.h"

namespace megalith::jit {
namespace {

using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

struct Interrupted {};

// As a user who presses Ctrl-C once this is made.
struct CtrlC {
  CtrlC() {
    interruption_check_set([] { throw Interrupted(); });
  }
  ~CtrlC() { interruption_check_set(nullptr); }
};

// Until the test is over.
class Endless {
 public:
  ~Endless() { *over_ = true; }
  std::function<void()> work() const {
    return [over = over_] {
      while (!*over) std::this_thread::sleep_for(1ms);
    };
  }

 private:
  const std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(Patience, GivesWhatTheWorkMakes) {
  int made = 0;
  call_patiently("the library", [&] { made = 42; });
  EXPECT_EQ(made, 42);
  EXPECT_EQ(message_of<UserError>([] { call_patiently("the library", [] { throw UserError("wrong input"); }); }),
            "wrong input");
}

TEST(Patience, AnEndlessCallIsAnErrorAndSaysBeforeThatItTakesLong) {
  const Endless endless;
  testing::internal::CaptureStderr();
  const std::string message = message_of<SystemError>(
      [&] { call_patiently("the library", endless.work(), {.timeout = 300ms, .notice = 100ms}); });
  EXPECT_THAT(message, StartsWith("[jit] the library did not finish within 0s"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              StartsWith("megalith: warning: the library takes long: 0s so far, and it is ended after 0s; Ctrl-C"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST(Patience, AUserMayEndACall) {
  const Endless endless;
  const CtrlC pressed;
  EXPECT_THROW(call_patiently("the library", endless.work()), Interrupted);
}

TEST(Patience, AUserMayEndACompilerAndItsChildren) {
  const TemporaryFolder folder;
  const CtrlC pressed;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(process_run({"/bin/sh", "-c", "(sleep 2; touch late) & wait"}, folder.path, {}), Interrupted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1500ms);
  std::this_thread::sleep_for(2500ms);
  EXPECT_FALSE(file_exists(folder / "late"));
}

TEST(Patience, ACompilerThatTakesLongIsTold) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(process_run({"/bin/sh", "-c", "sleep 0.4"}, "/", {.notice = 100ms}).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("warning: /bin/sh takes long: 0s so far, and it is "
                                                                "ended after 20m0s"));
}

// What exit() takes down is what a thread that was left behind works with.
TEST(PatienceDeathTest, AProcessThatLeftACallBehindEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atexit([] { ::_exit(99); });
        const Endless endless;
        message_of<SystemError>([&] { call_patiently("the library", endless.work(), {.timeout = 10ms}); });
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace megalith::jit
