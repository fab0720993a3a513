// Where a command puts a result that has a file of its own: -o FILE, or - for stdout.
#pragma once

#include <string>
#include <string_view>

namespace megalith::tools {

class OutputFile {
 public:
  /// SystemError if nothing can be written there: said before the work, not after. "": nobody asked for the file.
  explicit OutputFile(std::string path);

  /// For messages: its path, or "stdout".
  std::string name() const { return is_stdout() ? "stdout" : path_; }
  bool is_stdout() const { return path_ == "-"; }
  void write(std::string_view content) const;
  /// What there is to say beside the file: on stdout, or on stderr where stdout is the file.
  void tell(std::string_view text) const;

 private:
  std::string path_;
};

}  // namespace megalith::tools
