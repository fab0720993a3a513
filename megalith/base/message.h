// What an error or the log says, made fit to be shown. Messages quote names from files, and a file may be hostile: so
// every message becomes printable text (printable.h), of one line unless it says otherwise, and one that is too long
// loses its middle. Error and log_line() do this; nobody else has to.
#pragma once

#include <string>

namespace megalith {

/// A message that has several lines, such as a compiler's log. Its newlines stay, so names in it that come from files
/// go through printable_line() first.
struct Lines {
  std::string text;
};

std::string message_text(const std::string& message);
std::string message_text(const Lines& message);

}  // namespace megalith
