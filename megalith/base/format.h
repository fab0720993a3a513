// Quantities for people.
#pragma once

#include <string>

namespace megalith {

/// "820 B", "12 KiB", "1.5 GiB": three digits at most, units of 1024, as memory, caches and pages come. Rates are
/// another matter: those of memory are measured in GB/s, of 10^9 bytes, and say so themselves.
std::string format_bytes(double bytes);

}  // namespace megalith
