// "Did you mean": the names closest to one that was not found, for error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megalith {

/// ` (near: "a", "b")` with up to three of `names` by edit distance, or "" when none is close.
std::string near_names(std::string_view wanted, std::span<const std::string> names);

}  // namespace megalith
