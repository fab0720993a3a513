// What xgrammar leaves to its user: where its messages go, and a language of grammars that is not built.
#include <lark_converter.h>
#include <support/logging.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "megalith/grammar/budget.h"

namespace xgrammar {

// Without file, line and time: who asked with a wrong grammar reads it.
void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  throw LogFatalError(file, lineno, message);
}

// Of what clients send the log has nothing. A warning says that something of a source is left out.
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level == XGRAMMAR_LOG_LEVEL_WARNING) megalith::grammar::Budget::warn(message);
}

Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  throw std::runtime_error("grammars in Lark's language are not built");
}

}  // namespace xgrammar
