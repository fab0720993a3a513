// Whose code is run: what lies in a cache that others could have written is not found, not loaded, and said so.
#include "megalith/jit/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/jit/build.h"
#include "megalith/jit/cache.h"

namespace megalith::jit {
namespace {

namespace fs = std::filesystem;
using megalith::test::EnvironmentVariable;
using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLarge = int64_t{1} << 30;
constexpr uid_t kOther = 12345;

BuildRequest answer(int value) {
  return {.name = "answer",
          .source = "extern \"C\" int answer();\nint answer() { return " + std::to_string(value) + "; }\n",
          .flags = {"-O1", "-fPIC"}};
}

void change_mode(const std::string& path, mode_t mode) { ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path; }
void change_owner(const std::string& path) { ASSERT_EQ(::lchown(path.c_str(), kOther, kOther), 0) << path; }

class TrustTest : public testing::Test {
 protected:
  TemporaryFolder folder;
  EnvironmentVariable always{"MEGALITH_ALWAYS_COMPILE", nullptr};

  // A kernel in the cache `folder`/cache; then a copy of it says 666 in its place, whole as far as hashes go.
  std::string poisoned_entry() {
    const KernelCache cache(folder / "cache", kLarge);
    const KernelCache other(folder / "other", kLarge);
    const std::string key = build_key(answer(42), cache);
    const std::string theirs = build_shared_object(answer(666), other).directory;
    const std::string workspace = cache.workspace(key);
    file_write_atomic(workspace + "/kernel.cpp", answer(42).source);
    fs::copy_file(theirs + "/kernel.so", workspace + "/kernel.so");
    file_write_atomic(workspace + "/command.txt", "");
    return cache.store(key, "answer", workspace);
  }
  // What the kernel says that is built with this cache, and what is said on stderr.
  int ask(std::string* said = nullptr) {
    testing::internal::CaptureStderr();
    const Build build = build_shared_object(answer(42), KernelCache(folder / "cache", kLarge));
    const std::string text = testing::internal::GetCapturedStderr();
    if (said) *said = text;
    return build.library.function<int()>("answer")();
  }
};

TEST_F(TrustTest, OursIsBelieved) {
  poisoned_entry();
  EXPECT_EQ(ask(), 666) << "the tests below show nothing unless this entry is taken where nothing is wrong with it";
}

struct Harm {
  const char* name;
  void (*harm)(const std::string& cache, const std::string& entry);
  const char* said;
  bool needs_root = false;
};
class TrustHarm : public TrustTest, public testing::WithParamInterface<Harm> {};

TEST_P(TrustHarm, IsNotRunAndSaid) {
  if (GetParam().needs_root && ::geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can give files away";
  const std::string entry = poisoned_entry();
  GetParam().harm(folder / "cache", entry);
  std::string said;
  EXPECT_EQ(ask(&said), 42) << said;
  EXPECT_THAT(said, HasSubstr(GetParam().said));
}

void edit_info(const std::string& entry, const std::function<void(nlohmann::json&)>& edit) {
  auto info = nlohmann::json::parse(file_read(entry + "/info.json"));
  edit(info);
  file_write_atomic(entry + "/info.json", info.dump());
}

INSTANTIATE_TEST_SUITE_P(
    All, TrustHarm,
    testing::Values(
        Harm{"lists_no_files",
             [](auto&, auto& entry) { edit_info(entry, [](auto& json) { json["files"] = nlohmann::json::object(); }); },
             "is damaged"},
        Harm{"lists_no_kernel",
             [](auto&, auto& entry) { edit_info(entry, [](auto& json) { json["files"].erase("kernel.so"); }); },
             "has no file \"kernel.so\""},
        Harm{"is_of_another_key",
             [](auto&, auto& entry) { edit_info(entry, [](auto& json) { json["key"] = hash_hex("x"); }); },
             "is of another entry"},
        Harm{"is_of_another_source",
             [](auto&, auto& entry) {
               const std::string source = answer(43).source;
               file_write_atomic(entry + "/kernel.cpp", source);
               edit_info(entry, [&](auto& json) {
                 json["files"]["kernel.cpp"] = {{"bytes", source.size()}, {"hash", hash_hex(source)}};
               });
             },
             "is of another source"},
        Harm{"has_no_source",
             [](auto&, auto& entry) {
               fs::remove(entry + "/kernel.cpp");
               edit_info(entry, [](auto& json) { json["files"].erase("kernel.cpp"); });
             },
             "is of another source"},
        Harm{"leads_elsewhere",
             [](auto& cache, auto& entry) {
               fs::rename(entry, cache + "/elsewhere");
               fs::create_directory_symlink(cache + "/elsewhere", entry);
             },
             "is damaged"},
        Harm{"holds_a_link",
             [](auto& cache, auto& entry) {
               fs::rename(entry + "/kernel.so", cache + "/elsewhere");
               fs::create_symlink(cache + "/elsewhere", entry + "/kernel.so");
             },
             "is damaged"},
        Harm{"entry_of_another", [](auto&, auto& entry) { change_owner(entry); }, "belongs to user 12345", true},
        Harm{"kernel_of_another", [](auto&, auto& entry) { change_owner(entry + "/kernel.so"); },
             "kernel.so belongs to user 12345", true},
        Harm{"info_of_another", [](auto&, auto& entry) { change_owner(entry + "/info.json"); },
             "info.json belongs to user 12345", true},
        Harm{"kernels_of_another", [](auto& cache, auto&) { change_owner(cache + "/kernels"); },
             "belongs to user 12345", true},
        Harm{"cache_of_another", [](auto& cache, auto&) { change_owner(cache); }, "belongs to user 12345", true},
        Harm{"entry_writable_by_all", [](auto&, auto& entry) { change_mode(entry, 0777); }, "chmod go-w it"},
        Harm{"entry_writable_by_a_group", [](auto&, auto& entry) { change_mode(entry, 0770); }, "chmod go-w it"},
        Harm{"kernel_writable_by_all", [](auto&, auto& entry) { change_mode(entry + "/kernel.so", 0666); },
             "(mode 0666)"},
        Harm{"source_writable_by_a_group", [](auto&, auto& entry) { change_mode(entry + "/kernel.cpp", 0660); },
             "(mode 0660)"},
        Harm{"kernels_writable_by_all", [](auto& cache, auto&) { change_mode(cache + "/kernels", 01777); },
             "(mode 1777)"},
        Harm{"cache_writable_by_all", [](auto& cache, auto&) { change_mode(cache, 0777); },
             "cannot be used (others may write to"},
        Harm{"cache_writable_by_a_group", [](auto& cache, auto&) { change_mode(cache, 0775); }, "chmod go-w it"},
        Harm{"kernels_is_a_link",
             [](auto& cache, auto&) {
               fs::rename(cache + "/kernels", cache + "/elsewhere");
               fs::create_directory_symlink(cache + "/elsewhere", cache + "/kernels");
             },
             "kernels is no directory"},
        Harm{"a_folder_above_is_writable_by_all",
             [](auto& cache, auto&) { change_mode(fs::path(cache).parent_path(), 0777); }, "chmod go-w it"}),
    [](const auto& harm) { return harm.param.name; });

// What a folder that many share must have, and what it may be.
TEST_F(TrustTest, FoldersOnTheWay) {
  const std::string way = folder / "way", cache = way + "/cache";
  directory_create(cache, 0700);
  EXPECT_EQ(distrust_of_folder(cache), "");
  change_mode(way, 01777);
  EXPECT_EQ(distrust_of_folder(cache), "") << "as /tmp: nobody can put another folder in its place";
  change_mode(way, 0777);
  EXPECT_EQ(distrust_of_folder(cache), "others may write to " + way + " (mode 0777): chmod go-w it");
  EXPECT_EQ(distrust_of_folder(way + "/none/at/all"), "others may write to " + way + " (mode 0777): chmod go-w it");
  change_mode(way, 0755);
  EXPECT_EQ(distrust_of_folder(way + "/none/at/all"), "");
  if (::getgid() == ::getuid()) {
    change_mode(way, 0775);
    EXPECT_EQ(distrust_of_folder(cache), "") << "a user's own group";
  }
}

TEST_F(TrustTest, LinksOnTheWay) {
  directory_create(folder / "real/cache", 0700);
  directory_create(folder / "open/cache", 0700);
  change_mode(folder / "open", 0777);
  fs::create_directory_symlink("real", folder / "near");
  fs::create_directory_symlink(folder / "open", folder / "far");
  fs::create_directory_symlink("../open/../open", folder / "real/up");
  fs::create_directory_symlink("loop", folder / "loop");
  EXPECT_EQ(distrust_of_folder(folder / "near/cache"), "");
  EXPECT_EQ(distrust_of_folder(folder / "near/none"), "");
  for (const char* way : {"far/cache", "real/up/cache", "near/up/none"})
    EXPECT_THAT(distrust_of_folder(folder / way), HasSubstr("/open (mode 0777)")) << way;
  EXPECT_EQ(distrust_of_folder(folder / "loop/cache"), "") << "nothing is there";
  EXPECT_EQ(distrust_of_folder("/dev/null/cache"), "") << "no folder";
  if (::geteuid() != 0) return;
  change_owner(folder / "near");
  EXPECT_THAT(distrust_of_folder(folder / "near/cache"), HasSubstr("/near belongs to user 12345"));
}

TEST_F(TrustTest, WhatWeMakeIsForUsAlone) {
  const mode_t before = ::umask(0);
  const Build build = build_shared_object(answer(42), KernelCache(folder / "new/cache", kLarge));
  ::umask(before);
  for (const auto& item : fs::recursive_directory_iterator(folder / "new")) {
    struct stat info;
    ASSERT_EQ(::lstat(item.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << item.path();
  }
  EXPECT_TRUE(build_shared_object(answer(42), KernelCache(folder / "new/cache", kLarge)).cache_hit);
}

TEST_F(TrustTest, NothingIsWrittenThroughLinks) {
  const KernelCache cache(folder / "cache", kLarge);
  directory_create(folder / "cache/locks", 0700);
  directory_create(folder / "cache/compilers", 0700);
  file_write_atomic(folder / "victim", "mine");
  const std::string key = hash_hex("a");
  fs::create_symlink(folder / "victim", folder / "cache/locks/" + key);
  fs::create_symlink(folder / "victim", folder / "cache/compilers/" + key);
  EXPECT_FALSE(cache.lock(key).held());
  EXPECT_EQ(cache.note(key), "");
  cache.note_set(key, "theirs");
  EXPECT_EQ(cache.note(key), "theirs");
  EXPECT_EQ(file_read(folder / "victim"), "mine");
}

TEST_F(TrustTest, NothingIsDeletedThroughLinks) {
  const KernelCache cache(folder / "cache", kLarge);
  directory_create(folder / "cache/kernels", 0700);
  directory_create(folder / "precious", 0700);
  file_write_atomic(folder / "precious/file", "mine");
  fs::create_directory_symlink(folder / "precious", folder / "cache/kernels/" + hash_hex("a"));
  fs::create_directory_symlink(folder / "precious", folder / "cache/kernels/" + hash_hex("b") + ".tmp.1.2");
  directory_create(folder / "cache/kernels/" + hash_hex("c"), 0700);
  fs::create_directory_symlink(folder / "precious", folder / "cache/kernels/" + hash_hex("c") + "/link");
  EXPECT_EQ(cache.bytes(), 0) << "what lies elsewhere does not count";
  cache.clear();
  EXPECT_EQ(file_read(folder / "precious/file"), "mine");
  // Nor where the folder of all entries is one.
  fs::remove_all(folder / "cache");
  directory_create(folder / "cache", 0700);
  directory_create(folder / "precious/" + hash_hex("a"), 0700);
  fs::create_directory_symlink(folder / "precious", folder / "cache/kernels");
  cache.clear();
  EXPECT_TRUE(fs::exists(folder / "precious/" + hash_hex("a")));
}

TEST_F(TrustTest, ATemporaryDirectoryThatOthersCouldReplaceIsRefused) {
  directory_create(folder / "tmp");
  change_mode(folder / "tmp", 0777);
  EnvironmentVariable temporary("TMPDIR", folder / "tmp");
  change_mode(folder.path, 0700);
  file_write_atomic(folder / "file", "");
  // In a process of its own: a process has one temporary cache.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string message = message_of<SystemError>(
            [&] { build_shared_object(answer(42), KernelCache(folder / "file/cache", kLarge)); });
        std::fputs(message.c_str(), stderr);
        std::_Exit(3);
      },
      testing::ExitedWithCode(3),
      "tmp \\(mode 0777\\): chmod go-w it; set MEGALITH_CACHE_DIR or TMPDIR to a directory");
}

}  // namespace
}  // namespace megalith::jit
