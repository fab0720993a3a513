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
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/limits.h"
#include "megalith/jit/stage.h"

extern "C" char** environ;

namespace megalith::jit {

namespace {

// What a compiler's result depends on and its command does not say: other options, other libraries in its process, other
// files as output. None of it is needed to compile a kernel.
constexpr const char* kDropped[] = {"LD_PRELOAD",          "LD_AUDIT",    "LD_DEBUG",
                                    "LD_DEBUG_OUTPUT",     "LD_PROFILE",  "LD_RUN_PATH",
                                    "DEPENDENCIES_OUTPUT", "MAKEFLAGS",   "SUNPRO_DEPENDENCIES",
                                    "GCC_COMPARE_DEBUG",   "GNUTARGET",   "CCC_OVERRIDE_OPTIONS",
                                    "CCC_ADD_ARGS",        "LDEMULATION", "QA_OVERRIDE_GCC3_OPTIONS",
                                    "SOURCE_DATE_EPOCH",   "LC_ALL"};

bool is_variable(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
}

// Our environment without those. Messages and version strings shall not depend on the user's language, and what a
// compiler that is killed leaves shall lie where we clear up.
class Environment {
 public:
  explicit Environment(const std::string& temporary) {
    texts_.push_back("LC_ALL=C");
    if (!temporary.empty()) texts_.push_back("TMPDIR=" + temporary);
    for (char** entry = environ; *entry; ++entry)
      if (std::ranges::none_of(kDropped, [&](const char* name) { return is_variable(*entry, name); }) &&
          (temporary.empty() || !is_variable(*entry, "TMPDIR")))
        texts_.push_back(*entry);
    for (std::string& text : texts_) entries_.push_back(text.data());
    entries_.push_back(nullptr);
  }
  char** entries() { return entries_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> entries_;
};

// One call of posix_spawn: what is put together for it goes with it.
class Spawn {
 public:
  /// In the process group `group`; 0: in one of its own. The thread that compiles may block or ignore signals; the new
  /// process shall not inherit that.
  explicit Spawn(pid_t group) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, defaults;
    ::sigemptyset(&none);
    ::sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGQUIT, SIGTERM, SIGHUP}) ::sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &defaults);
    ::posix_spawnattr_setpgroup(&attributes_, group);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Spawn() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  /// The error as an errno; 0: it runs.
  int start(pid_t* pid, const std::vector<std::string>& command, char** environment) {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return ::posix_spawn(pid, words[0], &actions, &attributes_, words.data(), environment);
  }

  posix_spawn_file_actions_t actions;

 private:
  posix_spawnattr_t attributes_;
};

void wait_for_end(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
}

// A process group in which a command runs, so that it ends together with all that it started. Its first member is a
// shell that waits for the end of a pipe whose other end we alone hold: when this process ends, however it ends, the
// shell ends the group and deletes what is unfinished. Where there is no shell, the group is the command's own, and outlives
// us.
class Group {
 public:
  explicit Group(const std::string& unfinished) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    lifeline_ = ends[1];
    Spawn spawn(0);
    ::posix_spawn_file_actions_adddup2(&spawn.actions, ends[0], 0);
    for (const int out : {1, 2}) ::posix_spawn_file_actions_addopen(&spawn.actions, out, "/dev/null", O_WRONLY, 0);
    char* nothing[] = {nullptr};
    // The second kill is for what does not mind the first, and for the shell itself.
    constexpr const char* kScript =
        "read -r _; trap '' TERM; kill -TERM 0; [ -z \"$1\" ] || rm -rf -- \"$1\"; kill -KILL 0";
    if (spawn.start(&shell_, {"/bin/sh", "-c", kScript, "sh", unfinished}, nothing) != 0) shell_ = 0;
    ::close(ends[0]);
  }
  /// Nothing of it is left then.
  ~Group() {
    end();
    if (shell_ > 0) wait_for_end(shell_);
    if (lifeline_ >= 0) ::close(lifeline_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// What a command is started in.
  pid_t id() const { return shell_; }
  /// The command's process, while it is not waited for: without a shell the group has its number.
  void command_set(pid_t pid) { command_ = pid; }
  void end() {
    if (shell_ > 0 || command_ > 0) ::kill(shell_ > 0 ? -shell_ : -command_, SIGKILL);
  }

 private:
  int lifeline_ = -1;
  pid_t shell_ = 0, command_ = 0;
};

// Until it has ended: true, or until there is no more patience: false. Reads what it says from `end` of its pipe.
bool wait_for(pid_t pid, int end, Patience& patience, std::string* output) {
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
      // Without taking its number from it, which its group may have.
      siginfo_t info{};
      const int found = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
      if ((found == 0 && info.si_pid == pid) || (found < 0 && errno != EINTR)) return true;  // no child: see below
    }
    if (is_over) return false;  // also of one that never stops talking
  }
}

class Closer {
 public:
  explicit Closer(int descriptor) : descriptor_(descriptor) {}
  ~Closer() { ::close(descriptor_); }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::string ProcessResult::ending() const {
  if (timed_out) return fmt::format("did not finish within {:.0f} s", ms / 1000);
  if (signal) {
    const std::string why = signal_text(signal);
    return fmt::format("was killed by signal {} ({}){}{}", signal, strsignal(signal), why.empty() ? "" : ": ", why);
  }
  return fmt::format("exited with code {}", exit_code);
}

ProcessResult process_run(const std::vector<std::string>& command, const std::string& directory, PatienceLimits limits,
                          const ProcessFolders& folders) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("[jit] cannot create a pipe");
  const Closer reading(ends[0]);

  Group group(folders.unfinished);
  Spawn spawn(group.id());
  ::posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, ends[1], 2);
  ::posix_spawn_file_actions_addchdir_np(&spawn.actions, directory.c_str());
  pid_t pid = -1;
  const int code = spawn.start(&pid, command, Environment(folders.temporary).entries());
  ::close(ends[1]);
  if (code != 0)
    throw SystemError(fmt::format("[jit] cannot start {} in {}: {}", command[0], directory, error_text(code)));
  group.command_set(pid);

  ProcessResult result;
  Patience patience(command[0], limits);
  auto end_it = [&] {
    group.end();
    wait_for_end(pid);
    group.command_set(0);
  };
  try {
    result.timed_out = !wait_for(pid, ends[0], patience, &result.output);
  } catch (...) {
    end_it();
    throw;
  }
  result.ms = patience.ms();
  if (result.timed_out) {
    end_it();
    return result;
  }
  group.end();  // what it left behind
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}  // nobody hears of it where SIGCHLD is ignored
  group.command_set(0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string command_line(const std::vector<std::string>& command) {
  // What no shell gives a meaning, wherever it stands.
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+,:@%";
  std::string line;
  for (const std::string& word : command) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
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
