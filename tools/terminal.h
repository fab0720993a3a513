// What the command writes, and how: results to stdout, checked, everything else to stderr; numbers and tables for
// people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/message.h"

namespace megalith::tools {

/// Task graphs of large models have a few hundred MB; what has more is no text that somebody meant.
constexpr size_t kMaxInputBytes = size_t{4} << 30;

/// Writes to stdout at once. SystemError if it cannot be written (a full disk); a closed pipe ends the process quietly.
/// A terminal gets printable text, since what a model writes may be anything; a file or a pipe gets it as it is.
void print(std::string_view text);
/// What a terminal is shown of `text`: printable (base/printable.h), and without carriage returns, which overwrite the
/// line, and which at the ends of lines nobody misses.
std::string terminal_text(std::string_view text);
/// Writes a line to stderr unless -q was given.
void note(const std::string& text);
void note(const Lines& text);

/// All of stdin; SystemError if that is more than `most_bytes`.
std::string read_stdin(size_t most_bytes = kMaxInputBytes);
/// All of an input that a user names: a file, a pipe, - for stdin.
std::string read_input(const std::string& path, size_t most_bytes = kMaxInputBytes);

/// "12.3 ms", "1.50 s", "12.0 us".
std::string format_ms(double ms);
/// 1234567 as "1.23 M"; for counts of parameters and operations.
std::string format_count(double count);
/// "Jan  2 15:04" has no year and no order; this has: "2025-01-02 15:04".
std::string format_time(int64_t seconds_since_1970);
/// "3 tasks", "1 task".
std::string plural(int64_t count, std::string_view noun);

/// Columns that a text takes on a terminal, as far as it matters for tables: its characters.
size_t text_width(std::string_view text);

/// Rows of cells as aligned columns. A column whose head begins with '>' is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head);
  void row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace megalith::tools
