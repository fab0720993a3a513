// What the machine reads in a second, and how much memory a process holds.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "megalith/base/error.h"
#include "megalith/runtime/bandwidth.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/resident_memory.h"

namespace megalith::runtime {
namespace {

TEST(Bandwidth, IsWithinReason) {
  for (int threads : {1, 2, 5}) {
    const double gbs = cpu_read_bandwidth_gbs({.num_threads = threads, .seconds = 0.02, .bytes_per_thread = 32 << 20});
    EXPECT_GT(gbs, 0.05) << threads;  // a sanitizer on a busy machine
    EXPECT_LT(gbs, 400 * threads);    // no core reads so much
    std::printf("[ FIGURE   ] read bandwidth of %d threads: %.1f GB/s\n", threads, gbs);
  }
}

TEST(Bandwidth, OfNoThreadsIsAnError) { EXPECT_THROW(cpu_read_bandwidth_gbs({.num_threads = 0}), UserError); }

TEST(ResidentMemory, ReadsWhatTheSystemSays) {
  const std::string root = ::testing::TempDir() + "resident_memory";
  std::filesystem::create_directories(root + "/proc/self");
  std::ofstream(root + "/proc/self/status")
      << "Name:\tmegalith\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssFile:\t     512 kB\nThreads:\t1\n";
  const ResidentMemory memory = resident_memory(root);
  EXPECT_EQ(memory.peak, 2 << 20);
  EXPECT_EQ(memory.now, 1 << 20);
  EXPECT_EQ(memory.from_files, 1 << 19);
  EXPECT_EQ(resident_memory("/nowhere").now, 0);
}

TEST(ResidentMemory, SeesWhatIsHeldAndForgetsWhatWas) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = resident_memory().now;
  if (before == 0) GTEST_SKIP() << "[SKIP] no /proc/self/status";
  {
    const Mapping memory(kBytes, "a test");
    std::memset(memory.data(), 1, kBytes);
    EXPECT_GE(resident_memory().now, before + kBytes / 2);
  }
  EXPECT_GE(resident_memory().peak, before + kBytes / 2);
  if (!resident_peak_reset()) GTEST_SKIP() << "[SKIP] this system does not reset the peak";
  EXPECT_LT(resident_memory().peak, before + kBytes / 2);
}

}  // namespace
}  // namespace megalith::runtime
