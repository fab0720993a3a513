#include "megalith/loop/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

namespace {

// Rules that call each other double: what comes of a short text has a limit, in nodes of a tree and in its depth.
constexpr int64_t kMaxExpanded = 100'000;

class Expander {
 public:
  explicit Expander(const Kernel& kernel) : kernel_(kernel), prefix_(message_prefix(kernel.name)) {}

  // `values`: of the arguments of the rule whose body this is; null outside.
  Expr expand(const Expr& expr, const std::map<std::string, Expr>* values, int depth) {
    MEGALITH_CHECK(++count_ <= kMaxExpanded && depth <= kMaxNesting,
                   "{} without its rules an expression has more than {} parts, or is nested deeper than {} levels",
                   prefix_, kMaxExpanded, kMaxNesting);
    if (expr.kind == Expr::Kind::name && values) {
      const auto found = values->find(expr.name);
      if (found == values->end()) return expr;
      count_ += size_of(found->second);
      MEGALITH_CHECK(depth + depth_of(found->second) <= kMaxNesting,
                     "{} without its rules an expression is nested deeper than {} levels", prefix_, kMaxNesting);
      return found->second;
    }
    Expr result = expr;
    for (Expr& arg : result.args) arg = expand(arg, values, depth + 1);
    const Rule* rule = expr.kind == Expr::Kind::call ? kernel_.find_rule(expr.name) : nullptr;
    if (!rule) return result;
    MEGALITH_CHECK(rule->arguments.size() == result.args.size(), "{} the rule {} has {} arguments, wanted {}", prefix_,
                   rule->name, result.args.size(), rule->arguments.size());
    std::map<std::string, Expr> given;
    for (size_t i = 0; i < rule->arguments.size(); ++i) given[rule->arguments[i]] = std::move(result.args[i]);
    return expand(rule->body, &given, depth + 1);
  }

 private:
  const Kernel& kernel_;
  const std::string prefix_;
  int64_t count_ = 0;

  static int64_t size_of(const Expr& expr) {
    int64_t size = 1;
    for (const Expr& arg : expr.args) size += size_of(arg);
    return size;
  }
  static int depth_of(const Expr& expr) {
    int depth = 0;
    for (const Expr& arg : expr.args) depth = std::max(depth, depth_of(arg));
    return depth + 1;
  }
};

}  // namespace

Expr without_rules(const Kernel& kernel, const Expr& expr) { return Expander(kernel).expand(expr, nullptr, 0); }

Kernel without_rules(const Kernel& kernel) {
  if (kernel.rules.empty()) return kernel;
  Kernel result = kernel;
  for (Instruction& instruction : result.instructions) {
    instruction.target = without_rules(kernel, instruction.target);
    instruction.value = without_rules(kernel, instruction.value);
    if (instruction.condition) instruction.condition = without_rules(kernel, *instruction.condition);
  }
  result.rules.clear();
  const bool is_typed =
      std::ranges::all_of(kernel.tensors, [](const TensorArgument& t) { return t.dtype.has_value(); });
  if (is_typed) infer_types(result);
  return result;
}

}  // namespace megalith::loop
