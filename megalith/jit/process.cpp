#include "megalith/jit/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "megalith/base/error.h"
#include "megalith/jit/stage.h"

extern "C" char** environ;

namespace megalith::jit {

namespace {

struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

// Our environment, except that messages and version strings shall not depend on the user's language.
std::vector<char*> environment() {
  static char language[] = "LC_ALL=C";
  std::vector<char*> result = {language};
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "LC_ALL=", 7) != 0) result.push_back(*entry);
  result.push_back(nullptr);
  return result;
}

// A compiler driver has children, which would outlive it. They are left in our process group, so that Ctrl-C reaches
// them; at a timeout they are found here. Stopped first, so that it starts no more of them meanwhile.
void kill_tree(pid_t pid) {
  ::kill(pid, SIGSTOP);
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  for (pid_t child; children >> child;) kill_tree(child);
  ::kill(pid, SIGKILL);
}

// Until it has ended: true, or until there is no more patience: false. Reads what it says from `end` of its pipe.
bool wait_for(pid_t pid, int end, Patience& patience, int* status, std::string* output) {
  // Normally the pipe's end comes with the process's. The slices are for a command that leaves a child behind which
  // holds the pipe open, and for one that closes it and goes on.
  constexpr int kSliceMs = 50, kSliceClosedMs = 1;
  for (bool open = true;;) {
    pollfd poll_for{end, POLLIN, 0};
    const int ready = ::poll(&poll_for, open ? 1 : 0, open ? kSliceMs : kSliceClosedMs);
    if (ready > 0) {
      char buffer[1 << 14];
      const ssize_t n = ::read(end, buffer, sizeof buffer);
      if (n <= 0)
        open = n < 0 && errno == EINTR;
      else
        output->append(buffer, std::min<size_t>(static_cast<size_t>(n), kProcessOutputLimit - output->size()));
    }
    const bool is_over = patience.is_over();  // asked also of one that has just ended, as of the same Ctrl-C
    if (ready <= 0 || !open) {
      const pid_t found = ::waitpid(pid, status, WNOHANG);
      if (found == pid || (found < 0 && errno != EINTR)) return true;  // nobody hears of it where SIGCHLD is ignored
    }
    if (is_over) return false;  // also of one that never stops talking
  }
}

}  // namespace

std::string ProcessResult::ending() const {
  if (timed_out) return fmt::format("did not finish within {:.0f} s", ms / 1000);
  if (signal) return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  return fmt::format("exited with code {}", exit_code);
}

ProcessResult process_run(const std::vector<std::string>& command, const std::string& directory,
                          PatienceLimits limits) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("[jit] cannot create a pipe");

  SpawnSetup setup;
  ::posix_spawn_file_actions_addopen(&setup.actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&setup.actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&setup.actions, ends[1], 2);
  ::posix_spawn_file_actions_addchdir_np(&setup.actions, directory.c_str());
  // The thread that compiles may block signals or ignore SIGPIPE; the compiler shall not inherit that.
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigmask(&setup.attributes, &none);
  ::posix_spawnattr_setsigdefault(&setup.attributes, &defaults);
  ::posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int code = ::posix_spawn(&pid, words[0], &setup.actions, &setup.attributes, words.data(), environment().data());
  ::close(ends[1]);
  if (code != 0) {
    ::close(ends[0]);
    throw SystemError(fmt::format("[jit] cannot start {} in {}: {}", command[0], directory, strerror(code)));
  }

  ProcessResult result;
  int status = 0;
  Patience patience(command[0], limits);
  auto end_it = [&] {
    kill_tree(pid);
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  };
  try {
    result.timed_out = !wait_for(pid, ends[0], patience, &status, &result.output);
  } catch (...) {
    end_it();
    ::close(ends[0]);
    throw;
  }
  if (result.timed_out) end_it();
  ::close(ends[0]);
  result.ms = patience.ms();
  if (result.timed_out) return result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string command_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_of(" \t\n\"'\\$`*?[]#~!{};&|<>()") == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace megalith::jit
