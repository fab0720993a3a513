// What answers are made of, as JSON schemas, and the messages of conversations. Tests hold answers against them
// (`make serve-suites`).
#pragma once

#include <string_view>
#include <vector>

namespace megalith::serve {

struct AnswerSchema {
  std::string_view name;
  std::string_view schema;
};

const std::vector<AnswerSchema>& answer_schemas();

}  // namespace megalith::serve
