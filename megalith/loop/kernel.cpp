#include "megalith/loop/kernel.h"

#include <algorithm>
#include <utility>

#include "megalith/loop/domain_text.h"

namespace megalith::loop {

const TensorArgument* Kernel::find_tensor(const std::string& tensor) const {
  const auto found = std::ranges::find(tensors, tensor, &TensorArgument::name);
  return found == tensors.end() ? nullptr : &*found;
}

TensorArgument* Kernel::find_tensor(const std::string& tensor) {
  return const_cast<TensorArgument*>(std::as_const(*this).find_tensor(tensor));
}

bool Kernel::is_parameter(const std::string& parameter) const {
  return std::ranges::find(parameters, parameter, &Parameter::name) != parameters.end();
}

bool Kernel::is_attribute(const std::string& attribute) const {
  return std::ranges::find(attributes, attribute, &Attribute::name) != attributes.end();
}

const Rule* Kernel::find_rule(const std::string& rule) const {
  const auto found = std::ranges::find(rules, rule, &Rule::name);
  return found == rules.end() ? nullptr : &*found;
}

std::vector<std::string> Kernel::inames() const {
  if (!order.empty()) return order;
  std::vector<std::string> result;
  for (const std::string& domain : domains)
    for (std::string& iname : read_domain(domain, name).inames) result.push_back(std::move(iname));
  return result;
}

Expr make_number(double value) {
  Expr expr;
  expr.number = value;
  return expr;
}

Expr make_integer(int64_t value) {
  Expr expr = make_number(static_cast<double>(value));
  expr.is_integer = true;
  expr.dtype = DType::i32;
  return expr;
}

Expr make_name(std::string name) {
  Expr expr;
  expr.kind = Expr::Kind::name;
  expr.name = std::move(name);
  expr.dtype = DType::i32;
  return expr;
}

Expr make_call(std::string name, std::vector<Expr> args) {
  Expr expr;
  expr.kind = Expr::Kind::call;
  expr.name = std::move(name);
  expr.args = std::move(args);
  return expr;
}

bool mentions(const Expr& expr, const std::string& name) {
  if (expr.kind == Expr::Kind::name && expr.name == name) return true;
  return std::ranges::any_of(expr.args, [&](const Expr& arg) { return mentions(arg, name); });
}

bool reads_tensor(const Expr& expr) {
  return expr.kind == Expr::Kind::subscript || std::ranges::any_of(expr.args, reads_tensor);
}

bool same_expression(const Expr& a, const Expr& b) {
  return a.kind == b.kind && a.number == b.number && a.is_integer == b.is_integer && a.name == b.name &&
         a.reduce == b.reduce && a.inames == b.inames && std::ranges::equal(a.args, b.args, same_expression);
}

}  // namespace megalith::loop
