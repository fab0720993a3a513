// Whether code that lies in a folder may be run: only if nobody but this user and root can have put it there. The cache
// of kernels is believed under these rules, and nothing else is (docs/jit.md).
#pragma once

#include <sys/stat.h>

#include <string>

namespace megalith::jit {

/// Why what `info` describes, called `path`, is not to be believed: it belongs to another user than us and root, or
/// others may write to it. "" if there is no reason.
std::string distrust(const std::string& path, const struct stat& info);

/// Why others could put something else in the place of the folder `path`, which is absolute and need not exist: its own
/// owner or mode, or those of a folder or a link on the way to it. "" if nobody can.
std::string distrust_of_folder(const std::string& path);

}  // namespace megalith::jit
