// What the machine says about itself, from this machine's files and from made-up ones; and large mappings.
#include "megalith/runtime/topology.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/runtime/memory.h"

namespace megalith::runtime {
namespace {

/// A tree of small files under a temporary root, in the place of /proc and /sys.
struct FakeRoot {
  std::string root = testing::TempDir() + "megalith_topology_test";
  FakeRoot() { std::filesystem::remove_all(root); }
  ~FakeRoot() { std::filesystem::remove_all(root); }
  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    file_write_atomic(root + path, content);
  }
};

TEST(Topology, ThisMachine) {
  const CpuTopology topology = cpu_topology();
  EXPECT_FALSE(topology.cores.empty());
  EXPECT_GE(topology.num_usable(), 1);
  EXPECT_LE(topology.num_usable(), static_cast<int>(topology.cores.size()));
  EXPECT_GT(topology.memory_bytes, 0);
  EXPECT_GT(memory_available_bytes(), 0);
  EXPECT_LE(memory_available_bytes(), topology.memory_bytes);
}

TEST(Topology, ReadsModelFlagsMemoryAndCaches) {
  FakeRoot fake;
  const std::string core = fmt::format("/sys/devices/system/cpu/cpu{}/cache/", affinity_cores()[0]);
  fake.file("/proc/cpuinfo",
            "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Example 9000\nflags\t\t: fpu avx2 fma sse4_2 avx512f\n");
  fake.file("/proc/meminfo", "MemTotal:       2048 kB\nMemFree:  1 kB\nMemAvailable:   1024 kB\n");
  fake.file(core + "index0/level", "1\n");
  fake.file(core + "index0/type", "Data\n");
  fake.file(core + "index0/size", "48K\n");
  fake.file(core + "index0/shared_cpu_list", "0\n");
  fake.file(core + "index1/level", "3\n");
  fake.file(core + "index1/type", "Unified\n");
  fake.file(core + "index1/size", "32M\n");
  fake.file(core + "index1/shared_cpu_list", "0-3,8-11,16\n");
  const CpuTopology topology = cpu_topology(fake.root);
  EXPECT_EQ(topology.model, "Example 9000");
  EXPECT_THAT(topology.simd, testing::ElementsAre("sse4_2", "fma", "avx2", "avx512f"));
  EXPECT_EQ(topology.memory_bytes, 2048 * 1024);
  EXPECT_EQ(memory_available_bytes(fake.root), 1024 * 1024);
  ASSERT_EQ(topology.caches.size(), 2u);
  EXPECT_EQ(topology.caches[0].type, "Data");
  EXPECT_EQ(topology.caches[0].bytes, 48 * 1024);
  EXPECT_EQ(topology.caches[1].bytes, 32 << 20);
  EXPECT_EQ(topology.caches[1].num_sharing, 9);
  EXPECT_EQ(topology.quota_cores, 0);
}

TEST(Topology, QuotaOfTheNarrowestCgroup) {
  FakeRoot fake;
  fake.file("/proc/self/cgroup", "0::/pod/box\n");
  fake.file("/sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  fake.file("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  const CpuTopology topology = cpu_topology(fake.root);
  EXPECT_DOUBLE_EQ(topology.quota_cores, 1.5);
  EXPECT_EQ(topology.num_usable(), 1);
}

TEST(Topology, QuotaOfOldCgroupsAndOfHiddenPaths) {
  FakeRoot fake;
  fake.file("/proc/self/cgroup", "5:memory:/hidden\n4:cpuacct,cpu:/hidden\n");
  fake.file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  fake.file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cpu_topology(fake.root).quota_cores, 0.5);
  EXPECT_EQ(cpu_topology(fake.root).num_usable(), 1);
}

TEST(Topology, MemoryOfTheCgroup) {
  FakeRoot fake;
  fake.file("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 4096 kB\n");
  fake.file("/proc/self/cgroup", "0::/box\n");
  fake.file("/sys/fs/cgroup/box/memory.max", "1048576\n");
  fake.file("/sys/fs/cgroup/box/memory.current", "1000000\n");
  fake.file("/sys/fs/cgroup/box/memory.stat", "anon 1\ninactive_file 500000\n");
  EXPECT_EQ(cpu_topology(fake.root).memory_bytes, 1048576);
  EXPECT_EQ(memory_available_bytes(fake.root), 1048576 - 1000000 + 500000);
  // Weights that were read twice count as active.
  fake.file("/sys/fs/cgroup/box/memory.stat", "anon 1\ninactive_file 500000\nactive_file 300000\n");
  EXPECT_EQ(memory_available_bytes(fake.root), 1048576 - 1000000 + 800000);
}

TEST(Topology, MemoryOfAnOldCgroupAndOfThoseBelowIt) {
  FakeRoot fake;
  fake.file("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 4096 kB\n");
  fake.file("/proc/self/cgroup", "5:memory:/box\n");
  fake.file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1048576\n");
  fake.file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1000000\n");
  fake.file("/sys/fs/cgroup/memory/box/memory.stat",
            "inactive_file 10\nactive_file 20\ntotal_inactive_file 100000\ntotal_active_file 200000\n");
  EXPECT_EQ(memory_available_bytes(fake.root), 1048576 - 1000000 + 300000);
}

TEST(Mapping, LargeOnesAreAlignedZeroedAndWritable) {
  const int64_t bytes = (6 << 20) + 100;
  Mapping mapping(bytes, "test");
  EXPECT_EQ(mapping.bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping.data()) % (2 << 20), 0u);
  EXPECT_EQ(mapping.data()[bytes - 1], std::byte{0});
  std::memset(mapping.data(), 1, bytes);
  Mapping moved = std::move(mapping);
  EXPECT_EQ(moved.data()[0], std::byte{1});
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_EQ(Mapping(0, "nothing").data(), nullptr);
}

TEST(Mapping, TooLargeSaysWhatIsWantedAndAvailable) {
  try {
    Mapping(int64_t{1} << 50, "weights");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), testing::MatchesRegex("\\[memory\\] cannot map 1 PiB for weights: not enough memory "
                                                    "\\([0-9.]+ [GM]iB available\\); close something.*"));
  }
}

}  // namespace
}  // namespace megalith::runtime
