#include "megalith/base/error.h"

#include <cerrno>
#include <cstring>

namespace megalith {

Error::Error(const std::string& message) : std::runtime_error(message_text(message)) {}
Error::Error(const Lines& message) : std::runtime_error(message_text(message)) {}

void throw_internal_error(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(
      fmt::format("{} (internal error at {}:{}: {} does not hold; please report it)", message, file, line, condition));
}

SystemError system_error(const std::string& what) { return SystemError(fmt::format("{}: {}", what, strerror(errno))); }

}  // namespace megalith
