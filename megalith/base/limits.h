// Limits that the system sets a process. An errno says that one was met, and never which; whoever reads the error wants
// to know its value and how to raise it.
#pragma once

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

}  // namespace megalith
