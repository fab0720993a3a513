// What members of a request may be whose readers take values of several forms, as JSON schemas. Of all others Fields knows it.
#pragma once

#include <string_view>
#include <vector>

namespace megalith::serve {

struct MemberSchema {
  std::string_view key;
  std::string_view schema;  // null is the same as nothing, beside it
};

const std::vector<MemberSchema>& member_schemas();

}  // namespace megalith::serve
