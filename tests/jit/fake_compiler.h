// A compiler that a test controls: a shell script that writes down each call and then does what the test wants.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "base/temporary_folder.h"
#include "megalith/base/file.h"

namespace megalith::jit::test {

struct FakeCompiler {
  std::string path;
  std::string calls;  // a file with a line for each call: the number of the process that made it, and the arguments

  /// `action` is shell code that runs for everything but --version; "exec c++ \"$@\"" compiles.
  FakeCompiler(const std::string& folder, const std::string& action)
      : path(folder + "/fake-c++"), calls(folder + "/calls") {
    file_write_atomic(path, "#!/bin/sh\necho \"$PPID $@\" >> " + calls +
                                "\ncase \"$*\" in *--version) echo fake compiler 1.0; exit 0;; esac\n" + action + "\n");
    ::chmod(path.c_str(), 0755);
  }

  int count(const std::string& word = "") const {
    if (!file_exists(calls)) return 0;
    const std::string text = file_read(calls);
    int lines = 0;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines += text.substr(begin, end - begin).find(word) != std::string::npos;
    return lines;
  }
};

}  // namespace megalith::jit::test
