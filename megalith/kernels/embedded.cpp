#include "megalith/kernels/embedded.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "megalith/base/error.h"

namespace megalith::kernels {

namespace {

// Pieces rather than one literal each: compilers need not take literals beyond 64 KB (C++ [implimits]).
struct Piece {
  const char* name;
  std::string_view text;
};
constexpr Piece kPieces[] = {
#include "megalith/kernels/embedded.inc"
};

const std::map<std::string, std::string, std::less<>>& table() {
  static const auto* joined = [] {
    auto* result = new std::map<std::string, std::string, std::less<>>;
    for (const Piece& piece : kPieces) (*result)[piece.name] += piece.text;
    return result;
  }();
  return *joined;
}

}  // namespace

std::string_view embedded_source(std::string_view name) {
  const auto found = table().find(name);
  MEGALITH_CHECK(found != table().end(), "there is no kernel header \"{}\"; there are {}", name,
                 fmt::join(embedded_names(), ", "));
  return found->second;
}

std::vector<std::string> embedded_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : table()) names.push_back(name);
  return names;
}

}  // namespace megalith::kernels
