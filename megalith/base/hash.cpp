#include "megalith/base/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megalith {

std::string hash_hex(std::string_view content) {
  XXH128_hash_t h = XXH3_128bits(content.data(), content.size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace megalith
