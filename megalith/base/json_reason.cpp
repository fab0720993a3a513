#include "megalith/base/json_reason.h"

namespace megalith {

std::string json_reason(std::string_view what) {
  if (what.starts_with("[json.exception."))
    if (const size_t end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  constexpr std::string_view kParse = "parse error at ", kSyntax = "syntax error while parsing ", kReason = " - ";
  if (what.starts_with(kParse)) what.remove_prefix(kParse.size());
  const size_t syntax = what.find(kSyntax), reason = what.find(kReason, syntax);
  if (syntax == std::string_view::npos || reason == std::string_view::npos) return std::string(what);
  return std::string(what.substr(0, syntax)).append(what.substr(reason + kReason.size()));
}

}  // namespace megalith
