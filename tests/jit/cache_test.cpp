#include "megalith/jit/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/jit/build_id.h"

namespace megalith::jit {
namespace {

namespace fs = std::filesystem;
using megalith::test::EnvironmentVariable;
using megalith::test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kRoomForAll = int64_t{1} << 30;

std::string put(const KernelCache& cache, const std::string& key, const std::string& content) {
  const std::string workspace = cache.workspace(key);
  file_write_atomic(workspace + "/kernel.cpp", "int x;");
  file_write_atomic(workspace + "/kernel.so", content);
  return cache.store(key, "toy", workspace);
}

std::vector<std::string> keys_of(const KernelCache& cache) {
  std::vector<std::string> keys;
  for (const CacheEntry& entry : cache.list()) keys.push_back(entry.key);
  return keys;
}

TEST(Cache, StoresAndFinds) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  EXPECT_FALSE(cache.find(key));
  const std::string entry = put(cache, key, "binary");
  EXPECT_EQ(entry, folder.path + "/kernels/" + key);
  EXPECT_EQ(cache.find(key), entry);
  EXPECT_EQ(file_read(entry + "/kernel.so"), "binary");
  ASSERT_EQ(cache.list().size(), 1u);
  EXPECT_EQ(cache.list()[0].name, "toy");
  EXPECT_EQ(cache.list()[0].bytes, cache.bytes());
}

TEST(Cache, GivesWhatItHasLookedAt) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  EXPECT_FALSE(cache.find_files(key));
  const std::string entry = put(cache, key, "binary");
  const EntryFiles whole = {{"kernel.cpp", "int x;"}, {"kernel.so", "binary"}};
  EXPECT_EQ(cache.find_files(key), whole);
  file_write_atomic(entry + "/kernel.so", "binarx");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.find_files(key));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("kernel.so has changed"));
}

TEST(Cache, ReplacesAnEntry) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  put(cache, key, "old");
  EXPECT_EQ(file_read(put(cache, key, "new") + "/kernel.so"), "new");
  EXPECT_THAT(keys_of(cache), ElementsAre(key));
}

struct Damage {
  const char* name;
  void (*harm)(const std::string& entry);
  const char* said;
};
class CacheDamage : public testing::TestWithParam<Damage> {};

TEST_P(CacheDamage, IsAMissAndIsRemoved) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  const std::string entry = put(cache, key, "binary");
  GetParam().harm(entry);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.find(key));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(GetParam().said));
  EXPECT_FALSE(file_exists(entry));
  put(cache, key, "binary");
  EXPECT_TRUE(cache.find(key));
}

INSTANTIATE_TEST_SUITE_P(
    All, CacheDamage,
    testing::Values(
        Damage{"child_deleted", [](const std::string& entry) { fs::remove(entry + "/kernel.so"); },
               "kernel.so: No such file or directory"},
        Damage{"truncated", [](const std::string& entry) { fs::resize_file(entry + "/kernel.so", 3); },
               "kernel.so has 3 bytes, not 6"},
        Damage{"changed", [](const std::string& entry) { file_write_atomic(entry + "/kernel.so", "binarx"); },
               "kernel.so has changed"},
        Damage{"a_file_too_many", [](const std::string& entry) { file_write_atomic(entry + "/more.so", "x"); },
               "info.json has no file \"more.so\""},
        Damage{"a_folder_too_many", [](const std::string& entry) { fs::create_directory(entry + "/more"); },
               "info.json has no file \"more\""},
        Damage{"a_pipe",
               [](const std::string& entry) {
                 fs::remove(entry + "/kernel.so");
                 ASSERT_EQ(::mkfifo((entry + "/kernel.so").c_str(), 0600), 0);
               },
               "kernel.so is not a regular file"},
        Damage{"endless_info",
               [](const std::string& entry) { fs::resize_file(entry + "/info.json", uintmax_t{1} << 40); },
               "info.json has 1099511627776 bytes, want at most 1048576"},
        Damage{"endless_child",
               [](const std::string& entry) { fs::resize_file(entry + "/kernel.so", uintmax_t{1} << 40); },
               "kernel.so has 1099511627776 bytes, want at most"},
        Damage{"moved",
               [](const std::string& entry) {
                 std::string text = file_read(entry + "/info.json");
                 text.replace(text.find(hash_hex("a")), hash_hex("b").size(), hash_hex("b"));
                 file_write_atomic(entry + "/info.json", text);
               },
               "is of another entry"},
        Damage{"no_info", [](const std::string& entry) { fs::remove(entry + "/info.json"); }, "info.json"},
        Damage{"half_info", [](const std::string& entry) { fs::resize_file(entry + "/info.json", 20); },
               "unexpected end of input"},
        Damage{"empty_info", [](const std::string& entry) { file_write_atomic(entry + "/info.json", "{}"); }, "files"}),
    [](const auto& damage) { return damage.param.name; });

TEST(Cache, EvictsTheLeastRecentlyUsed) {
  TemporaryFolder folder;
  const std::string a = hash_hex("a"), b = hash_hex("b"), c = hash_hex("c");
  KernelCache roomy(folder.path, kRoomForAll);
  const std::string content(10000, 'x');
  put(roomy, a, content);
  put(roomy, b, content);
  // a was used last, whatever the order of writing.
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  ::utimensat(AT_FDCWD, (folder.path + "/kernels/" + b).c_str(), old, 0);
  EXPECT_TRUE(roomy.find(a));
  KernelCache tight(folder.path, 25000);
  put(tight, c, content);
  EXPECT_FALSE(tight.find(b));
  EXPECT_TRUE(tight.find(a));
  EXPECT_TRUE(tight.find(c));
}

TEST(Cache, NeverEvictsWhatItJustStored) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, 0);
  put(cache, hash_hex("a"), "binary");
  put(cache, hash_hex("b"), "binary");
  EXPECT_THAT(keys_of(cache), ElementsAre(hash_hex("b")));
}

TEST(Cache, ALockIsExclusiveAndLeavesNoFile) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  std::atomic<int> inside = 0;  // atomic only because ThreadSanitizer does not know that flock() orders threads
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const CacheLock lock = cache.lock(key);
        ASSERT_TRUE(lock.held());
        ASSERT_EQ(++inside, 1);
        --inside;
      }
    });
  threads.clear();
  EXPECT_TRUE(fs::is_empty(folder / "locks"));
}

// ---- locks that nobody lets go ----------------------------------------------------------------------

TEST(Cache, ALockIsWaitedForOnlySoLong) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  const CacheLock held = cache.lock(key);
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(cache.lock(key, {.timeout = std::chrono::milliseconds(300)}).held());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("process " + std::to_string(getpid()) + " holds "), HasSubstr("for 0s"),
                    HasSubstr("the kernel is compiled here as well")));
}

TEST(Cache, AStoppedHolderIsNotWaitedFor) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  const pid_t child = fork();
  if (child == 0) {
    const CacheLock lock = cache.lock(key);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.lock(key, {.timeout = std::chrono::minutes(5), .stopped = std::chrono::milliseconds(200)}).held());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("process " + std::to_string(child)),
                                                            HasSubstr("is stopped: the kernel is compiled here")));
  kill(child, SIGCONT);
  waitpid(child, &status, 0);
  EXPECT_TRUE(cache.lock(key).held()) << "it went on and let go";
}

// Whoever compiles without the lock works where the holder of the lock, who clears up, leaves it alone.
TEST(Cache, AWorkspaceIsLeftAloneThoughAnotherHoldsTheLock) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  const std::string workspace = cache.workspace(key);
  const CacheLock lock = cache.lock(key);
  EXPECT_TRUE(file_exists(workspace));
  put(cache, key, "the holder's");
  file_write_atomic(workspace + "/kernel.so", "ours");
  cache.store(key, "toy", workspace);
  EXPECT_EQ(file_read(*cache.find(key) + "/kernel.so"), "ours");
  const std::string discarded = cache.workspace(key);
  cache.discard(discarded);
  EXPECT_FALSE(file_exists(discarded));
}

TEST(Cache, AWorkspaceHasANameThatNobodyForesees) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a"), a = cache.workspace(key), b = cache.workspace(key);
  EXPECT_NE(a, b);
  EXPECT_EQ(a.find(std::to_string(getpid())), std::string::npos) << a;
  EXPECT_EQ(fs::status(a).permissions(), fs::perms::owner_all);
}

TEST(Cache, WhoWaitsLongForALockIsToldWhy) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string key = hash_hex("a");
  testing::internal::CaptureStderr();
  CacheLock held = cache.lock(key);
  std::jthread waits([&] { EXPECT_TRUE(cache.lock(key).held()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  held = {};
  waits.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("locks/" + key));
}

// What a process leaves that is killed while it compiles.
std::string leave_workspace_and_die(const KernelCache& cache, const std::string& key) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    CacheLock lock = cache.lock(key);
    const std::string workspace = cache.workspace(key);
    (void)!write(pipe_ends[1], workspace.data(), workspace.size());
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  std::string workspace(4096, '\0');
  workspace.resize(static_cast<size_t>(read(pipe_ends[0], workspace.data(), workspace.size())));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_TRUE(file_exists(workspace));
  return workspace;
}

TEST(Cache, WhatTheDeadLeftIsClearedByTheNextHolderOfTheLock) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string workspace = leave_workspace_and_die(cache, hash_hex("a"));
  CacheLock lock = cache.lock(hash_hex("a"));
  EXPECT_TRUE(lock.held());
  EXPECT_FALSE(file_exists(workspace));
}

TEST(Cache, WhatTheDeadLeftIsClearedByAnyoneWhoStores) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const std::string workspace = leave_workspace_and_die(cache, hash_hex("a"));
  put(cache, hash_hex("b"), "binary");
  EXPECT_FALSE(file_exists(workspace));
}

TEST(Cache, WorkspacesOfTheLivingAreLeftAlone) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  const CacheLock lock = cache.lock(hash_hex("a"));
  const std::string workspace = cache.workspace(hash_hex("a"));
  put(cache, hash_hex("b"), "binary");
  EXPECT_GT(cache.clear(), 0);
  EXPECT_TRUE(file_exists(workspace));
  EXPECT_TRUE(cache.list().empty());
}

TEST(Cache, ClearTakesLocksOfTheDead) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  fs::remove_all(leave_workspace_and_die(cache, hash_hex("a")));
  cache.clear();
  EXPECT_TRUE(fs::is_empty(folder.path));
}

// JSON is UTF-8, and a model's folder need not be.
TEST(Cache, TakesNamesThatAreNotUtf8) {
  TemporaryFolder folder;
  KernelCache cache(folder / "caf\xe9", kRoomForAll);
  const std::string workspace = cache.workspace(hash_hex("a"));
  file_write_atomic(workspace + "/kernel.so", "binary");
  cache.store(hash_hex("a"), "caf\xe9", workspace);
  EXPECT_TRUE(cache.find(hash_hex("a")));
  EXPECT_EQ(cache.list().at(0).name, "caf\xef\xbf\xbd");
}

// Two who make, find, remove and clear at once: an entry that is found is whole, and nobody fails.
TEST(Cache, ProcessesThatMakeAndRemoveAtOnceDoNotFail) {
  TemporaryFolder folder;
  const std::string contents[] = {std::string(1000, 'x'), std::string(2000, 'y')};
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    int code = 0;
    try {
      const KernelCache cache(folder.path, kRoomForAll);
      for (int i = 0; i < 150; ++i) {
        const std::string key = hash_hex(std::to_string(i % 3));
        if (c == 0 && i % 3 == 0) cache.clear();
        if (c == 1) cache.remove(key);
        if (c == 1) continue;
        const CacheLock lock = cache.lock(key);
        if (!lock.held()) code = 2;
        put(cache, key, contents[(i + c) % 2]);
        cache.list();
        cache.find(key);
      }
    } catch (const std::exception& error) {
      fprintf(stderr, "child %d: %s\n", c, error.what());
      code = 1;
    }
    _exit(code);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const KernelCache cache(folder.path, kRoomForAll);
  for (int i = 0; i < 3; ++i) {
    const std::string key = hash_hex(std::to_string(i));
    put(cache, key, "binary");
    EXPECT_TRUE(cache.find(key));
  }
}

TEST(Cache, ClearLeavesForeignFilesAlone) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  put(cache, hash_hex("a"), "binary");
  file_write_atomic(folder / "diary.txt", "mine");
  file_write_atomic(folder / "kernels/diary.txt", "mine too");
  cache.clear();
  EXPECT_TRUE(file_exists(folder / "diary.txt"));
  EXPECT_TRUE(file_exists(folder / "kernels/diary.txt"));
  EXPECT_FALSE(file_exists(folder / "failed"));
}

TEST(Cache, KeepsTheLastFailuresOnly) {
  TemporaryFolder folder;
  KernelCache cache(folder.path, kRoomForAll);
  for (int i = 0; i < 12; ++i) {
    const std::string key = hash_hex(std::to_string(i));
    EXPECT_EQ(cache.keep_failed(key, cache.workspace(key)), folder.path + "/failed/" + key);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "failed"), {}), 8);
}

TEST(Cache, LivesWhereTheEnvironmentSays) {
  TemporaryFolder folder;
  EnvironmentVariable home("HOME", "/home/ada");
  EnvironmentVariable xdg("XDG_CACHE_HOME", nullptr);
  EnvironmentVariable own("MEGALITH_CACHE_DIR", nullptr);
  EnvironmentVariable limit("MEGALITH_CACHE_LIMIT_MB", "3");
  EXPECT_EQ(KernelCache::from_environment().directory(), "/home/ada/.cache/megalith");
  EXPECT_EQ(KernelCache::from_environment().limit_bytes(), 3 << 20);
  xdg.set("/var/cache/ada");
  EXPECT_EQ(KernelCache::from_environment().directory(), "/var/cache/ada/megalith");
  own.set("/elsewhere");
  EXPECT_EQ(KernelCache::from_environment().directory(), "/elsewhere");
  own.set("relative/place");
  EXPECT_EQ(KernelCache::from_environment().directory(), fs::current_path().string() + "/relative/place");
}

TEST(Cache, WithoutAHomeItIsTemporary) {
  EnvironmentVariable home("HOME", nullptr);
  EnvironmentVariable xdg("XDG_CACHE_HOME", nullptr);
  EnvironmentVariable own("MEGALITH_CACHE_DIR", nullptr);
  testing::internal::CaptureStderr();
  const KernelCache cache = KernelCache::from_environment();
  EXPECT_TRUE(cache.is_temporary());
  KernelCache::from_environment();
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "megalith: warning: the kernel cache of this user cannot be used (neither MEGALITH_CACHE_DIR nor HOME is set); "
      "kernels of this run go to " +
          cache.directory() + "\n")
      << "one warning, though it was asked for twice";
}

TEST(BuildId, IsTheNoteOfThisBinary) {
  EXPECT_EQ(build_id().size(), 40u) << "sha1: the link option of folder.cmake is missing";
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(build_id().empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace megalith::jit
