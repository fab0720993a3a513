// What a process hears that meets a limit: which one, its value, and what to do. Each test sets the limit in a child
// process, where it does no harm.
#include "megalith/base/limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/threads.h"

namespace megalith {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

// The message of the SystemError that `action` throws under a limit; in a child process.
std::string said_under(__rlimit_resource resource, rlim_t value, const std::function<void()>& action) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{value, value};
    std::string text = "the limit cannot be set";
    if (::setrlimit(resource, &limit) == 0) {
      try {
        action();
        text = "no exception";
      } catch (const SystemError& error) { text = error.what(); } catch (const std::exception& error) {
        text = std::string("another kind of exception: ") + error.what();
      }
    }
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST(Limits, OpenFilesAreRaisedAsFarAsTheSystemAllows) {
  EXPECT_THAT(said_under(RLIMIT_NOFILE, 200,
                         [] {
                           const rlimit usual{40, 200};
                           MEGALITH_CHECK(::setrlimit(RLIMIT_NOFILE, &usual) == 0, "no lower limit");
                           const int64_t first = open_files_raise(100), less = open_files_raise(50),
                                         more = open_files_raise(1000);
                           throw SystemError(fmt::format("{}, {}, {}", first, less, more));
                         }),
              HasSubstr("100, 100, 200"));
}

TEST(Limits, OpenFiles) {
  EXPECT_THAT(said_under(RLIMIT_NOFILE, 40,
                         [] {
                           for (int i = 0; i < 100; ++i) (void)!::open("/dev/null", O_RDONLY | O_CLOEXEC);
                           file_read("/etc/hostname");
                         }),
              HasSubstr("/etc/hostname: Too many open files (ulimit -n is 40: raise the limit of open files)"));
}

TEST(Limits, SizeOfAFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(said_under(RLIMIT_FSIZE, 8192,
                         [&] {
                           std::signal(SIGXFSZ, SIG_IGN);
                           file_write_atomic(folder / "a", std::string(100'000, 'x'));
                         }),
              HasSubstr("File too large (ulimit -f is 8: raise the limit of a file's size)"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path)) << "half of the file is left";
}

// Stacks of threads take memory, so a limit of memory is one of threads, too; a limit of threads does not hold for root.
TEST(Limits, Threads) {
  const auto start_many = [] {
    run_together("the test", 500, [](int) { ADD_FAILURE() << "none may begin if not all can be started"; });
  };
#if !defined(MEGALITH_SANITIZE)
  EXPECT_THAT(
      said_under(RLIMIT_AS, rlim_t{2} << 30, start_many),
      AllOf(HasSubstr("cannot start the thread of the test, "), HasSubstr("Resource temporarily unavailable (ulimit"),
            HasSubstr("ulimit -v is 2097152"), HasSubstr("raise the limit of threads and processes")));
#endif
  if (::geteuid() != 0)
    EXPECT_THAT(said_under(RLIMIT_NPROC, 1, start_many), HasSubstr("ulimit -u is 1"));
  else
    EXPECT_THAT(said_under(RLIMIT_NPROC, 1,
                           [&] {
                             if (::setuid(12345) != 0) throw SystemError("cannot become another user");
                             start_many();
                           }),
                HasSubstr("ulimit -u is 1"));
}

TEST(Limits, WhatTheStandardLibraryThrowsIsOfTheSystem) {
  const std::system_error error(EAGAIN, std::generic_category(), "thread");
  EXPECT_THAT(system_error(error).what(), AllOf(HasSubstr("the system refused: "), HasSubstr("threads")));
}

TEST(Limits, SignalsOfLimitsAreExplained) {
  EXPECT_THAT(signal_text(SIGKILL), HasSubstr("memory runs out"));
  EXPECT_THAT(signal_text(SIGXFSZ), HasSubstr("file"));
  EXPECT_EQ(signal_text(SIGSEGV), "");
  EXPECT_EQ(limit_text(ENOENT), "");
  EXPECT_EQ(error_text(ENOENT), "No such file or directory");
}

TEST(Together, AllRunAtTheSameTime) {
  std::atomic<int> here = 0;
  run_together("the test", 4, [&](int) {
    ++here;
    while (here != 4) std::this_thread::yield();
  });
  EXPECT_EQ(here, 4);
}

}  // namespace
}  // namespace megalith
