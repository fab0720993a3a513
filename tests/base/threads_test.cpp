#include "megalith/base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

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
