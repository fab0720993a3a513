// Runs the `megalith` command as a shell would, and tells how it ended.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"

namespace megalith::test {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct CommandResult {
  int code = -1;  // 128 + signal if one ended it, as shells say
  std::string out, err;
  double ms = 0;               // of the whole process
  double ms_after_signal = 0;  // from the signal to the end, if one was sent
};

struct CommandInput {
  std::string stdin_text;
  std::string stdin_path = {};  // a file in place of the text
  std::map<std::string, std::string> environment;
  size_t interrupt_after = 0;            // Ctrl-C once stdout has more bytes than this; 0: never
  std::function<bool()> kill_once = {};  // a signal as soon as that is true
  int signal = SIGKILL;                  // that one
};

/// All tests share a cache, so that a kernel is compiled once: the one that tools/run_tests.sh names for all programs,
/// or else one of this process. Nothing else of the user's own settings comes through.
class Command {
 public:
  CommandResult operator()(std::vector<std::string> arguments, const CommandInput& input = {}) const {
    const TemporaryFolder folder;
    write_text(folder / "in", input.stdin_text);
    arguments.insert(arguments.begin(), MEGALITH_COMMAND);
    cache();  // is made here, and not by the child
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) become(arguments, input, folder.path);
    CommandResult result;
    if (input.interrupt_after > 0) interrupt(child, folder / "out", input.interrupt_after);
    if (input.kill_once) kill_child(child, input.kill_once, input.signal);
    const auto interrupted = std::chrono::steady_clock::now();
    int status = 0;
    waitpid(child, &status, 0);
    result.ms = milliseconds_since(start);
    if (input.interrupt_after > 0 || input.kill_once) result.ms_after_signal = milliseconds_since(interrupted);
    result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result.out = read_text(folder / "out");
    result.err = without_waits(read_text(folder / "err"));
    return result;
  }

  static const std::string& cache() {
    static const TemporaryFolder folder;
    static const char* const named = std::getenv("MEGALITH_CACHE_DIR");
    static const std::string path = named && *named ? named : folder.path;
    return path;
  }

 private:
  // Other programs of tests compile the same kernels beside this one, and take their time: of that the command says a word,
  // which is none of what it was asked.
  static std::string without_waits(const std::string& err) {
    std::string rest, line;
    std::istringstream lines(err);
    while (std::getline(lines, line)) {
      const bool is_wait = line.starts_with("megalith: warning: waiting for ") ||
                           (line.starts_with("megalith: warning: ") && line.find(" takes long: ") != std::string::npos);
      if (!is_wait) rest += lines.eof() ? line : line + '\n';
    }
    return rest;
  }

  static double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  // Ended, but not yet taken away: its process id stays ours.
  static bool is_over(pid_t child) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
  }

  static void interrupt(pid_t child, const std::string& out, size_t bytes) {
    for (int tick = 0; tick < 60000 && read_text(out).size() <= bytes; ++tick) {
      if (is_over(child)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGINT);
  }

  static void kill_child(pid_t child, const std::function<bool()>& condition, int signal) {
    while (!condition() && !is_over(child)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, signal);
  }

  [[noreturn]] static void become(const std::vector<std::string>& arguments, const CommandInput& input,
                                  const std::string& folder) {
    const std::string in = input.stdin_path.empty() ? folder + "/in" : input.stdin_path;
    const bool ok = freopen(in.c_str(), "r", stdin) && freopen((folder + "/out").c_str(), "w", stdout) &&
                    freopen((folder + "/err").c_str(), "w", stderr);
    if (!ok) _exit(127);
    for (const char* name : {"MEGALITH_ALWAYS_COMPILE", "MEGALITH_CXX", "MEGALITH_DUMP", "MEGALITH_OVERRIDE",
                             "MEGALITH_LOG", "MEGALITH_PRODUCTS", "MEGALITH_THREADS", "MEGALITH_WATCHDOG_MS"})
      unsetenv(name);
    setenv("MEGALITH_CACHE_DIR", cache().c_str(), 1);
    for (const auto& [name, value] : input.environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
};

inline const Command megalith_command;

inline const std::string kStoryteller = MEGALITH_SOURCE_DIR "/models/storyteller";
inline const std::string kShapes = MEGALITH_SOURCE_DIR "/models/shapes/";

/// The storyteller in a folder of its own, to be changed. The folder has the same name, because that is in the kernel's
/// source: so it is compiled once for all.
class ModelCopy {
 public:
  ModelCopy() {
    std::filesystem::create_directory(path());
    for (const auto& file : std::filesystem::directory_iterator(kStoryteller))
      std::filesystem::create_symlink(file.path(), *this / file.path().filename().string());
  }
  std::string path() const { return folder_ / "storyteller"; }
  std::string operator/(const std::string& file) const { return path() + "/" + file; }
  void replace(const std::string& file, const std::string& content) const {
    std::filesystem::remove(*this / file);  // the link, not what it leads to
    write_text(*this / file, content);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace megalith::test
