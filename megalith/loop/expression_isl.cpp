// Expressions of a kernel as isl forms.
#include <isl/aff.h>
#include <isl/space.h>
#include <isl/val.h>

#include <algorithm>

#include "megalith/loop/affine.h"
#include "megalith/loop/domain.h"

namespace megalith::loop {

namespace {

std::optional<isl::aff> variable(const isl::space& space, const std::string& name) {
  for (const isl_dim_type type : {isl_dim_set, isl_dim_param}) {
    const int at = isl_space_find_dim_by_name(space.get(), type, name.c_str());
    if (at >= 0)
      return isl::manage(
          isl_aff_var_on_domain(isl_local_space_from_space(space.copy()), type, static_cast<unsigned>(at)));
  }
  return std::nullopt;
}

isl::aff constant(const isl::space& space, int64_t value) {
  return isl::manage(isl_aff_val_on_domain(isl_local_space_from_space(space.copy()),
                                           isl_val_int_from_si(isl_space_get_ctx(space.get()), value)));
}

isl::val val(const isl::space& space, int64_t value) {
  return isl::manage(isl_val_int_from_si(isl_space_get_ctx(space.get()), value));
}

std::optional<isl::aff> product(const isl::space& space, const Expr& expr) {
  for (const int side : {0, 1})
    if (const auto factor = constant_value(expr.args[static_cast<size_t>(side)])) {
      const auto other = to_isl_aff(space, expr.args[static_cast<size_t>(1 - side)]);
      if (!other) return std::nullopt;
      return other->scale(val(space, *factor));
    }
  return std::nullopt;
}

std::optional<isl::aff> quotient(const isl::space& space, const Expr& expr) {
  const auto divisor = constant_value(expr.args[1]);
  const auto dividend = to_isl_aff(space, expr.args[0]);
  if (!divisor || *divisor <= 0 || !dividend) return std::nullopt;
  if (expr.name == "mod") return dividend->mod(val(space, *divisor));
  return dividend->scale_down(val(space, *divisor)).floor();
}

std::optional<isl::set> comparison(const isl::space& space, const Expr& condition) {
  const auto left = to_isl_aff(space, condition.args[0]), right = to_isl_aff(space, condition.args[1]);
  if (!left || !right) return std::nullopt;
  const std::string& op = condition.name;
  if (op == "<") return left->lt_set(*right);
  if (op == "<=") return left->le_set(*right);
  if (op == ">") return left->gt_set(*right);
  if (op == ">=") return left->ge_set(*right);
  if (op == "==") return left->eq_set(*right);
  return left->ne_set(*right);
}

bool is_affine_in(const std::vector<std::string>& inames, const Kernel& kernel, const Expr& expr) {
  auto arg_is_affine = [&](size_t i) { return is_affine_in(inames, kernel, expr.args[i]); };
  switch (expr.kind) {
    case Expr::Kind::number: return expr.is_integer;
    case Expr::Kind::name:
      return kernel.is_parameter(expr.name) || std::ranges::find(inames, expr.name) != inames.end();
    case Expr::Kind::subscript:
    case Expr::Kind::reduce: return false;
    case Expr::Kind::call: break;
  }
  if (expr.name == "+" || expr.name == "-") return arg_is_affine(0) && arg_is_affine(1);
  if (expr.name == "neg") return arg_is_affine(0);
  if (expr.name == "*")
    return (constant_value(expr.args[0]) && arg_is_affine(1)) || (constant_value(expr.args[1]) && arg_is_affine(0));
  if (expr.name == "//" || expr.name == "mod") {
    const auto divisor = constant_value(expr.args[1]);
    return divisor && *divisor > 0 && arg_is_affine(0);
  }
  return false;
}

}  // namespace

std::optional<int64_t> constant_value(const Expr& expr) {
  constexpr int64_t kLimit = int64_t{1} << 53;
  if (expr.kind == Expr::Kind::number && expr.is_integer) return static_cast<int64_t>(expr.number);
  if (expr.kind != Expr::Kind::call || expr.args.empty() || expr.args.size() > 2) return std::nullopt;
  const auto a = constant_value(expr.args[0]);
  if (!a) return std::nullopt;
  if (expr.name == "neg") return -*a;
  const auto b = expr.args.size() == 2 ? constant_value(expr.args[1]) : std::nullopt;
  if (!b) return std::nullopt;
  std::optional<int64_t> result;
  int64_t product = 0;
  if (expr.name == "+") result = *a + *b;
  if (expr.name == "-") result = *a - *b;
  if (expr.name == "*" && !__builtin_mul_overflow(*a, *b, &product)) result = product;
  if (expr.name == "//" && *b > 0) result = QuasiAffine::floor_divide(*a, *b);
  if (expr.name == "mod" && *b > 0) result = *a - *b * QuasiAffine::floor_divide(*a, *b);
  return result && std::abs(*result) <= kLimit ? result : std::nullopt;
}

bool is_affine(const Kernel& kernel, const Expr& expr) { return is_affine_in(kernel.inames(), kernel, expr); }

std::optional<isl::aff> to_isl_aff(const isl::space& space, const Expr& expr) {
  if (const auto value = constant_value(expr)) return constant(space, *value);
  if (expr.kind == Expr::Kind::name) return variable(space, expr.name);
  if (expr.kind != Expr::Kind::call) return std::nullopt;
  if (expr.name == "*") return product(space, expr);
  if (expr.name == "//" || expr.name == "mod") return quotient(space, expr);
  if (expr.name != "+" && expr.name != "-" && expr.name != "neg") return std::nullopt;
  const auto first = to_isl_aff(space, expr.args[0]);
  if (!first) return std::nullopt;
  if (expr.name == "neg") return first->neg();
  const auto second = to_isl_aff(space, expr.args[1]);
  if (!second) return std::nullopt;
  return expr.name == "+" ? first->add(*second) : first->sub(*second);
}

std::optional<isl::set> to_isl_set(const isl::space& space, const Expr& condition) {
  if (condition.kind != Expr::Kind::call) return std::nullopt;
  const std::string& op = condition.name;
  if (op == "and" || op == "or") {
    const auto a = to_isl_set(space, condition.args[0]), b = to_isl_set(space, condition.args[1]);
    if (!a || !b) return std::nullopt;
    return op == "and" ? a->intersect(*b) : a->unite(*b);
  }
  if (op == "not") {
    const auto a = to_isl_set(space, condition.args[0]);
    if (!a) return std::nullopt;
    return a->complement();
  }
  if (op == "<" || op == "<=" || op == ">" || op == ">=" || op == "==" || op == "!=")
    return comparison(space, condition);
  return std::nullopt;
}

}  // namespace megalith::loop
