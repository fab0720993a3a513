#include "tools/output_file.h"

#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "tools/terminal.h"

namespace megalith::tools {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (!path_.empty() && !is_stdout()) file_check_writable(path_);
}

void OutputFile::write(std::string_view content) const {
  if (is_stdout())
    print(content);
  else if (!path_.empty())
    file_write_atomic(path_, content);
}

void OutputFile::tell(std::string_view text) const {
  if (!is_stdout()) return print(text);
  if (text.ends_with('\n')) text.remove_suffix(1);
  note(Lines{std::string(text)});
}

}  // namespace megalith::tools
