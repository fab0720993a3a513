// A chat template cut into tokens: text between tags, tags, and what stands in them. White space is treated as
// transformers sets Jinja up: a tag that stands alone on a line takes the line with it (trim_blocks, lstrip_blocks),
// and "-" and "+" in a tag say otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"

namespace megalith {

enum class TemplateTokenKind {
  text,          // as it is printed
  block_begin,   // {%
  block_end,     // %}
  output_begin,  // {{
  output_end,    // }}
  name,
  string,  // escapes resolved
  integer,
  number,
  symbol,  // "+", "==", "(", ...
  end
};

struct TemplateToken {
  TemplateTokenKind kind;
  std::string text;
  int line;
};

/// UserError "template_name, line 3: ..." if `source` is too long or has what no template has. The last token is `end`.
std::vector<TemplateToken> template_lex(std::string_view source, const std::string& template_name);

/// A UserError that says where.
class TemplateError : public UserError {
 public:
  using UserError::UserError;
};

/// Throws the error of a place in a template.
[[noreturn]] void template_fail(const std::string& template_name, int line, const std::string& message);

}  // namespace megalith
