#include "megalith/loop/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/loop/evaluate_reduce.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"
#include "megalith/loop/value_range.h"

namespace megalith::loop {

namespace {

bool is_integral(double value) {
  return std::abs(value) < 9.2e18 && static_cast<double>(static_cast<int64_t>(value)) == value;
}

struct Constant : Evaluable {
  double value;
  explicit Constant(double v) : value(v) {}
  double eval(int64_t*) const override { return value; }
};

struct Iname : Evaluable {
  int slot;
  explicit Iname(int s) : slot(s) {}
  double eval(int64_t* slots) const override { return static_cast<double>(slots[slot]); }
  int64_t eval_index(int64_t* slots) const override { return slots[slot]; }
};

template <class Op>
struct Unary : Evaluable {
  EvaluablePtr a;
  explicit Unary(EvaluablePtr x) : a(std::move(x)) {}
  double eval(int64_t* slots) const override { return Op()(a->eval(slots)); }
};

template <class Op>
struct Binary : Evaluable {
  EvaluablePtr a, b;
  Binary(EvaluablePtr x, EvaluablePtr y) : a(std::move(x)), b(std::move(y)) {}
  double eval(int64_t* slots) const override {
    const double x = a->eval(slots);  // left operand first, as errors should come in text order
    return Op()(x, b->eval(slots));
  }
};

struct And : Evaluable {
  EvaluablePtr a, b;
  And(EvaluablePtr x, EvaluablePtr y) : a(std::move(x)), b(std::move(y)) {}
  double eval(int64_t* slots) const override { return a->eval(slots) != 0 && b->eval(slots) != 0; }
};

struct Or : Evaluable {
  EvaluablePtr a, b;
  Or(EvaluablePtr x, EvaluablePtr y) : a(std::move(x)), b(std::move(y)) {}
  double eval(int64_t* slots) const override { return a->eval(slots) != 0 || b->eval(slots) != 0; }
};

struct If : Evaluable {
  EvaluablePtr condition, a, b;
  If(EvaluablePtr c, EvaluablePtr x, EvaluablePtr y) : condition(std::move(c)), a(std::move(x)), b(std::move(y)) {}
  double eval(int64_t* slots) const override { return condition->eval(slots) != 0 ? a->eval(slots) : b->eval(slots); }
};

// The lowest i64, to which none is opposite, over -1.
bool is_lowest_negated(double a, double b) { return b == -1 && a == -0x1p63; }

double floor_divide(double a, double b) {
  if (b == 0) throw EvaluationError{"floor division by zero"};
  if (is_lowest_negated(a, b)) return a;
  if (is_integral(a) && is_integral(b))
    return static_cast<double>(QuasiAffine::floor_divide(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  return std::floor(a / b);
}

// NaN wins, so that it is not lost on the way to the result.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }

using Args = std::vector<EvaluablePtr>;

template <class Op>
EvaluablePtr unary(Args& args, Op) {
  return std::make_unique<Unary<Op>>(std::move(args[0]));
}
template <class Op>
EvaluablePtr binary(Args& args, Op) {
  return std::make_unique<Binary<Op>>(std::move(args[0]), std::move(args[1]));
}

using Maker = EvaluablePtr (*)(Args&);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table = {
      {"+", [](Args& v) { return binary(v, [](double a, double b) { return a + b; }); }},
      {"-", [](Args& v) { return binary(v, [](double a, double b) { return a - b; }); }},
      {"*", [](Args& v) { return binary(v, [](double a, double b) { return a * b; }); }},
      {"/", [](Args& v) { return binary(v, [](double a, double b) { return a / b; }); }},
      {"//", [](Args& v) { return binary(v, [](double a, double b) { return floor_divide(a, b); }); }},
      {"mod",
       [](Args& v) {
         return binary(v, [](double a, double b) { return is_lowest_negated(a, b) ? 0 : a - b * floor_divide(a, b); });
       }},
      {"<", [](Args& v) { return binary(v, [](double a, double b) -> double { return a < b; }); }},
      {"<=", [](Args& v) { return binary(v, [](double a, double b) -> double { return a <= b; }); }},
      {">", [](Args& v) { return binary(v, [](double a, double b) -> double { return a > b; }); }},
      {">=", [](Args& v) { return binary(v, [](double a, double b) -> double { return a >= b; }); }},
      {"==", [](Args& v) { return binary(v, [](double a, double b) -> double { return a == b; }); }},
      {"!=", [](Args& v) { return binary(v, [](double a, double b) -> double { return a != b; }); }},
      {"min", [](Args& v) { return binary(v, [](double a, double b) { return smaller(a, b); }); }},
      {"max", [](Args& v) { return binary(v, [](double a, double b) { return larger(a, b); }); }},
      {"pow", [](Args& v) { return binary(v, [](double a, double b) { return std::pow(a, b); }); }},
      {"and", [](Args& v) -> EvaluablePtr { return std::make_unique<And>(std::move(v[0]), std::move(v[1])); }},
      {"or", [](Args& v) -> EvaluablePtr { return std::make_unique<Or>(std::move(v[0]), std::move(v[1])); }},
      {"not", [](Args& v) { return unary(v, [](double a) -> double { return a == 0; }); }},
      {"neg", [](Args& v) { return unary(v, [](double a) { return -a; }); }},
      {"exp", [](Args& v) { return unary(v, [](double a) { return std::exp(a); }); }},
      {"log", [](Args& v) { return unary(v, [](double a) { return std::log(a); }); }},
      {"sqrt", [](Args& v) { return unary(v, [](double a) { return std::sqrt(a); }); }},
      {"rsqrt", [](Args& v) { return unary(v, [](double a) { return 1 / std::sqrt(a); }); }},
      {"sin", [](Args& v) { return unary(v, [](double a) { return std::sin(a); }); }},
      {"cos", [](Args& v) { return unary(v, [](double a) { return std::cos(a); }); }},
      {"tanh", [](Args& v) { return unary(v, [](double a) { return std::tanh(a); }); }},
      {"abs", [](Args& v) { return unary(v, [](double a) { return std::abs(a); }); }},
      {"floor", [](Args& v) { return unary(v, [](double a) { return std::floor(a); }); }},
      {"i8", [](Args& v) { return unary(v, [](double a) { return whole_number(a, DType::i8); }); }},
      {"i32", [](Args& v) { return unary(v, [](double a) { return whole_number(a, DType::i32); }); }},
      {"i64", [](Args& v) { return unary(v, [](double a) { return whole_number(a, DType::i64); }); }},
      {"f32", [](Args& v) { return std::move(v[0]); }},
      {"bf16",
       [](Args& v) {
         return unary(v, [](double a) -> double { return bf16_to_float(bf16_from_float(static_cast<float>(a))); });
       }},
      {"f16",
       [](Args& v) {
         return unary(v, [](double a) -> double { return f16_to_float(f16_from_float(static_cast<float>(a))); });
       }},
      {"if",
       [](Args& v) -> EvaluablePtr { return std::make_unique<If>(std::move(v[0]), std::move(v[1]), std::move(v[2])); }},
  };
  return table;
}

// constant + sum of coefficient * slot, if the expression is that.
struct Linear {
  int64_t constant = 0;
  std::map<int, int64_t> coefficients;
};

int slot_of(const CompileContext& context, const std::string& name) {
  const std::vector<std::string>& inames = context.domains.inames();
  const auto found = std::ranges::find(inames, name);
  return found == inames.end() ? -1 : static_cast<int>(found - inames.begin());
}

std::optional<Linear> linear(const Expr& expr, const CompileContext& context) {
  if (const auto value = constant_value(expr)) return Linear{*value, {}};
  if (expr.kind == Expr::Kind::name) {
    const int slot = slot_of(context, expr.name);
    if (slot < 0) return std::nullopt;
    return Linear{0, {{slot, 1}}};
  }
  if (expr.kind != Expr::Kind::call) return std::nullopt;
  auto scaled = [](Linear form, int64_t factor) {
    form.constant *= factor;
    for (auto& [slot, coefficient] : form.coefficients) coefficient *= factor;
    return form;
  };
  if (expr.name == "*") {
    for (const size_t side : {size_t{0}, size_t{1}})
      if (const auto factor = constant_value(expr.args[side])) {
        const auto other = linear(expr.args[1 - side], context);
        if (other) return scaled(*other, *factor);
      }
    return std::nullopt;
  }
  if (expr.name != "+" && expr.name != "-" && expr.name != "neg") return std::nullopt;
  auto first = linear(expr.args[0], context);
  if (!first || expr.name == "neg") return first ? std::optional(scaled(*first, -1)) : std::nullopt;
  const auto second = linear(expr.args[1], context);
  if (!second) return std::nullopt;
  const int64_t sign = expr.name == "+" ? 1 : -1;
  first->constant += sign * second->constant;
  for (const auto& [slot, coefficient] : second->coefficients) first->coefficients[slot] += sign * coefficient;
  return first;
}

// What an index that is not linear was for the latest values of the inames it is made of: page_table[request[t], p // B] is
// asked for each element of a position, and was most of what attention took the interpreter.
class RememberedIndex : public Evaluable {
 public:
  static constexpr size_t kInames = 3;
  RememberedIndex(EvaluablePtr index, const std::set<int>& slots) : index_(std::move(index)), places_(kPlaces) {
    slots_.fill(*slots.rbegin());
    std::ranges::copy(slots, slots_.begin());
  }
  double eval(int64_t* slots) const override { return static_cast<double>(eval_index(slots)); }
  int64_t eval_index(int64_t* slots) const override {
    const std::array<int64_t, kInames> values = {slots[slots_[0]], slots[slots_[1]], slots[slots_[2]]};
    uint64_t hash = 0;
    for (const int64_t value : values) hash = 31 * hash + static_cast<uint64_t>(value);
    Place& place = places_[hash % kPlaces];
    if (!place.is_known || place.values != values) place = {values, index_->eval_index(slots), true};
    return place.index;
  }

 private:
  static constexpr uint64_t kPlaces = 1024;  // more than a test has positions
  struct Place {
    std::array<int64_t, kInames> values;
    int64_t index;
    bool is_known = false;
  };
  EvaluablePtr index_;
  std::array<int, kInames> slots_;  // the last one again where there are fewer
  mutable std::vector<Place> places_;
};

// Adds the inames that the value depends on to `slots`. False if it depends on what the kernel may change meanwhile.
bool find_dependence(const Expr& expr, const CompileContext& context, std::set<int>& slots) {
  if (expr.kind == Expr::Kind::reduce) return false;
  if (expr.kind == Expr::Kind::name)
    if (const int slot = slot_of(context, expr.name); slot >= 0) slots.insert(slot);
  if (expr.kind == Expr::Kind::subscript) {
    const TensorArgument* tensor = context.kernel.find_tensor(expr.name);
    if (!tensor || tensor->role != Role::input) return false;
  }
  return std::ranges::all_of(expr.args, [&](const Expr& arg) { return find_dependence(arg, context, slots); });
}

EvaluablePtr remembered(EvaluablePtr index, const Expr& expr, const CompileContext& context) {
  std::set<int> slots;
  if (!find_dependence(expr, context, slots) || slots.empty() || slots.size() > RememberedIndex::kInames) return index;
  return std::make_unique<RememberedIndex>(std::move(index), slots);
}

struct Access {
  struct Dimension {
    int64_t extent, stride, constant;
    int first_term, end_term;  // into terms
    const Evaluable* general;  // if the index is not linear
  };
  struct Term {
    int slot;
    int64_t coefficient;
  };
  double* data = nullptr;
  std::vector<Dimension> dimensions;
  std::vector<Term> terms;
  std::vector<EvaluablePtr> general;
  std::string kernel, instruction, tensor;
  bool is_write = false;

  int64_t index(const Dimension& dimension, int64_t* slots) const {
    if (dimension.general) return dimension.general->eval_index(slots);
    int64_t index = dimension.constant;
    for (int t = dimension.first_term; t < dimension.end_term; ++t)
      index += terms[static_cast<size_t>(t)].coefficient * slots[terms[static_cast<size_t>(t)].slot];
    return index;
  }
  double& at(int64_t* slots) const {
    int64_t offset = 0;
    for (const Dimension& dimension : dimensions) {
      const int64_t i = index(dimension, slots);
      if (static_cast<uint64_t>(i) >= static_cast<uint64_t>(dimension.extent)) fail(slots);
      offset += i * dimension.stride;
    }
    return data[offset];
  }
  [[noreturn]] void fail(int64_t* slots) const {
    std::string indices, shape, wrong;
    for (size_t d = 0; d < dimensions.size(); ++d) {
      const int64_t i = index(dimensions[d], slots), extent = dimensions[d].extent;
      indices += fmt::format("{}{}", d ? ", " : "", i);
      shape += fmt::format("{}{}", d ? ", " : "", extent);
      if (wrong.empty() && (i < 0 || i >= extent))
        wrong = fmt::format("dimension {}: index {}, allowed 0 <= index < {}", d, i, extent);
    }
    throw UserError(fmt::format("{} instruction \"{}\" {} {}[{}] outside its shape [{}] ({})", message_prefix(kernel),
                                instruction, is_write ? "writes" : "reads", tensor, indices, shape, wrong));
  }
};

struct Load : Evaluable {
  Access access;
  double eval(int64_t* slots) const override { return access.at(slots); }
};

struct Store : Location {
  Access access;
  double& at(int64_t* slots) const override { return access.at(slots); }
};

Access compile_access(const Expr& expr, const CompileContext& context, bool is_write) {
  Access access;
  access.kernel = context.kernel.name;
  access.instruction = context.instruction->id;
  access.tensor = expr.name;
  access.is_write = is_write;
  const auto found = context.arrays.find(expr.name);
  MEGALITH_CHECK(found != context.arrays.end(),
                 "{} instruction \"{}\" names a tensor \"{}\" that the kernel does not declare",
                 message_prefix(access.kernel), access.instruction, expr.name);
  Array& array = *found->second;
  MEGALITH_CHECK(array.shape.size() == expr.args.size(),
                 "{} instruction \"{}\": {} has {} subscripts, the tensor has {} dimensions",
                 message_prefix(access.kernel), access.instruction, print(expr), expr.args.size(), array.shape.size());
  access.data = array.values.data();
  int64_t stride = static_cast<int64_t>(array.values.size());
  const TensorArgument* tensor = context.kernel.find_tensor(expr.name);
  for (size_t d = 0; d < expr.args.size(); ++d) {
    stride = array.shape[d] ? stride / array.shape[d] : 0;
    // Of a dynamic size an array may have more than there is today.
    const auto today = tensor && tensor->shape_known ? constant_value(tensor->shape[d]) : std::nullopt;
    const int64_t extent = today ? std::clamp<int64_t>(*today, 0, array.shape[d]) : array.shape[d];
    Access::Dimension dimension{extent, stride, 0, static_cast<int>(access.terms.size()), 0, nullptr};
    // Also where it is linear: this is what complains about names without a value.
    EvaluablePtr general = compile_expression(expr.args[d], context);
    if (const auto form = linear(expr.args[d], context)) {
      dimension.constant = form->constant;
      for (const auto& [slot, coefficient] : form->coefficients)
        if (coefficient != 0) access.terms.push_back({slot, coefficient});
    } else {
      access.general.push_back(remembered(std::move(general), expr.args[d], context));
      dimension.general = access.general.back().get();
    }
    dimension.end_term = static_cast<int>(access.terms.size());
    access.dimensions.push_back(dimension);
  }
  return access;
}

EvaluablePtr compile_name(const Expr& expr, const CompileContext& context) {
  if (std::ranges::find(context.inames, expr.name) != context.inames.end())
    return std::make_unique<Iname>(slot_of(context, expr.name));
  const std::string& id = context.instruction->id;
  if (slot_of(context, expr.name) >= 0)
    throw UserError(fmt::format(
        "{} instruction \"{}\" uses the iname \"{}\", which is neither in its target nor reduced over: name "
        "it with {{inames={}}} or reduce over it",
        message_prefix(context.kernel.name), id, expr.name, expr.name));
  for (const Attribute& attribute : context.kernel.attributes)
    if (attribute.name == expr.name) {
      const auto bound = context.binding.attributes.find(expr.name);
      return std::make_unique<Constant>(bound != context.binding.attributes.end() ? bound->second : attribute.value);
    }
  throw UserError(
      fmt::format("{} instruction \"{}\": unknown name \"{}\"", message_prefix(context.kernel.name), id, expr.name));
}

}  // namespace

int64_t Evaluable::eval_index(int64_t* slots) const {
  const double value = eval(slots);
  if (is_integral(value)) return static_cast<int64_t>(value);
  if (std::floor(value) != value) throw EvaluationError{fmt::format("an index is {}, wanted an integer", value)};
  // The edges of a cast are no places in a tensor.
  constexpr double kEdge = 0x1p63;
  return value >= kEdge    ? std::numeric_limits<int64_t>::max()
         : value <= -kEdge ? std::numeric_limits<int64_t>::min()
                           : static_cast<int64_t>(value);
}

double whole_number(double value, DType dtype) {
  const ValueRange range = dtype_range(dtype);
  const auto lo = static_cast<double>(*range.lo), hi = static_cast<double>(*range.hi);
  return std::isnan(value) ? lo : std::clamp(std::trunc(value), lo, hi);
}

EvaluablePtr compile_expression(const Expr& expr, const CompileContext& context) {
  switch (expr.kind) {
    case Expr::Kind::number: return std::make_unique<Constant>(expr.number);
    case Expr::Kind::name: return compile_name(expr, context);
    case Expr::Kind::reduce: return compile_reduction(expr, context);
    case Expr::Kind::subscript: {
      auto load = std::make_unique<Load>();
      load->access = compile_access(expr, context, false);
      return load;
    }
    case Expr::Kind::call: break;
  }
  const auto maker = makers().find(expr.name);
  MEGALITH_CHECK(maker != makers().end(), "{} instruction \"{}\": unknown function \"{}\"",
                 message_prefix(context.kernel.name), context.instruction->id, expr.name);
  Args args;
  for (const Expr& arg : expr.args) args.push_back(compile_expression(arg, context));
  return maker->second(args);
}

std::unique_ptr<Location> compile_location(const Expr& subscript, const CompileContext& context, bool is_write) {
  auto store = std::make_unique<Store>();
  store->access = compile_access(subscript, context, is_write);
  return store;
}

}  // namespace megalith::loop
