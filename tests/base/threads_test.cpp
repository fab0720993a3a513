#include "megalith/base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"

namespace megalith {
namespace {

TEST(Helpers, AllWorkAndAreJoined) {
  std::atomic<int> runs = 0;
  {
    const auto helpers = start_helpers(3, [&] { ++runs; });
  }
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(start_helpers(0, [] {}).empty());
  EXPECT_TRUE(start_helpers(-1, [] {}).empty());
}

TEST(Indices, EachIsWorkedOnOnce) {
  std::vector<std::atomic<int>> times(1000);
  for_each_index(times.size(), 4, [&](size_t i, const std::atomic<bool>&) { ++times[i]; });
  for (const std::atomic<int>& count : times) EXPECT_EQ(count, 1);
  for_each_index(0, 4, [](size_t, const std::atomic<bool>&) { FAIL(); });
}

TEST(Indices, TheFirstErrorComesOutWhenAllHaveEnded) {
  std::atomic<int> begun = 0, at_work = 0;
  auto work = [&](size_t i, const std::atomic<bool>& is_over) {
    ++begun;
    ++at_work;
    if (i == 1) {
      --at_work;
      throw UserError("one is wrong");
    }
    while (!is_over) std::this_thread::yield();
    --at_work;
  };
  EXPECT_THAT([&] { for_each_index(100, 3, work); }, ::testing::ThrowsMessage<UserError>("one is wrong"));
  EXPECT_EQ(at_work, 0);
  EXPECT_LE(begun, 3);  // the others were left out
}

// Ctrl-C while helpers work and this thread has nothing left to do.
TEST(Indices, AnInterruptionEndsHelpersAsWell) {
  struct Interrupted {};
  interruption_check_set([] { throw Interrupted(); });
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helper_works = false;
  std::atomic<int> ended = 0;
  auto work = [&](size_t, const std::atomic<bool>& is_over) {
    if (std::this_thread::get_id() == caller) {
      while (!helper_works) std::this_thread::yield();
    } else {
      helper_works = true;
      while (!is_over) std::this_thread::yield();
    }
    ++ended;
  };
  EXPECT_THROW(for_each_index(2, 2, work), Interrupted);
  interruption_check_set(nullptr);
  EXPECT_EQ(ended, 2);
}

#ifndef MEGALITH_SANITIZE  // its threads need more address space than is left
// In a process of its own, since no more memory is to be had there, for a thread's stack or anything large.
TEST(Helpers, WhereThereAreNoThreadsThereAreFewerHelpers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit nothing_more = {};  // 0 bytes
        setrlimit(RLIMIT_AS, &nothing_more);
        std::atomic<int> runs = 0;
        const size_t started = start_helpers(2, [&] { ++runs; }).size();
        std::fprintf(stderr, "%zu started, %d ran\n", started, runs.load());
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "0 of 2 threads could be started \\(.*\\); it goes on with fewer\n0 started, 0 ran");
}
#endif

}  // namespace
}  // namespace megalith
