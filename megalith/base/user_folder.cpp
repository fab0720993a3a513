#include "megalith/base/user_folder.h"

#include <cstdlib>

namespace megalith {

std::string user_folder(const char* variable, const char* under_home) {
  const char* const named = std::getenv(variable);
  if (named && named[0] == '/') return std::string(named) + "/megalith";
  const char* const home = std::getenv("HOME");
  if (home && home[0] == '/') return std::string(home) + "/" + under_home + "/megalith";
  return "";
}

}  // namespace megalith
