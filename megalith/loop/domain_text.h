// The text of one domain, taken apart: which inames it lists, what it says about them, and whom it mentions. isl reads
// the constraints themselves; this is what has to be known before isl can be asked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/loop/lex.h"

namespace megalith::loop {

struct DomainText {
  std::vector<std::string> inames;  // of the tuple
  std::string body;                 // the constraints, "" for none
  std::vector<std::string> names;   // names in the body that the tuple does not list: parameters, or inames of others

  std::string text() const;  // "{ [i, j] : body }"
};

/// Reads `{ [i, j] : constraints }`, an isl parameter list `[n] ->` before it allowed and dropped.
DomainText read_domain(Cursor& cursor);
DomainText read_domain(std::string_view text, const std::string& kernel);

/// Reads constraints up to the token `until` (a symbol, or "" for the end of the line) as body and names.
DomainText read_constraints(Cursor& cursor, std::string_view until);

/// `body` with names replaced by integers; names that `exists` binds must not be among them.
std::string substitute_names(std::string_view body, const std::map<std::string, int64_t>& values);

}  // namespace megalith::loop
