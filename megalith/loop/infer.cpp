#include "megalith/loop/infer.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/function.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// ---- types -------------------------------------------------------------------------------------

using MaybeType = std::optional<DType>;  // nothing: not known yet

// What arithmetic on the two gives: 16-bit floats compute in f32. Unknown types do not take part.
MaybeType arithmetic(MaybeType a, MaybeType b) {
  if (!a || !b) return a ? arithmetic(a, a) : b ? arithmetic(b, b) : MaybeType();
  if (dtype_is_float(*a) || dtype_is_float(*b)) return DType::f32;
  return *a == DType::i64 || *b == DType::i64 ? DType::i64 : DType::i32;
}

// The type of a tensor that is written with both.
MaybeType joined(MaybeType a, MaybeType b) {
  if (!a || !b) return a ? a : b;
  return *a == *b ? a : arithmetic(a, b);
}

class TypeInference {
 public:
  explicit TypeInference(Kernel& kernel) : kernel_(kernel) {
    for (const std::string& iname : kernel.inames()) inames_.insert(iname);
    for (const TensorArgument& tensor : kernel.tensors) types_[tensor.name] = tensor.dtype;
  }

  void run() {
    // Each round can only widen a type, and there are five: this ends.
    for (bool changed = true; changed;) {
      changed = false;
      for (Instruction& instruction : kernel_.instructions) {
        const MaybeType value = type_of(instruction.value, instruction);
        const TensorArgument* target = kernel_.find_tensor(instruction.target.name);
        MaybeType& known = types_[instruction.target.name];
        const MaybeType wider = target && target->dtype ? target->dtype : joined(known, value);
        changed |= wider != known;
        known = wider;
      }
    }
    for (Instruction& instruction : kernel_.instructions) {
      // The value again: tensors of later instructions may have become known after its turn.
      type_of(instruction.value, instruction);
      type_of(instruction.target, instruction);
      if (instruction.condition) type_of(*instruction.condition, instruction);
      require_all(instruction.target, instruction);
      require_all(instruction.value, instruction);
      if (instruction.condition) require_all(*instruction.condition, instruction);
    }
    for (TensorArgument& tensor : kernel_.tensors) tensor.dtype = types_[tensor.name];
  }

 private:
  Kernel& kernel_;
  std::set<std::string> inames_;
  std::map<std::string, MaybeType> types_;

  MaybeType type_of(Expr& expr, const Instruction& instruction) {
    const MaybeType type = find_type(expr, instruction);
    if (type) expr.dtype = *type;
    return type;
  }

  MaybeType find_type(Expr& expr, const Instruction& instruction) {
    std::vector<MaybeType> args;
    for (Expr& arg : expr.args) args.push_back(type_of(arg, instruction));
    switch (expr.kind) {
      case Expr::Kind::number:
        if (!expr.is_integer) return DType::f32;
        return std::abs(expr.number) < 2147483648.0 ? DType::i32 : DType::i64;
      case Expr::Kind::name:
        if (kernel_.is_attribute(expr.name)) return DType::f32;
        MEGALITH_CHECK(kernel_.is_parameter(expr.name) || inames_.contains(expr.name),
                       "{} instruction \"{}\": unknown name \"{}\"", message_prefix(kernel_.name), instruction.id,
                       expr.name);
        return DType::i32;
      case Expr::Kind::subscript:
        for (size_t i = 0; i < args.size(); ++i)
          MEGALITH_CHECK(!args[i] || !dtype_is_float(*args[i]),
                         "{} instruction \"{}\": the index {} of {} has dtype {}, wanted an integer",
                         message_prefix(kernel_.name), instruction.id, print(expr.args[i]), expr.name,
                         dtype_name(*args[i]));
        return types_[expr.name];
      case Expr::Kind::reduce: return expr.reduce == ReduceOp::argmax ? DType::i32 : arithmetic(args[0], args[0]);
      case Expr::Kind::call: return call_type(expr, args, instruction);
    }
    return {};
  }

  MaybeType call_type(const Expr& expr, const std::vector<MaybeType>& args, const Instruction& instruction) const {
    if (is_dtype_name(expr.name)) return dtype_parse(expr.name);
    const Function* function = find_function(expr.name);
    MEGALITH_CHECK(function && static_cast<int>(args.size()) == function->num_args,
                   "{} instruction \"{}\": unknown function \"{}\" of {} arguments", message_prefix(kernel_.name),
                   instruction.id, expr.name, args.size());
    if (function->count == "compare" || function->count == "logic") return DType::i32;
    if (expr.name == "if") return arithmetic(args[1], args[2]);
    if (expr.name == "//" || expr.name == "mod") {
      for (const MaybeType& arg : args)
        MEGALITH_CHECK(!arg || !dtype_is_float(*arg), "{} instruction \"{}\": {} of {}, wanted integers in {}",
                       message_prefix(kernel_.name), instruction.id, expr.name, dtype_name(*arg), print(expr));
      return arithmetic(args[0], args[1]);
    }
    constexpr std::string_view kKeepIntegers[] = {"+", "-", "*", "neg", "min", "max", "abs", "floor"};
    if (std::ranges::find(kKeepIntegers, expr.name) != std::end(kKeepIntegers))
      return arithmetic(args[0], args.size() == 2 ? args[1] : args[0]);
    return DType::f32;
  }

  void require_all(const Expr& expr, const Instruction& instruction) const {
    if (expr.kind == Expr::Kind::subscript)
      MEGALITH_CHECK(types_.at(expr.name),
                     "{} instruction \"{}\": the dtype of {} cannot be found: declare it, as in `input {}: f32`",
                     message_prefix(kernel_.name), instruction.id, expr.name, expr.name);
    for (const Expr& arg : expr.args) require_all(arg, instruction);
  }
};

// ---- shapes ------------------------------------------------------------------------------------

Expr to_expr(const QuasiAffine& form, std::span<const std::string> names) {
  std::optional<Expr> result;
  for (const bool positive : {true, false})
    for (const QuasiAffine::Term& term : form.terms) {
      if ((term.coefficient > 0) != positive) continue;
      Expr factor = term.variable >= 0
                        ? make_name(names[static_cast<size_t>(term.variable)])
                        : make_call("//", {to_expr(*term.numerator, names), make_integer(term.denominator)});
      const int64_t size = std::abs(term.coefficient);
      if (size != 1) factor = make_call("*", {make_integer(size), std::move(factor)});
      if (!result)
        result = positive ? std::move(factor) : make_call("neg", {std::move(factor)});
      else
        result = make_call(positive ? "+" : "-", {std::move(*result), std::move(factor)});
    }
  if (!result) return make_integer(form.constant);
  if (form.constant == 0) return *result;
  return make_call(form.constant > 0 ? "+" : "-", {std::move(*result), make_integer(std::abs(form.constant))});
}

// "n <= 1" out of "[n] -> {  : n <= 1 }".
std::string condition_text(const isl::set& parameters) {
  char* printed = isl_set_to_str(parameters.get());
  std::string text = printed;
  std::free(printed);
  const size_t colon = text.find(':'), brace = text.rfind('}');
  if (colon == std::string::npos) return "always";
  text = text.substr(colon + 1, brace - colon - 1);
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? "always" : text.substr(first, last - first + 1);
}

// One more than the largest value of all `subscripts`: a set of one dimension, as the parameters have it.
Expr static_maximum(const isl::set& subscripts, const isl::set& context, const std::string& what) {
  isl::pw_aff largest = isl::manage(isl_set_dim_max(subscripts.copy(), 0));
  largest = isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist_params(largest.release(), context.copy())));
  const isl::set domain = largest.domain().intersect(context);
  const std::vector<std::string> names = variable_names(context);
  std::optional<Expr> found;
  std::string candidates;
  largest.foreach_piece([&](const isl::set& where, const isl::multi_aff& value) {
    const isl::aff candidate = value.at(0);
    QuasiAffine size = quasi_affine(candidate, names);
    size.constant += 1;
    const Expr expr = to_expr(size, names);
    candidates += fmt::format("{}({}): {}", candidates.empty() ? "" : "; ", print(expr), condition_text(where));
    if (!found && domain.is_subset(largest.le_set(isl::pw_aff(candidate)))) found = expr;
  });
  if (candidates.empty()) return make_integer(0);  // no access at all
  MEGALITH_CHECK(found,
                 "{}: static maximum not found: {}; add an assumption such as `assume n >= 1`, or declare the shape",
                 what, candidates);
  return *found;
}

// The shape that the accesses of `instructions` to it give; the others have none.
std::vector<Expr> shape_by(const Kernel& kernel, const Domains& domains, const std::string& tensor,
                           const std::vector<const Instruction*>& instructions) {
  const std::string prefix = message_prefix(kernel.name);
  std::vector<isl::set> subscripts;  // per dimension: the values that it takes
  bool accessed = false;
  for (const Instruction* user : instructions) {
    const Instruction& instruction = *user;
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || expr.name != tensor) return;
      MEGALITH_CHECK(!accessed || subscripts.size() == expr.args.size(),
                     "{} instruction \"{}\": {} has {} subscripts, elsewhere {}", prefix, instruction.id, print(expr),
                     expr.args.size(), subscripts.size());
      accessed = true;
      subscripts.resize(expr.args.size());
      const isl::set points = place_domain(domains, place);
      for (size_t d = 0; d < expr.args.size(); ++d) {
        const auto index = to_isl_aff(points.space(), expr.args[d]);
        MEGALITH_CHECK(
            index, "{} instruction \"{}\": dimension {} of {} is indexed by {}, which is not affine: declare its shape",
            prefix, instruction.id, d, tensor, print(expr.args[d]));
        const isl::map map = isl::manage(isl_map_from_aff(index->copy()));
        const isl::set values = points.apply(map);
        subscripts[d] = subscripts[d].is_null() ? values : subscripts[d].unite(values);
      }
    });
  }
  MEGALITH_CHECK(accessed, "{} the shape of {} is not declared, and no instruction accesses it", prefix, tensor);
  std::vector<Expr> shape;
  for (size_t d = 0; d < subscripts.size(); ++d)
    shape.push_back(static_maximum(subscripts[d], domains.context(),
                                   fmt::format("{} the shape of {}, dimension {}", prefix, tensor, d)));
  return shape;
}

}  // namespace

void infer_types(Kernel& kernel) {
  if (kernel.rules.empty()) return TypeInference(kernel).run();
  Kernel plain = without_rules(kernel);
  TypeInference(plain).run();
  for (TensorArgument& tensor : kernel.tensors) tensor.dtype = plain.find_tensor(tensor.name)->dtype;
}

std::vector<Expr> inferred_shape(const Kernel& kernel, const std::string& tensor) {
  std::vector<const Instruction*> all;
  for (const Instruction& instruction : kernel.instructions) all.push_back(&instruction);
  return shape_by(kernel, Domains(kernel), tensor, all);
}

void infer_shapes(Kernel& kernel) {
  if (!kernel.rules.empty()) {
    Kernel plain = without_rules(kernel);
    infer_shapes(plain);
    kernel.tensors = std::move(plain.tensors);
    return;
  }
  if (std::ranges::all_of(kernel.tensors, &TensorArgument::shape_known)) return;
  const Domains domains(kernel);
  std::map<std::string, std::vector<const Instruction*>> users;  // of a tensor
  for (const Instruction& instruction : kernel.instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place&) {
      if (expr.kind != Expr::Kind::subscript) return;
      std::vector<const Instruction*>& of = users[expr.name];
      if (of.empty() || of.back() != &instruction) of.push_back(&instruction);
    });
  for (TensorArgument& tensor : kernel.tensors) {
    if (tensor.shape_known) continue;
    tensor.shape = shape_by(kernel, domains, tensor.name, users[tensor.name]);
    tensor.shape_known = true;
  }
}

}  // namespace megalith::loop
