// Limits that the system sets a process. An errno says that one was met, and never which; whoever reads the error wants
// to know its value and how to raise it.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

/// The limit behind `error` (an errno) and what to do: "ulimit -n is 256: raise it". "" for an error that comes of no
/// limit.
std::string limit_text(int error);
/// "reason (limit_text)" of an errno.
std::string error_text(int error);

/// What stands behind a signal that ends a process: a limit of its time or its files, or memory that has run out. ""
/// for the others.
std::string signal_text(int signal);

/// Lets this process have `count` files and sockets open at a time, as far as the system allows it without asking anybody. How many
/// it may have now.
int64_t open_files_raise(int64_t count);

}  // namespace megalith
