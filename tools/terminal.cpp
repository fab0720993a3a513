#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/base/log_file.h"
#include "megalith/base/printable.h"

namespace megalith::tools {

namespace {

// A cell beyond this does not push the columns of all other rows aside; its own row is then out of line.
constexpr size_t kWidestColumn = 48;

void note_text(const std::string& text) {
  if (log_level() == LogLevel::quiet) return;
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
  log_file_line(text);
}

}  // namespace

size_t text_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string terminal_text(std::string_view text) {
  std::string without_returns(text);
  std::erase(without_returns, '\r');
  return printable(without_returns);
}

void print(std::string_view text) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
  std::string shown;
  if (is_terminal) text = shown = terminal_text(text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  // Whoever started us may have had SIGPIPE ignored; a reader who has seen enough is still no error.
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);
  throw system_error("cannot write the result to stdout");
}

void note(const std::string& text) { note_text(message_text(text)); }
void note(const Lines& text) { note_text(message_text(text)); }

std::string read_stdin(size_t most_bytes) {
  std::string text;
  char piece[65536];
  while (const size_t count = std::fread(piece, 1, sizeof piece, stdin)) {
    text.append(piece, count);
    if (text.size() > most_bytes) throw SystemError(fmt::format("stdin has more than {} bytes", most_bytes));
  }
  if (std::ferror(stdin)) throw system_error("cannot read stdin");
  return text;
}

std::string read_input(const std::string& path, size_t most_bytes) {
  return path == "-" ? read_stdin(most_bytes) : stream_read(path, most_bytes);
}

std::string format_ms(double ms) {
  if (ms < 1) return fmt::format("{:.1f} us", ms * 1000);
  if (ms < 1000) return fmt::format("{:.1f} ms", ms);
  return fmt::format("{:.2f} s", ms / 1000);
}

std::string format_count(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (std::fabs(count) >= 1000 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.2f}{}", count, kUnits[unit]);
}

std::string format_time(int64_t seconds_since_1970) {
  const std::time_t time = seconds_since_1970;
  std::tm parts{};
  if (!::localtime_r(&time, &parts)) return "?";
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts)};
}

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

Table::Table(std::vector<std::string> head) {
  for (std::string& cell : head) {
    right_.push_back(cell.starts_with('>'));
    if (right_.back()) cell.erase(0, 1);
  }
  rows_.push_back(std::move(head));
}

void Table::row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable_line(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c)
      if (text_width(row[c]) <= kWidestColumn) widths[c] = std::max(widths[c], text_width(row[c]));
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string pad(std::max(widths[c], text_width(row[c])) - text_width(row[c]), ' ');
      line += right_[c] ? pad + row[c] : row[c] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace megalith::tools
