// The real command under limits of the system: an error that names the limit and what to do, at whatever point it is met;
// never a signal, and never "a fault in Megalith".
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "cli/command_run.h"

namespace megalith::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Limit {
  __rlimit_resource resource;
  rlim_t value;
};
struct Ended {
  int code = -1;  // 128 + signal if one ended it
  std::string said;
};

constexpr uid_t kOther = 12345;

// A short run under the limit, as the user `uid`, with the variables besides our own.
Ended run_under(Limit limit, const std::map<std::string, std::string>& variables, uid_t uid = ::geteuid()) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const int out = ::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0644);
    dup2(::open("/dev/null", O_RDONLY), 0);
    dup2(out, 1);
    dup2(out, 2);
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);
    const rlimit both{limit.value, limit.value};
    if ((uid != ::geteuid() && ::setuid(uid) != 0) || ::setrlimit(limit.resource, &both) != 0) _exit(127);
    ::execl(MEGALITH_COMMAND, MEGALITH_COMMAND, "run", kStoryteller.c_str(), "-c", "256", "-n", "4", "--temp", "0",
            "-t", "2", "-p", "Once", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), read_text(folder / "out")};
}

// It works, or says what is missing. False where the limit leaves no room for the program itself.
bool is_explained(const Ended& ended, const std::string& limit) {
  if (ended.code == 127 || ended.said.find("error while loading shared libraries") != std::string::npos ||
      (ended.said.empty() && ended.code == 128 + SIGSEGV))  // the loader's own end
    return false;
  EXPECT_THAT(ended.code, AnyOf(0, 1)) << limit << "\n" << ended.said;
  EXPECT_THAT(ended.said, Not(HasSubstr("fault in Megalith"))) << limit;
  EXPECT_THAT(ended.said, Not(HasSubstr("terminate called"))) << limit;
  if (ended.code == 1) { EXPECT_THAT(ended.said, HasSubstr("megalith: error: ")) << limit; }
  return ended.code == 1;
}

class UnderLimits : public testing::Test {
 protected:
  void SetUp() override {
    const Ended usual = run_under({RLIMIT_CORE, 0}, shared_);
    ASSERT_EQ(usual.code, 0) << "nothing works here: " << usual.said;
  }
  const std::map<std::string, std::string> shared_ = {{"MEGALITH_CACHE_DIR", Command::cache()}};
};

TEST_F(UnderLimits, OfOpenFiles) {
#ifdef MEGALITH_SANITIZE
  GTEST_SKIP() << "[SKIP] sanitizers open files";
#endif
  bool is_met = false;
  for (rlim_t files = 4; files <= 20; ++files) {
    const Ended ended = run_under({RLIMIT_NOFILE, files}, shared_);
    if (is_explained(ended, fmt::format("{} files", files)))
      is_met |= ended.said.find(fmt::format("Too many open files (ulimit -n is {}: raise", files)) != std::string::npos;
  }
  EXPECT_TRUE(is_met);
}

TEST_F(UnderLimits, OfMemory) {
#ifdef MEGALITH_SANITIZE
  GTEST_SKIP() << "[SKIP] sanitizers take what they want";
#endif
  bool is_met = false;
  for (rlim_t megabytes = 16; megabytes <= 400; megabytes += megabytes < 120 ? 4 : 40) {
    const Ended ended = run_under({RLIMIT_AS, megabytes << 20}, shared_);
    if (is_explained(ended, fmt::format("{} MiB", megabytes)))
      is_met |= ended.said.find(fmt::format("ulimit -v is {}", megabytes << 10)) != std::string::npos;
  }
  EXPECT_TRUE(is_met);
}

// A compiler that meets it says so, and so do we where it is us who write.
TEST_F(UnderLimits, OfAFilesSize) {
  for (const rlim_t bytes : {1 << 10, 200 << 10}) {
    const TemporaryFolder fresh;
    const Ended ended =
        run_under({RLIMIT_FSIZE, bytes}, {{"TMPDIR", fresh.path}, {"MEGALITH_CACHE_DIR", fresh / "cache"}});
    EXPECT_TRUE(is_explained(ended, fmt::format("{} bytes", bytes))) << "not met";
    EXPECT_THAT(ended.said, HasSubstr("raise the limit of a file's size"));
  }
}

// It holds for all of a user's processes, and not for root: so the user is one who has no others.
TEST_F(UnderLimits, OfProcesses) {
  if (::geteuid() != 0) GTEST_SKIP() << "[SKIP] only root can become a user without other processes";
  auto run_as_other = [](rlim_t processes) {
    const TemporaryFolder fresh;
    EXPECT_EQ(::chown(fresh.path.c_str(), kOther, kOther), 0);
    return run_under({RLIMIT_NPROC, processes}, {{"TMPDIR", fresh.path}, {"MEGALITH_CACHE_DIR", fresh / "cache"}},
                     kOther);
  };
  if (run_as_other(0).code == 127) GTEST_SKIP() << "[SKIP] another user cannot run the command here";
  bool is_met = false;
  for (rlim_t processes = 0; processes <= 3; ++processes) {
    const Ended ended = run_as_other(processes);
    if (is_explained(ended, fmt::format("{} processes", processes)))
      is_met |= ended.said.find(fmt::format("ulimit -u is {}", processes)) != std::string::npos;
  }
  EXPECT_TRUE(is_met);
}

}  // namespace
}  // namespace megalith::test
