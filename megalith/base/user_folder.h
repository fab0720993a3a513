// Where a user's files go that no command names (XDG Base Directory Specification).
#pragma once

#include <string>

namespace megalith {

/// `$variable/megalith` if `variable` (XDG_CACHE_HOME, XDG_STATE_HOME) is an absolute path, else
/// `$HOME/under_home/megalith`. Empty if there is neither.
std::string user_folder(const char* variable, const char* under_home);

}  // namespace megalith
