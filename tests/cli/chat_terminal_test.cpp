// megalith chat as somebody at a terminal has it: keys, and the lines of earlier times.
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>

#include "cli/command_run.h"
#include "tools/terminal.h"

namespace megalith::test {
namespace {

constexpr const char* kUp = "\033[A";
constexpr const char* kLeft = "\033[D";

/// The command on a terminal of its own.
class Terminal {
 public:
  Terminal(std::vector<std::string> arguments, const std::string& state_home) {
    arguments.insert(arguments.begin(), MEGALITH_COMMAND);
    Command::cache();
    child_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    setenv("TERM", "xterm", 1);
    setenv("MEGALITH_CACHE_DIR", Command::cache().c_str(), 1);
    setenv("XDG_STATE_HOME", state_home.c_str(), 1);
    std::vector<char*> words;
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Terminal() {
    kill(child_, SIGKILL);
    close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Waits until `text` is shown, behind what was waited for before.
  void sees(const std::string& text) {
    for (;;) {
      if (const size_t at = shown_.find(text); at != std::string::npos) {
        shown_.erase(0, at + text.size());
        return;
      }
      pollfd one = {terminal_, POLLIN, 0};
      char bytes[4096];
      ssize_t count = 0;
      if (poll(&one, 1, 300'000) == 1) count = read(terminal_, bytes, sizeof bytes);
      ASSERT_GT(count, 0) << "no " << text << " in: " << shown_;
      shown_.append(bytes, static_cast<size_t>(count));
    }
  }

  /// Behind a prompt, and once the command takes keys: before, the terminal itself does.
  void types(const std::string& prompt, const std::string& keys) {
    sees(prompt);
    termios mode{};
    for (int tick = 0; tick < 6000 && (tcgetattr(terminal_, &mode) != 0 || (mode.c_lflag & ICANON)); ++tick)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), std::ssize(keys));
  }

  /// How it ended; five minutes are enough, even where other programs compile the same kernel.
  int code() {
    int status = 0;
    for (int tick = 0; waitpid(child_, &status, WNOHANG) == 0; ++tick) {
      if (tick == 30'000) kill(child_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t child_ = -1;
  int terminal_ = -1;
  std::string shown_;
};

TEST(ChatTerminal, ControlCClearsALineAndEndsAtAnEmptyOne) {
  const TemporaryFolder state;
  Terminal terminal({"chat", kStoryteller, "-c", "256", "-n", "12", "--temp", "0"}, state.path);
  terminal.types("> ", std::string("never said") + kLeft + kLeft + "\003/zeta\r");
  terminal.sees("there is no command /zeta");
  terminal.types("> ", "\003");
  EXPECT_EQ(terminal.code(), 128 + SIGINT);
}

// What a model writes and what others wrote for it to go on from: a file gets it as it is, a terminal does not.
TEST(Terminal, GetsNoEscapeSequences) {
  const TemporaryFolder state;
  const std::string prompt = "Once\033[2J\r upon\u202e a \xc2\x9b time\a";
  const std::vector<std::string> arguments = {"run", kStoryteller, "-c", "256", "-n", "4", "--temp", "0", "-p", prompt};
  Terminal terminal(arguments, state.path);
  terminal.sees("Once\\x1b[2J upon\\u202e a \\x9b time\\x07");
  EXPECT_EQ(terminal.code(), 0);
  EXPECT_THAT(megalith_command(arguments).out, ::testing::StartsWith(prompt));
  EXPECT_EQ(tools::terminal_text("a\r\n\tb\033c \xff"), "a\n\tb\\x1bc \\xff");
}

TEST(ChatTerminal, KeysEditALineAndBringEarlierOnesBack) {
  const TemporaryFolder state;
  const std::vector<std::string> arguments = {"chat", kStoryteller, "-c", "256", "-n", "12", "--temp", "0"};
  {
    Terminal terminal(arguments, state.path);
    terminal.types("> ", "/zeta\r");
    terminal.sees("there is no command /zeta");
    terminal.types("> ", std::string("/öhe") + kLeft + kLeft + "\177m\r");  // a letter of two bytes is one
    terminal.sees("there is no command /mhe");
    terminal.types("> ", std::string(kUp) + kUp + "\r");
    terminal.sees("there is no command /zeta");
    terminal.types("> ", "two\\\r");
    terminal.types(". ", "lines\r");
    terminal.types("> ", "/exit\r");
    EXPECT_EQ(terminal.code(), 0);
  }
  Terminal next(arguments, state.path);
  next.types("> ", std::string(kUp) + kUp + kUp + kUp + "\r");  // /exit, lines, two, /zeta
  next.sees("there is no command /zeta");
  next.types("> ", "\004");
  EXPECT_EQ(next.code(), 0);
  EXPECT_EQ(std::filesystem::status(state / "megalith/chat_history").permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace megalith::test
