// A file that gets a copy of everything written for people to read: log lines, and what the command says on stderr.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// From now on lines go to `path` too, after what it holds already. SystemError if it cannot be opened.
void log_file_open(const std::string& path);
/// Writes a line to the file, if there is one, at once.
void log_file_line(std::string_view line);

}  // namespace megalith
