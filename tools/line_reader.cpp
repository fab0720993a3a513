#include "tools/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/user_folder.h"
#include "megalith/model/encode_budget.h"

namespace megalith::tools {

namespace {

constexpr int kMaxLines = 1000;
// A line that is pasted may be a whole file; nobody looks for that with an arrow key.
constexpr size_t kLongestKeptLine = 1 << 16;

// Characters are UTF-8, whatever the machine's language: models know no others.
void set_character_type() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

class LineReader::Editor {
 public:
  explicit Editor(const std::string& history_name) {
    set_character_type();
    editor_ = el_init("megalith", stdin, stderr, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMaxLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(
        editor_, EL_PROMPT, +[](EditLine* editor) {
          Editor* self = nullptr;
          el_get(editor, EL_CLIENTDATA, &self);
          return self->prompt_.data();
        });
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 1);  // a signal finds the terminal as it was
    el_set(editor_, EL_HIST, history, history_);
    // While a line is edited, Ctrl-C is a key and no signal, so that there is something left to edit. libedit forgets
    // that one character of the terminal was set, so it is all signals' keys; the others are given back by hand.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_ADDFN, "megalith-clear", "Clear the line; at an empty one, end", &Editor::clear);
    el_set(editor_, EL_ADDFN, "megalith-stop", "Stop the process", &Editor::signal<SIGTSTP>);
    el_set(editor_, EL_ADDFN, "megalith-quit", "End the process", &Editor::signal<SIGQUIT>);
    el_set(editor_, EL_BIND, "^C", "megalith-clear", nullptr);
    el_set(editor_, EL_BIND, "^Z", "megalith-stop", nullptr);
    el_set(editor_, EL_BIND, "\\034", "megalith-quit", nullptr);
    el_source(editor_, nullptr);  // ~/.editrc, for those who have one
    if (const std::string folder = user_folder("XDG_STATE_HOME", ".local/state"); !folder.empty()) {
      file_ = folder + "/" + history_name;
      history(history_, &event, H_LOAD, file_.c_str());
    }
  }
  ~Editor() {
    save();
    history_end(history_);
    el_end(editor_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> next(const std::string& prompt) {
    prompt_ = prompt;
    int count = 0;
    const char* const text = el_gets(editor_, &count);
    if (is_interrupted_) {
      save();
      std::fputc('\n', stderr);
      std::raise(SIGINT);
    }
    if (!text || count <= 0) return std::nullopt;
    std::string line(text, static_cast<size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty() && line.size() <= kLongestKeptLine) history(history_, &event, H_ENTER, line.c_str());
    return line;
  }

 private:
  // As shells have it; at an empty prompt there is nothing to clear, and Ctrl-C ends us.
  static unsigned char clear(EditLine* editor, int) {
    const LineInfo* const line = el_line(editor);
    if (line->buffer == line->lastchar) {
      Editor* self = nullptr;
      el_get(editor, EL_CLIENTDATA, &self);
      self->is_interrupted_ = true;
      return CC_EOF;
    }
    el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
    el_deletestr(editor, static_cast<int>(line->lastchar - line->buffer));
    std::fputs("^C\n", stderr);
    return CC_REDISPLAY;
  }

  template <int kSignal>
  static unsigned char signal(EditLine*, int) {
    std::raise(kSignal);
    return CC_REDISPLAY;
  }

  // What was said is nobody else's business.
  void save() {
    if (file_.empty()) return;
    std::error_code code;
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), code);
    const mode_t mask = ::umask(077);
    HistEvent event;
    if (history(history_, &event, H_SAVE, file_.c_str()) == -1) log_info("{} could not be written", file_);
    ::umask(mask);
  }

  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_, file_;
  bool is_interrupted_ = false;
};

LineReader::LineReader(const std::string& history_name) {
  if (::isatty(STDIN_FILENO) && ::isatty(STDERR_FILENO)) editor_ = std::make_unique<Editor>(history_name);
}
LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (editor_) return editor_->next(prompt);
  std::string line;
  for (int c = std::cin.get(); c != '\n'; c = std::cin.get()) {
    if (c == std::char_traits<char>::eof()) return line.empty() ? std::nullopt : std::optional(line);
    line += static_cast<char>(c);
    MEGALITH_CHECK(line.size() <= kMaxTextBytes, "a line of stdin has more than {} bytes, more than any message may",
                   kMaxTextBytes);
  }
  return line;
}

}  // namespace megalith::tools
