// Expressions of kernel text, by precedence climbing. What is an iname must be known: `max(s, x)` is a reduction if s
// is one, and the function of two arguments if not.
#pragma once

#include <map>
#include <set>
#include <string>

#include "megalith/loop/kernel.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

/// UserError with line and column, also where the expression is nested deeper than kMaxNesting: what comes after the
/// parser may recurse.
/// `rules` that may be called, with their numbers of arguments; null for none.
Expr parse_expression(Cursor& cursor, const std::set<std::string>& inames,
                      const std::map<std::string, size_t>* rules = nullptr);
/// `name[index, ...]` alone.
Expr parse_subscript(Cursor& cursor, const std::set<std::string>& inames);

}  // namespace megalith::loop
