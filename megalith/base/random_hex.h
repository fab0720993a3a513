// Names that nobody can foresee, for what is made beside other people's files.
#pragma once

#include <string>

namespace megalith {

/// 32 hexadecimal digits from the system's random numbers.
std::string random_hex();

}  // namespace megalith
