// Mapped files that are cut short: only faults in guarded mappings are repaired.
#include "megalith/base/cut_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {
namespace {

constexpr size_t kBytes = 1 << 20;

class CutFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_, std::ios::binary) << std::string(kBytes, 'x'); }
  void cut(size_t left) { std::filesystem::resize_file(path_, left); }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "file";
};

TEST_F(CutFileTest, ReadsZerosBehindTheCut) {
  const MappedFile file(path_);
  cut(5000);
  EXPECT_EQ(file.bytes()[4999], std::byte{'x'});
  EXPECT_EQ(file.bytes()[5000], std::byte{0}) << "the rest of a page";
  EXPECT_EQ(file.bytes()[kBytes - 1], std::byte{0});
  EXPECT_EQ(file.bytes()[kBytes / 2], std::byte{0});
  EXPECT_EQ(file.bytes()[0], std::byte{'x'}) << "what is there still is";
  EXPECT_THROW(file.check_whole(), SystemError);
}

TEST_F(CutFileTest, OfManyOnesOnlyThatOneIsCut) {
  std::vector<MappedFile> files;
  for (int i = 0; i < 50; ++i) {
    const std::string path = fmt::format("{}.{}", path_, i);
    std::ofstream(path, std::ios::binary) << std::string(20'000, 'x');
    files.emplace_back(path);
  }
  files.erase(files.begin(), files.begin() + 20);  // their places in the list are used again
  for (int i = 0; i < 20; ++i) files.emplace_back(fmt::format("{}.{}", path_, i));
  std::filesystem::resize_file(files[30].path(), 0);
  EXPECT_EQ(files[30].bytes()[10'000], std::byte{0});
  for (const MappedFile& file : files) {
    if (&file == &files[30])
      EXPECT_THROW(file.check_whole(), SystemError);
    else
      EXPECT_NO_THROW(file.check_whole()) << file.path();
  }
}

TEST_F(CutFileTest, ManyThreadsFaultAtOnce) {
  const MappedFile file(path_);
  cut(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (size_t i = 0; i < kBytes; i += 1000) EXPECT_EQ(file.bytes()[i], std::byte{0});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THROW(file.check_whole(), SystemError);
}

// Somebody else's mapping ends the process as before.
TEST_F(CutFileTest, OtherFaultsStayWhatTheyAre) {
  const auto is_ended = [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; };
  EXPECT_EXIT(
      {
        const MappedFile guarded(path_);
        const int fd = ::open(path_.c_str(), O_RDONLY);
        const auto* bytes = static_cast<const volatile char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0));
        cut(0);
        std::exit(static_cast<int>(bytes[0]) * 0);
      },
      is_ended, "");
  EXPECT_EXIT(
      {
        const MappedFile guarded(path_);
        raise(SIGBUS);
        std::exit(0);
      },
      is_ended, "");
}

// A handler that was there before is asked about what is not ours.
void exit_politely(int) { std::_Exit(42); }
TEST_F(CutFileTest, TheHandlerBeforeIsAsked) {
  EXPECT_EXIT(
      {
        signal(SIGBUS, exit_politely);
        const MappedFile guarded(path_);
        cut(0);
        if (guarded.bytes()[0] != std::byte{0}) std::_Exit(1);
        raise(SIGBUS);
        std::_Exit(2);
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace megalith
