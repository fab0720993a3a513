#include "megalith/base/error.h"

#include <cerrno>
#include <cstring>

#include "megalith/base/limits.h"

namespace megalith {

Error::Error(const std::string& message) : std::runtime_error(message_text(message)) {}
Error::Error(const Lines& message) : std::runtime_error(message_text(message)) {}

void throw_internal_error(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(
      fmt::format("{} (internal error at {}:{}: {} does not hold; please report it)", message, file, line, condition));
}

SystemError system_error(const std::string& what) {
  const int error = errno;
  // Reads and writes that find nothing to do say EAGAIN as well as a process that may start no thread does.
  return SystemError(fmt::format("{}: {}", what, error == EAGAIN ? strerror(error) : error_text(error)));
}

SystemError system_error(const std::system_error& error) {
  const bool is_errno =
      error.code().category() == std::generic_category() || error.code().category() == std::system_category();
  const std::string limit = is_errno ? limit_text(error.code().value()) : "";
  return SystemError(limit.empty() ? fmt::format("the system refused: {}", error.what())
                                   : fmt::format("the system refused: {} ({})", error.what(), limit));
}

}  // namespace megalith
