// Kernel to text, the inverse of parse.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "megalith/loop/function.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

std::string print_at(const Expr& expr, int least);

std::string print_number(double value, bool is_integer) {
  if (is_integer) return fmt::format("{}", static_cast<int64_t>(value));
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // 2 -> 2.0; 1e+20 and inf stay
  return text;
}

std::string print_list(const std::vector<Expr>& exprs) {
  std::string text;
  for (const Expr& expr : exprs) text += (text.empty() ? "" : ", ") + print_at(expr, 0);
  return text;
}

std::string print_call(const Expr& expr, int& precedence) {
  const Function* function = find_function(expr.name);
  if (!function || function->precedence == 0) return fmt::format("{}({})", expr.name, print_list(expr.args));
  precedence = function->precedence;
  if (expr.name == "neg") {
    const std::string operand = print_at(expr.args[0], kPrecedenceNeg);
    return operand.starts_with('-') ? fmt::format("-({})", operand) : "-" + operand;
  }
  if (expr.name == "not") return "not " + print_at(expr.args[0], kPrecedenceNot);
  const int left = precedence == kPrecedenceCompare ? precedence + 1 : precedence;
  return fmt::format("{} {} {}", print_at(expr.args[0], left), expr.name, print_at(expr.args[1], precedence + 1));
}

std::string print_reduce(const Expr& expr) {
  constexpr const char* kNames[] = {"sum", "max", "min", "argmax"};
  const std::string inames = fmt::format("{}", fmt::join(expr.inames, ", "));
  return fmt::format("{}({}, {})", kNames[static_cast<int>(expr.reduce)],
                     expr.inames.size() == 1 ? inames : "(" + inames + ")", print_list(expr.args));
}

// With parentheses if the expression binds less tightly than `least`.
std::string print_at(const Expr& expr, int least) {
  int precedence = kPrecedencePrimary;
  std::string text;
  switch (expr.kind) {
    case Expr::Kind::number:
      text = print_number(expr.number, expr.is_integer);
      if (text.starts_with('-')) precedence = kPrecedenceNeg;
      break;
    case Expr::Kind::name: text = expr.name; break;
    case Expr::Kind::subscript: text = fmt::format("{}[{}]", expr.name, print_list(expr.args)); break;
    case Expr::Kind::call: text = print_call(expr, precedence); break;
    case Expr::Kind::reduce: text = print_reduce(expr); break;
  }
  return precedence < least ? "(" + text + ")" : text;
}

std::string print_instruction(const Instruction& instruction, const std::string& default_id) {
  std::vector<std::string> options;
  if (instruction.id != default_id) options.push_back("id=" + instruction.id);
  if (!instruction.depends_on.empty()) options.push_back(fmt::format("dep={}", fmt::join(instruction.depends_on, ":")));
  if (!instruction.unordered.empty())
    options.push_back(fmt::format("nosync={}", fmt::join(instruction.unordered, ":")));
  if (instruction.condition) options.push_back("if=" + print(*instruction.condition));
  std::vector<std::string> extra;
  for (const std::string& iname : instruction.within)
    if (!mentions(instruction.target, iname)) extra.push_back(iname);
  if (!extra.empty()) options.push_back(fmt::format("inames={}", fmt::join(extra, ":")));
  for (const auto& [iname, tag] : instruction.tags) options.push_back(fmt::format("tag={}:{}", iname, tag_name(tag)));
  const std::string text = print(instruction.target) + " = " + print(instruction.value);
  return options.empty() ? text : fmt::format("{}  {{{}}}", text, fmt::join(options, ", "));
}

std::string print_tensor(const TensorArgument& tensor) {
  constexpr const char* kRoles[] = {"input", "output", "inout", "temporary"};
  std::string text = fmt::format("{} {}", kRoles[static_cast<int>(tensor.role)], tensor.name);
  if (tensor.dtype || tensor.shape_known) text += ": ";
  if (tensor.dtype) text += dtype_name(*tensor.dtype);
  if (tensor.shape_known) text += "[" + print_list(tensor.shape) + "]";
  if (tensor.space != Space::automatic) text += fmt::format(" {}", space_name(tensor.space));
  if (!tensor.storage.empty()) text += fmt::format(" in {}", tensor.storage);
  if (tensor.is_streamed && (tensor.role == Role::output || tensor.role == Role::inout)) text += " streamed";
  return text;
}

}  // namespace

std::string print(const Expr& expr) { return print_at(expr, 0); }

std::string print(const Instruction& instruction) { return print_instruction(instruction, ""); }

std::string print(const Kernel& kernel) {
  std::string text;
  if (!kernel.name.empty()) text += fmt::format("kernel {}\n", kernel.name);
  if (kernel.opaque) text += "opaque\n";
  for (const Parameter& parameter : kernel.parameters)
    text += fmt::format("parameter {}{}\n", parameter.name, parameter.dynamic ? " dynamic" : "");
  for (const Attribute& attribute : kernel.attributes)
    text += fmt::format("attribute {} = {}\n", attribute.name, attribute.value);
  for (const TensorArgument& tensor : kernel.tensors) text += print_tensor(tensor) + "\n";
  if (!kernel.assumptions.empty()) text += fmt::format("assume {}\n", kernel.assumptions);
  for (const auto& [iname, tag] : kernel.tags) text += fmt::format("tag {} = {}\n", iname, tag_name(tag));
  for (const std::string& domain : kernel.domains) text += domain + "\n";
  if (!kernel.order.empty()) text += fmt::format("order {}\n", fmt::join(kernel.order, ", "));
  for (const Rule& rule : kernel.rules)
    text += fmt::format("rule {}({}) = {}\n", rule.name, fmt::join(rule.arguments, ", "), print(rule.body));
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    if (kernel.instructions[i].is_behind_barrier) text += "barrier\n";
    text += print_instruction(kernel.instructions[i], fmt::format("insn{}", i)) + "\n";
  }
  return text;
}

}  // namespace megalith::loop
