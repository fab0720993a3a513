// fold_constants, common_subexpressions
#include <cmath>
#include <map>
#include <optional>

#include "megalith/loop/access.h"
#include "megalith/loop/function.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/reduction.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

bool is_number(const Expr& expr) { return expr.kind == Expr::Kind::number; }
bool is_integer(const Expr& expr, int64_t value) {
  return is_number(expr) && expr.is_integer && expr.number == static_cast<double>(value);
}
bool is_one(const Expr& expr) { return is_number(expr) && expr.number == 1; }

// Of whole numbers, exactly, as the interpreter computes them; nothing where that is an error or too large to be written.
std::optional<int64_t> whole_result(const std::string& name, int64_t a, int64_t b) {
  int64_t result = 0;
  constexpr int64_t kMost = int64_t{1} << 53;  // a number of a text is a double
  if (name == "+" && __builtin_add_overflow(a, b, &result)) return {};
  if (name == "-" && __builtin_sub_overflow(a, b, &result)) return {};
  if (name == "*" && __builtin_mul_overflow(a, b, &result)) return {};
  if (name == "//" || name == "mod") {
    if (b == 0) return {};
    const int64_t rest = ((a % b) + b) % b;
    result = name == "mod" ? rest : (a - rest) / b;
  } else if (name != "+" && name != "-" && name != "*") {
    return {};
  }
  return std::abs(result) <= kMost ? std::optional(result) : std::nullopt;
}

std::optional<bool> truth_of(const Expr& expr) {
  if (expr.kind != Expr::Kind::call) return {};
  if (expr.name == "not") {
    const auto inside = truth_of(expr.args[0]);
    return inside ? std::optional(!*inside) : std::nullopt;
  }
  if (expr.name == "and" || expr.name == "or") {
    const auto a = truth_of(expr.args[0]), b = truth_of(expr.args[1]);
    const bool decides = expr.name == "or";
    if (a == decides || b == decides) return decides;
    return a && b ? b : std::nullopt;
  }
  if (expr.args.size() != 2 || !is_number(expr.args[0]) || !is_number(expr.args[1])) return {};
  const double a = expr.args[0].number, b = expr.args[1].number;
  if (expr.name == "<") return a < b;
  if (expr.name == "<=") return a <= b;
  if (expr.name == ">") return a > b;
  if (expr.name == ">=") return a >= b;
  if (expr.name == "==") return a == b;
  if (expr.name == "!=") return a != b;
  return {};
}

// What the call is if its arguments say so; of the same type.
std::optional<Expr> folded(const Expr& call) {
  const std::vector<Expr>& args = call.args;
  const auto of_its_type = [&](const Expr& arg) { return arg.dtype == call.dtype ? std::optional(arg) : std::nullopt; };
  if (call.name == "if") {
    const auto holds = truth_of(args[0]);
    return holds ? of_its_type(args[*holds ? 1 : 2]) : std::nullopt;
  }
  if (args.size() != 2) return {};
  const Expr &a = args[0], &b = args[1];
  if (is_number(a) && is_number(b)) {
    if (a.is_integer && b.is_integer && call.name != "/") {
      const auto whole = whole_result(call.name, static_cast<int64_t>(a.number), static_cast<int64_t>(b.number));
      return whole ? std::optional(make_integer(*whole)) : std::nullopt;
    }
    double value = 0;
    if (call.name == "+")
      value = a.number + b.number;
    else if (call.name == "-")
      value = a.number - b.number;
    else if (call.name == "*")
      value = a.number * b.number;
    else if (call.name == "/" && b.number != 0)
      value = a.number / b.number;
    else
      return {};
    return std::isfinite(value) ? std::optional(make_number(value)) : std::nullopt;
  }
  // Not x + 0 of floats, which makes 0 of -0, nor x * 0, which may be no number.
  const bool is_whole = !dtype_is_float(call.dtype);
  if (call.name == "*" && is_one(a)) return of_its_type(b);
  if ((call.name == "*" || call.name == "/") && is_one(b)) return of_its_type(a);
  if (call.name == "//" && is_one(b)) return of_its_type(a);
  if (call.name == "-" && is_integer(b, 0)) return of_its_type(a);
  if (call.name == "+" && is_whole && is_integer(a, 0)) return of_its_type(b);
  if (call.name == "+" && is_whole && is_integer(b, 0)) return of_its_type(a);
  return {};
}

void fold(Expr& expr) {
  for (Expr& arg : expr.args) fold(arg);
  if (expr.kind == Expr::Kind::reduce && expr.args.size() == 2 && truth_of(expr.args[1]) == true) expr.args.pop_back();
  if (expr.kind != Expr::Kind::call) return;
  if (auto result = folded(expr)) {
    result->dtype = expr.dtype;
    expr = std::move(*result);
  }
}

size_t num_nodes(const Expr& expr) {
  size_t count = 1;
  for (const Expr& arg : expr.args) count += num_nodes(arg);
  return count;
}

// Worth a temporary: more than one element and its type, and no condition.
bool computes(const Expr& expr) {
  if (expr.kind == Expr::Kind::reduce) return dtype_is_float(expr.dtype);
  if (expr.kind != Expr::Kind::call || !dtype_is_float(expr.dtype)) return false;
  if (is_dtype_name(expr.name) || expr.name == "neg") return computes(expr.args[0]);
  const std::function<bool(const Expr&)> depends = [&](const Expr& inside) {
    return inside.kind == Expr::Kind::subscript || inside.kind == Expr::Kind::name ||
           std::ranges::any_of(inside.args, depends);
  };
  return depends(expr);
}

class CommonSubexpressions {
 public:
  CommonSubexpressions(const Kernel& kernel, const std::vector<std::string>& ids) : kernel_(kernel), ids_(ids) {
    for (const std::string& id : ids)
      if (std::ranges::find(kernel.instructions, id, &Instruction::id) == kernel.instructions.end())
        refuse(kernel, "there is no instruction \"{}\"", id);
  }

  Kernel run() {
    for (size_t i = 0; i < kernel_.instructions.size();) {
      const Instruction& instruction = kernel_.instructions[i];
      const auto common = ids_.empty() || is_among(ids_, instruction.id) ? largest_common(i) : std::nullopt;
      if (common)
        take_out(i, *common);
      else
        ++i;
    }
    return finished(std::move(kernel_));
  }

 private:
  Kernel kernel_;
  const std::vector<std::string>& ids_;

  // The instructions from `first` on that run at each point after it, before anything that it reads is written: at the same
  // points, under the same condition.
  std::vector<size_t> alike(size_t first, const Expr& value) const {
    const Instruction& instruction = kernel_.instructions[first];
    std::vector<std::string> read = tensors_read(value);
    if (instruction.condition)
      for (const std::string& name : tensors_read(*instruction.condition)) read.push_back(name);
    std::vector<size_t> found = {first};
    for (size_t next = first + 1; next < kernel_.instructions.size(); ++next) {
      const Instruction &before = kernel_.instructions[next - 1], &other = kernel_.instructions[next];
      const bool changes = is_among(read, before.target.name);
      const bool is_alike = other.within == instruction.within && !other.is_behind_barrier &&
                            shared_loops(kernel_, first, next) == instruction.within.size() &&
                            other.condition.has_value() == instruction.condition.has_value() &&
                            (!other.condition || same_expression(*other.condition, *instruction.condition));
      if (changes || !is_alike || (!ids_.empty() && !is_among(ids_, other.id))) break;
      found.push_back(next);
    }
    return found;
  }

  // What the instruction computes at each of its points, whatever the values are, outside of subscripts.
  std::optional<Expr> largest_common(size_t at) const {
    const Instruction& instruction = kernel_.instructions[at];
    const size_t own_guards = instruction.condition ? 1 : 0;
    std::map<std::string, const Expr*> candidates;
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (place.in_target || place.in_subscript || place.guards.size() > own_guards || !computes(expr) ||
          place.inames.size() > instruction.within.size() || is_in_condition(instruction, expr))
        return;
      candidates.emplace(print(expr), &expr);
    });
    const Expr* best = nullptr;
    for (const auto& [text, expr] : candidates) {
      if (best && num_nodes(*best) >= num_nodes(*expr)) continue;
      int count = 0;
      for (const size_t other : alike(at, *expr)) count += num_occurrences(kernel_.instructions[other].value, *expr);
      if (count >= 2) best = expr;
    }
    return best ? std::optional(*best) : std::nullopt;
  }

  // The condition is what stands before a temporary's instruction, too.
  static bool is_in_condition(const Instruction& instruction, const Expr& expr) {
    const std::function<bool(const Expr&)> has = [&](const Expr& inside) {
      return &inside == &expr || std::ranges::any_of(inside.args, has);
    };
    return instruction.condition && has(*instruction.condition);
  }

  static int num_occurrences(const Expr& in, const Expr& expr) {
    if (same_expression(in, expr)) return 1;
    if (in.kind == Expr::Kind::subscript) return 0;
    int count = 0;
    for (const Expr& arg : in.args) count += num_occurrences(arg, expr);
    return count;
  }
  static void replace(Expr& in, const Expr& expr, const Expr& by) {
    if (same_expression(in, expr)) {
      in = by;
      return;
    }
    if (in.kind == Expr::Kind::subscript) return;
    for (Expr& arg : in.args) replace(arg, expr, by);
  }

  // A temporary of one element, or of one for each iteration of a vector around it.
  void take_out(size_t at, const Expr& expr) {
    const std::vector<size_t> users = alike(at, expr);
    Expr element;
    element.kind = Expr::Kind::subscript;
    element.name = free_name(kernel_, "common");
    for (const std::string& iname : kernel_.instructions[at].within)
      if (const auto tag = kernel_.tags.find(iname); tag != kernel_.tags.end() && tag->second == InameTag::vector)
        element.args.push_back(make_name(iname));
    if (element.args.empty()) element.args.push_back(make_integer(0));
    element.dtype = expr.dtype;
    Instruction computing;
    computing.id = free_id(kernel_, element.name);
    computing.target = element;
    computing.value = expr;
    computing.condition = kernel_.instructions[at].condition;
    computing.within = kernel_.instructions[at].within;
    for (const size_t user : users) replace(kernel_.instructions[user].value, expr, element);
    insert_instructions(kernel_, at, {std::move(computing)});
    kernel_.tensors.push_back({.name = element.name, .role = Role::temporary, .dtype = expr.dtype, .shape = {}});
    kernel_ = finished(std::move(kernel_));
  }
};

}  // namespace

Kernel fold_constants(const Kernel& kernel) {
  Kernel result = kernel;
  for (Instruction& instruction : result.instructions) {
    fold(instruction.target);
    fold(instruction.value);
    if (!instruction.condition) continue;
    fold(*instruction.condition);
    if (truth_of(*instruction.condition) == true) instruction.condition.reset();
  }
  return finished(std::move(result));
}

Kernel common_subexpressions(const Kernel& kernel, const std::vector<std::string>& ids) {
  return CommonSubexpressions(kernel, ids).run();
}

}  // namespace megalith::loop
