// 128-bit content hash (XXH3) for cache keys and signatures. Not cryptographic: keys never cross trust boundaries.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// 32 hexadecimal digits.
std::string hash_hex(std::string_view content);

}  // namespace megalith
