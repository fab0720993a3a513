#include "megalith/base/json_quote.h"
#include "megalith/grammar/grammar.h"

namespace megalith::grammar {

GrammarSource choice_of(const std::vector<std::string>& choices) {
  std::string elements;
  for (const std::string& choice : choices)
    elements += (elements.empty() ? "" : ",") + (R"({"type":"const_string","value":)" + json_quote(choice)) + "}";
  return {GrammarKind::tag, R"({"type":"structural_tag","format":{"type":"or","elements":[)" + elements + "]}}"};
}

}  // namespace megalith::grammar
