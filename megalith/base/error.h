// The three kinds of error that Megalith throws, and the two macros that throw them. Nothing below tools/ exits or
// aborts: whoever calls the library decides what an error means.
//
// A message names the thing, shows what was found and what was wanted, and ends with what to try:
//   [linear] inner dimensions differ: x is [1, 4096], weight is [6144, 4095] (node "layer.3.qkv")
//
// Messages quote names from files, which may be hostile: an error's message is made fit to be shown (message.h).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "megalith/base/message.h"

namespace megalith {

/// Base of all errors thrown by the library; what() is one readable message, printable and valid UTF-8.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  explicit Error(const Lines& message);
};

/// The input is wrong: a file, a flag, a shape, a loop kernel.
class UserError : public Error {
 public:
  using Error::Error;
};

/// We are wrong: an invariant of ours does not hold. The message carries file and line.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// The system is wrong: a command that failed, a full disk, a thread that could not be made.
class SystemError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition, const std::string& message);

/// "what: reason" for the errno of the call that just failed, e.g. system_error("cannot open models/x"). If the reason is
/// a limit, with its value and what to do (base/limits.h).
SystemError system_error(const std::string& what);
/// The same for what the standard library throws, e.g. when it cannot start a thread.
SystemError system_error(const std::system_error& error);

}  // namespace megalith

/// Throws UserError with the formatted message unless `condition` holds.
#define MEGALITH_CHECK(condition, ...)                                         \
  do {                                                                         \
    if (!(condition)) throw ::megalith::UserError(::fmt::format(__VA_ARGS__)); \
  } while (0)

/// Throws InternalError unless `condition` holds: for what can only be false if Megalith has a bug.
#define MEGALITH_ASSERT(condition, ...)                                                                             \
  do {                                                                                                              \
    if (!(condition)) ::megalith::throw_internal_error(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (0)
