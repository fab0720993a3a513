#include "megalith/base/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "megalith/base/format.h"
#include "megalith/base/log.h"

namespace megalith {
namespace {

using test::EnvironmentVariable;
using testing::EndsWith;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(ProgressLine, LooksAsPromised) {
  EXPECT_EQ(progress_line({.message = "reading weights",
                           .done = 1'240'000'000,
                           .total = 3'100'000'000,
                           .unit = ProgressUnit::bytes,
                           .rate = 820e6},
                          75),
            "reading weights  40% ▕████████             ▏ 1.2 GiB/2.9 GiB  782 MiB/s  2s");
}

TEST(ProgressLine, CountsItems) {
  EXPECT_EQ(progress_line({.message = "compiling", .done = 37, .total = 112, .rate = 0.5}, 50),
            "compiling  33% ▕██████             ▏ 37/112  2m30s");
}

TEST(ProgressLine, GivesUpWhatHasNoRoom) {
  const ProgressState state{.message = "reading", .done = 50, .total = 100, .rate = 10};
  EXPECT_EQ(progress_line(state, 40), "reading  50% ▕████    ▏ 50/100  10/s  5s");
  EXPECT_EQ(progress_line(state, 30), "reading  50% ▕████    ▏ 50/100");
  EXPECT_EQ(progress_line(state, 24), "reading  50% 50/100");
  EXPECT_EQ(progress_line(state, 7), "reading");
  EXPECT_EQ(progress_line(state, 0), "");
}

TEST(ProgressLine, HundredPercentMeansFinished) {
  EXPECT_THAT(progress_line({.message = "x", .done = 9999, .total = 10000}, 60), HasSubstr(" 99%"));
  EXPECT_THAT(progress_line({.message = "x", .done = 10000, .total = 10000}, 60), HasSubstr("100%"));
  EXPECT_THAT(progress_line({.message = "x", .done = 20000, .total = 10000}, 60), HasSubstr("100%"));
}

TEST(ProgressLine, SpinsWithoutATotal) {
  EXPECT_EQ(progress_line({.message = "compiling", .seconds = 12.2, .frame = 2}, 80), "⠹ compiling  12s");
  EXPECT_EQ(progress_line({.message = "reading", .done = 2'000'000, .unit = ProgressUnit::bytes, .seconds = 61}, 80),
            "⠋ reading  1.9 MiB  1m1s");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "0.98 KiB");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(12 * 1024), "12 KiB");
  EXPECT_EQ(format_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_bytes(99.9 * 1024), "99.9 KiB");
  EXPECT_EQ(format_bytes(99.97 * 1024), "100 KiB");
  EXPECT_EQ(format_bytes(999.6 * 1024), "0.98 MiB");
  EXPECT_EQ(format_bytes(3.1 * (1 << 30)), "3.1 GiB");
}

TEST(Format, Seconds) {
  EXPECT_EQ(format_seconds(0.2), "0s");
  EXPECT_EQ(format_seconds(59.6), "1m0s");
  EXPECT_EQ(format_seconds(123), "2m3s");
  EXPECT_EQ(format_seconds(3720), "1h2m");
}

// A terminal made of two ends: what is drawn on one comes out of the other.
struct Terminal {
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  int slave = -1;
  Terminal() {
    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0) slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  }
  ~Terminal() {
    close(slave);
    close(master);
  }
  std::string read_all() const {
    std::string text;
    char buffer[4096];
    for (pollfd wait{master, POLLIN, 0}; poll(&wait, 1, 50) > 0;) {
      const ssize_t n = read(master, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
};

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    if (terminal.slave < 0) GTEST_SKIP() << "[SKIP] no pseudo-terminals here";
  }
  EnvironmentVariable color{"NO_COLOR", nullptr};
  EnvironmentVariable term{"TERM", "xterm"};
  Terminal terminal;
};

TEST_F(ProgressTest, DrawsOnATerminalAndErasesAtTheEnd) {
  {
    Progress progress("working", 4000, ProgressUnit::items, terminal.slave);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) progress.advance();
      });
    threads.clear();
    std::this_thread::sleep_for(350ms);
    progress.message_set("ending");
    std::this_thread::sleep_for(250ms);
  }
  const std::string text = terminal.read_all();
  EXPECT_THAT(text, HasSubstr("\rworking 100%"));
  EXPECT_THAT(text, HasSubstr("4000/4000"));
  EXPECT_THAT(text, HasSubstr("\rending 100%"));
  EXPECT_THAT(text, EndsWith("\r\033[K"));
}

TEST_F(ProgressTest, WhatIsQuickIsNotDrawn) {
  { Progress progress("working", 10, ProgressUnit::items, terminal.slave); }
  EXPECT_EQ(terminal.read_all(), "");
}

TEST_F(ProgressTest, NothingWithoutColour) {
  color.set("1");
  Progress progress("working", 0, ProgressUnit::items, terminal.slave);
  std::this_thread::sleep_for(350ms);
  EXPECT_EQ(terminal.read_all(), "");
}

TEST_F(ProgressTest, NothingOnADumbTerminal) {
  term.set("dumb");
  Progress progress("working", 0, ProgressUnit::items, terminal.slave);
  std::this_thread::sleep_for(350ms);
  EXPECT_EQ(terminal.read_all(), "");
}

TEST_F(ProgressTest, NothingWhenQuiet) {
  const LogLevel before = log_level();
  log_level_set(LogLevel::quiet);
  Progress progress("working", 0, ProgressUnit::items, terminal.slave);
  log_level_set(before);
  std::this_thread::sleep_for(350ms);
  EXPECT_EQ(terminal.read_all(), "");
}

TEST_F(ProgressTest, NothingIntoAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  {
    Progress progress("working", 0, ProgressUnit::items, ends[1]);
    std::this_thread::sleep_for(350ms);
  }
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), -1);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace megalith
