// What transformations have in common. Internal to loop/transform/.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

/// Visits every expression of an instruction or a kernel, what it consists of first.
void for_each_expression(Expr& expr, const std::function<void(Expr&)>& visit);
void for_each_expression(Instruction& instruction, const std::function<void(Expr&)>& visit);
void for_each_expression(Kernel& kernel, const std::function<void(Expr&)>& visit);

/// Names (not tensors) become expressions.
void replace_names(Expr& expr, const std::map<std::string, Expr>& by);

/// The domain texts and assumptions with names replaced by texts, in parentheses where those are more than a name. UserError
/// if a text binds one of the names itself (exists).
std::string replace_names(const Kernel& kernel, std::string_view constraints,
                          const std::map<std::string, std::string>& by);

inline bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// All that has a meaning in the kernel: inames, parameters, attributes, tensors.
std::set<std::string> names_of(const Kernel& kernel);
/// Those, and all else that stands in its domains.
std::set<std::string> words_of(const Kernel& kernel);
/// UserError unless `name` can name something.
void check_is_name(const Kernel& kernel, const std::string& name);
/// UserError unless `name` is an identifier that has no meaning in the kernel yet.
void check_is_free(const Kernel& kernel, const std::string& name);
/// `base`, or that with a number behind it, such that it has no meaning in the kernel and is not among `more`.
std::string free_name(const Kernel& kernel, const std::string& base, const std::set<std::string>& more = {});

bool has_iname(const Kernel& kernel, const std::string& iname);
void check_has_iname(const Kernel& kernel, const std::string& iname);
const TensorArgument& tensor_of(const Kernel& kernel, const std::string& tensor);

/// What `set` says, as constraints of a domain text; "" if nothing.
std::string constraints_of(const isl::set& set);

/// An affine expression as isl reads it.
std::string isl_text_of(const Expr& expr);

/// One more domain text; its inames stand last in the order of loops.
void add_domain(Kernel& kernel, const std::string& domain);

/// Instructions before the one at `at`, and on its side of a barrier over everything.
void insert_instructions(Kernel& kernel, size_t at, std::vector<Instruction> instructions);

/// The instruction at `at` goes, and no barrier with it.
void erase_instruction(Kernel& kernel, size_t at);

/// split_iname(), after which an argmax over `iname` runs over both: the caller sees to its value.
Kernel split_with_argmax(const Kernel& kernel, const std::string& iname, int64_t factor, const std::string& outer,
                         const std::string& inner);

/// duplicate_inames() in one reduction alone: expression number `which`, as for_each_expression() counts, of an instruction.
Kernel duplicate_in_reduction(const Kernel& kernel, const std::map<std::string, std::string>& copies,
                              size_t instruction, size_t which);

/// Ends a transformation: inames that nothing uses go; `within` is in the domains' order; types and shapes of what is new
/// are inferred; names are checked.
Kernel finished(Kernel kernel);

template <class... Args>
[[noreturn]] void refuse(const Kernel& kernel, fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format("{} {}", message_prefix(kernel.name), fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace megalith::loop
