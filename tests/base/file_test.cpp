#include "megalith/base/file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/hash.h"
#include "megalith/base/mapped_copy.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

TEST(File, ReadsWhatWasWritten) {
  TemporaryFolder folder;
  const std::string content = std::string("a\0b\n", 4) + std::string(3'000'000, 'x');
  file_write_atomic(folder / "a", content);
  EXPECT_EQ(file_read(folder / "a"), content);
  file_write_atomic(folder / "a", "");
  EXPECT_EQ(file_read(folder / "a"), "");
}

TEST(File, ErrorsNamePathAndReason) {
  TemporaryFolder folder;
  EXPECT_EQ(message_of<SystemError>([&] { file_read(folder / "none"); }),
            "cannot open " + folder.path + "/none: No such file or directory");
  EXPECT_EQ(message_of<SystemError>([&] { file_read(folder.path); }), folder.path + " is not a regular file");
  EXPECT_EQ(message_of<SystemError>([&] { file_write_atomic(folder / "none/a", ""); }),
            "cannot create " + folder.path + "/none/a: No such file or directory");
  file_write_atomic(folder / "file", "");
  EXPECT_EQ(message_of<SystemError>([&] { directory_create(folder / "file/a"); }),
            "cannot create the directory " + folder.path + "/file/a: Not a directory");
}

TEST(File, AFailedWriteLeavesTheOldContentAndNoTemporary) {
  TemporaryFolder folder;
  directory_create(folder / "target/full");
  EXPECT_EQ(message_of<SystemError>([&] { file_write_atomic(folder / "target", "x"); }),
            "cannot write " + folder.path + "/target: it is a directory");
  EXPECT_TRUE(fs::is_directory(folder / "target/full"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(File, WritesThroughLinksAndKeepsTheMode) {
  TemporaryFolder folder;
  directory_create(folder / "real");
  fs::create_symlink("real/file", folder / "link");  // leads nowhere yet
  fs::create_symlink(folder / "link", folder / "second");
  file_write_atomic(folder / "second", "one");
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "second"));
  EXPECT_EQ(file_read(folder / "real/file"), "one");
  ASSERT_EQ(::chmod((folder / "real/file").c_str(), 0600), 0);
  file_write_atomic(folder / "link", "two");
  EXPECT_EQ(file_read(folder / "real/file"), "two");
  EXPECT_EQ(fs::status(folder / "real/file").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// -o /dev/full, asked for by root, made a file of the device.
TEST(File, WhatIsNoFileTakesTheBytesAsTheyCome) {
  TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string seen;
  std::jthread reader([&] { seen = stream_read(pipe, 1 << 20); });
  file_check_writable(pipe);
  file_write_atomic(pipe, std::string(100'000, 'x'));
  reader.join();
  EXPECT_EQ(seen, std::string(100'000, 'x'));
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(File, APipeIsNotWaitedForWhereAFileIsWanted) {
  TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of<SystemError>([&] { file_read(pipe); }), pipe + " is not a regular file");
  EXPECT_EQ(message_of<SystemError>([&] { MappedFile mapped(pipe); }), pipe + " is not a regular file");
}

TEST(File, AStreamHasALimit) {
  TemporaryFolder folder;
  file_write_atomic(folder / "a", "12345");
  EXPECT_EQ(stream_read(folder / "a", 5), "12345");
  EXPECT_EQ(message_of<SystemError>([&] { stream_read("/dev/zero", 1 << 20); }),
            "/dev/zero has more than 1048576 bytes");
}

TEST(File, WritabilityIsAskedBeforehandAndWithoutATrace) {
  TemporaryFolder folder;
  file_check_writable(folder / "a");
  EXPECT_TRUE(fs::is_empty(folder.path));
  EXPECT_EQ(message_of<SystemError>([&] { file_check_writable(folder / "none/a"); }),
            "cannot create " + folder.path + "/none/a: No such file or directory");
  EXPECT_EQ(message_of<SystemError>([&] { file_check_writable(folder.path); }),
            "cannot write " + folder.path + ": it is a directory");
}

TEST(File, ALinkThatLeadsNowhereIsSaidToBeOne) {
  TemporaryFolder folder;
  fs::create_symlink("gone", folder / "a");
  EXPECT_FALSE(file_exists(folder / "a"));
  EXPECT_TRUE(file_is_named(folder / "a"));
  EXPECT_EQ(message_of<SystemError>([&] { file_read(folder / "a"); }),
            "cannot open " + folder.path + "/a: it is a link to gone, which is not there");
}

// Whoever can foresee the name of a temporary file puts a link there.
TEST(File, LinksAtTheNamesOfTemporariesAreNotFollowed) {
  TemporaryFolder folder;
  file_write_atomic(folder / "victim", "mine");
  for (int serial = 0; serial < 2000; ++serial)
    for (const std::string name : {"a.tmp.", "a.part.", ".a."})
      fs::create_symlink(folder / "victim", fmt::format("{}/{}{}.{}", folder.path, name, ::getpid(), serial));
  for (int i = 0; i < 10; ++i) file_write_atomic(folder / "a", "theirs");
  file_check_writable(folder / "b");
  EXPECT_EQ(file_read(folder / "victim"), "mine");
  EXPECT_EQ(file_read(folder / "a"), "theirs");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "a")));
}

TEST(File, ALinkThatSomebodyElseHasPutWhereAllMayWriteIsNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can make a link of another user";
  TemporaryFolder folder;
  for (const mode_t mode : {01777, 0777, 0775}) {
    file_write_atomic(folder / "victim", "mine");
    fs::remove_all(folder / "shared");
    directory_create(folder / "shared");
    ASSERT_EQ(::chmod((folder / "shared").c_str(), mode), 0);
    fs::create_symlink(folder / "victim", folder / "shared/out");
    ASSERT_EQ(::lchown((folder / "shared/out").c_str(), 12345, 12345), 0);
    const std::string out = folder / "shared/out";
    for (const auto& write :
         std::vector<std::function<void()>>{[&] { file_write_atomic(out, "theirs"); },
                                            [&] { file_check_writable(out); }, [&] { ::close(file_open_append(out)); }})
      EXPECT_EQ(message_of<SystemError>(write),
                "cannot write " + out + ": " + out +
                    " is a link that user 12345 has put there; remove it, or write elsewhere");
    EXPECT_EQ(file_read(folder / "victim"), "mine");
    // One of our own is, and so is one in a folder into which only its owner writes.
    ASSERT_EQ(::lchown(out.c_str(), ::geteuid(), ::getegid()), 0);
    file_write_atomic(out, "ours");
    EXPECT_EQ(file_read(folder / "victim"), "ours");
  }
  ASSERT_EQ(::chmod((folder / "shared").c_str(), 0755), 0);
  ASSERT_EQ(::lchown((folder / "shared/out").c_str(), 12345, 12345), 0);
  file_write_atomic(folder / "shared/out", "the owner's");
  EXPECT_EQ(file_read(folder / "victim"), "the owner's");
}

TEST(File, KeepsOnlyTheModeOfFilesOfOurs) {
  if (::geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can make a file of another user";
  TemporaryFolder folder;
  file_write_atomic(folder / "a", "theirs");
  ASSERT_EQ(::chmod((folder / "a").c_str(), 0666), 0);
  ASSERT_EQ(::chown((folder / "a").c_str(), 12345, 12345), 0);
  file_write_atomic(folder / "a", "ours", 0600);
  struct stat info;
  ASSERT_EQ(::stat((folder / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, ::geteuid());
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(File, MoreBytesThanWantedAreNotRead) {
  TemporaryFolder folder;
  file_write_atomic(folder / "a", "12345");
  EXPECT_EQ(file_read(folder / "a", 5), "12345");
  fs::resize_file(folder / "a", uintmax_t{1} << 40);  // a hole, which takes no room
  EXPECT_EQ(message_of<SystemError>([&] { file_read(folder / "a", 5); }),
            folder.path + "/a has 1099511627776 bytes, want at most 5");
}

TEST(File, DirectoriesAreMadeWithTheModeThatIsAskedFor) {
  TemporaryFolder folder;
  directory_create(folder / "a/b/c", 0700);
  for (const char* name : {"a", "a/b", "a/b/c"})
    EXPECT_EQ(fs::status(folder / name).permissions(), fs::perms::owner_all) << name;
  fs::create_symlink("a", folder / "link");
  directory_create(folder / "link/b/d", 0700);  // one that is there, and behind a link
  directory_create(folder / "a/b/c", 0700);
  EXPECT_TRUE(fs::is_directory(folder / "a/b/d"));
}

TEST(File, AReaderNeverSeesAPart) {
  TemporaryFolder folder;
  const std::string path = folder / "a";
  file_write_atomic(path, std::string(100'000, 'a'));
  std::atomic<bool> stop = false;
  std::vector<std::jthread> writers;
  for (char c : {'b', 'c'})
    writers.emplace_back([&, c] {
      while (!stop) file_write_atomic(path, std::string(static_cast<size_t>(100'000 + c), c));
    });
  for (int i = 0; i < 200; ++i) {
    const std::string content = file_read(path);
    ASSERT_EQ(content, std::string(content.size(), content[0]));
    ASSERT_EQ(content.size(), content[0] == 'a' ? 100'000 : 100'000 + static_cast<size_t>(content[0]));
  }
  stop = true;
  writers.clear();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1) << "no temporaries are left";
}

TEST(MappedCopy, ReadsWhatIsMappedAndCopiesTheRest) {
  const TemporaryFolder folder;
  std::string content(10000, 0);
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  file_write_atomic(folder / "a", content);
  const MappedFile a(folder / "a");
  std::string part(5000, 0);
  mapped_copy(part.data(), a.bytes().data() + 4999, 5000);
  EXPECT_EQ(part, content.substr(4999, 5000));
  mapped_copy(part.data(), content.data(), 5000);
  EXPECT_EQ(part, content.substr(0, 5000));
}

TEST(MappedCopy, SaysThatAFileHasBecomeShorter) {
  const TemporaryFolder folder;
  file_write_atomic(folder / "a", std::string(10000, 'x'));
  const MappedFile a(folder / "a");
  fs::resize_file(folder / "a", 6000);
  std::string part(5000, 0);
  EXPECT_THAT(message_of<SystemError>([&] { mapped_copy(part.data(), a.bytes().data() + 3000, 5000); }),
              ::testing::HasSubstr("has become shorter while it was in use: it ends at byte 6000, wanted 2000 more"));
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  TemporaryFolder folder;
  file_write_atomic(folder / "a", "hello");
  file_write_atomic(folder / "empty", "");
  MappedFile a(folder / "a");
  MappedFile b(folder / "empty");
  EXPECT_EQ(b.bytes().size(), 0u);
  b = std::move(a);
  MappedFile c = std::move(b);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(c.bytes().data()), c.bytes().size()), "hello");
  EXPECT_EQ(c.path(), folder / "a");
  // The mapping outlives the name.
  fs::remove(folder / "a");
  EXPECT_EQ(static_cast<char>(c.bytes()[4]), 'o');
  EXPECT_THROW(MappedFile(folder / "none"), SystemError);
}

TEST(Hash, IsXxh3With128Bits) {
  // The value that the algorithm's authors give for no input at all.
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash_hex("a"), hash_hex("b"));
  EXPECT_NE(hash_hex("ab"), hash_hex(std::string_view("ab\0", 3)));
  EXPECT_EQ(hash_hex(std::string(1000, 'x')).size(), 32u);
}

}  // namespace
}  // namespace megalith
