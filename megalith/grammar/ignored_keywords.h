// Keywords of a JSON schema that xgrammar reads over: an answer would not fit the schema, and nobody would know.
#pragma once

#include <string>

namespace megalith::grammar {

/// The first such keyword; "" if there is none. UserError if the schema is no JSON.
std::string ignored_keyword(const std::string& schema);

}  // namespace megalith::grammar
