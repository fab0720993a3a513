#include "megalith/loop/value_range.h"

#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <limits>

#include "megalith/loop/affine.h"
#include "megalith/loop/function.h"

namespace megalith::loop {

namespace {

using Wide = __int128;
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

std::optional<int64_t> narrowed(std::optional<Wide> value) {
  if (!value || *value < kLeast || *value > kMax) return std::nullopt;
  return static_cast<int64_t>(*value);
}

// What wraps around when it is calculated may be anything.
ValueRange both(std::optional<Wide> lo, std::optional<Wide> hi) {
  const ValueRange range{narrowed(lo), narrowed(hi)};
  return range.lo && range.hi ? range : ValueRange{};
}

std::optional<int64_t> bound(const isl::val& value) {
  if (isl_val_is_int(value.get()) != isl_bool_true) return std::nullopt;
  const isl::ctx context = value.ctx();
  for (const int64_t limit : {kLeast, kMax}) {
    const isl::val edge(context, std::to_string(limit));
    if (limit == kLeast ? value.lt(edge) : value.gt(edge)) return std::nullopt;
  }
  return isl_val_get_num_si(value.get());
}

class RangeFinder {
 public:
  RangeFinder(const Kernel& kernel, const Domains& domains, const Place& place)
      : kernel_(kernel), domains_(domains), place_(place) {}

  ValueRange of(const Expr& expr) {
    if (const auto value = constant_value(expr)) return {value, value};
    switch (expr.kind) {
      case Expr::Kind::number: return {};
      case Expr::Kind::name: return of_name(expr.name);
      case Expr::Kind::subscript: {
        const TensorArgument* tensor = kernel_.find_tensor(expr.name);
        return tensor && tensor->dtype ? dtype_range(*tensor->dtype) : ValueRange{};
      }
      case Expr::Kind::reduce: return of_reduction(expr);
      case Expr::Kind::call: return of_call(expr);
    }
    return {};
  }

 private:
  const Kernel& kernel_;
  const Domains& domains_;
  Place place_;

  ValueRange of_name(const std::string& name) const {
    if (kernel_.is_attribute(name)) return {};
    const isl::set points = place_domain(domains_, place_).intersect_params(domains_.context());
    if (points.is_empty()) return {0, 0};
    for (const isl_dim_type type : {isl_dim_set, isl_dim_param}) {
      const int at = isl_set_find_dim_by_name(points.get(), type, name.c_str());
      if (at < 0) continue;
      isl::set one = points;
      if (type == isl_dim_param)
        one =
            isl::manage(isl_set_move_dims(points.copy(), isl_dim_set, 0, isl_dim_param, static_cast<unsigned>(at), 1));
      const int place = type == isl_dim_param ? 0 : at;
      if (isl_set_dim_is_bounded(one.get(), isl_dim_set, static_cast<unsigned>(place)) != isl_bool_true) return {};
      return {bound(one.dim_min_val(place)), bound(one.dim_max_val(place))};
    }
    return {};
  }

  ValueRange of_reduction(const Expr& expr) {
    const Place outside = place_;
    place_.inames.insert(place_.inames.end(), expr.inames.begin(), expr.inames.end());
    if (expr.args.size() > 1) place_.guards.push_back({&expr.args[1], true});
    ValueRange range;
    if (expr.reduce == ReduceOp::argmax) {
      range = of_name(expr.inames[0]);
      if (range.lo) range.lo = std::min<int64_t>(*range.lo, 0);  // over nothing it is 0
      if (range.hi) range.hi = std::max<int64_t>(*range.hi, 0);
    }
    place_ = outside;
    return range;
  }

  ValueRange of_call(const Expr& expr) {
    const std::string& name = expr.name;
    if (is_dtype_name(name)) return of_cast(expr);
    const Function* function = find_function(name);
    if (function && (function->count == "compare" || function->count == "logic")) return {0, 1};
    if (name == "if") {
      const ValueRange a = of(expr.args[1]), b = of(expr.args[2]);
      return {a.lo && b.lo ? std::optional(std::min(*a.lo, *b.lo)) : std::nullopt,
              a.hi && b.hi ? std::optional(std::max(*a.hi, *b.hi)) : std::nullopt};
    }
    if (expr.args.empty() || expr.args.size() > 2) return {};
    const ValueRange a = of(expr.args[0]), b = expr.args.size() > 1 ? of(expr.args[1]) : ValueRange{};
    // One bound is enough for these.
    if (name == "min") return {a.lo && b.lo ? std::min(a.lo, b.lo) : std::nullopt, least_of(a.hi, b.hi)};
    if (name == "max") return {most_of(a.lo, b.lo), a.hi && b.hi ? std::max(a.hi, b.hi) : std::nullopt};
    if (name == "mod" && b.lo && b.hi && *b.lo > 0) return {0, *b.hi - 1};
    if (!a.lo || !a.hi) return {};
    if (name == "neg") return both(-Wide{*a.hi}, -Wide{*a.lo});
    if (name == "abs") {
      const Wide largest = std::max(-Wide{*a.lo}, Wide{*a.hi});
      return both(*a.lo > 0 ? Wide{*a.lo} : *a.hi < 0 ? -Wide{*a.hi} : Wide{0}, largest);
    }
    if (!b.lo || !b.hi) return {};
    if (name == "+") return both(Wide{*a.lo} + *b.lo, Wide{*a.hi} + *b.hi);
    if (name == "-") return both(Wide{*a.lo} - *b.hi, Wide{*a.hi} - *b.lo);
    if (name == "*") {
      const Wide corners[] = {Wide{*a.lo} * *b.lo, Wide{*a.lo} * *b.hi, Wide{*a.hi} * *b.lo, Wide{*a.hi} * *b.hi};
      return both(*std::ranges::min_element(corners), *std::ranges::max_element(corners));
    }
    if (name == "//" && *b.lo > 0) {
      // The quotient nearest to 0 has the largest divisor.
      auto quotient = [](int64_t x, int64_t y) { return Wide{QuasiAffine::floor_divide(x, y)}; };
      return both(quotient(*a.lo, *a.lo < 0 ? *b.lo : *b.hi), quotient(*a.hi, *a.hi < 0 ? *b.hi : *b.lo));
    }
    return {};
  }

  // A cast to a whole number ends at the edges of its type.
  ValueRange of_cast(const Expr& expr) {
    const DType dtype = dtype_parse(expr.name);
    const ValueRange type = dtype_range(dtype), inner = of(expr.args[0]);
    if (!type.lo) return {};
    return {inner.lo ? std::clamp(*inner.lo, *type.lo, *type.hi) : *type.lo,
            inner.hi ? std::clamp(*inner.hi, *type.lo, *type.hi) : *type.hi};
  }

  static std::optional<int64_t> least_of(std::optional<int64_t> a, std::optional<int64_t> b) {
    return a && b ? std::min(a, b) : a ? a : b;
  }
  static std::optional<int64_t> most_of(std::optional<int64_t> a, std::optional<int64_t> b) {
    return a && b ? std::max(a, b) : a ? a : b;
  }
};

}  // namespace

ValueRange dtype_range(DType dtype) {
  switch (dtype) {
    case DType::i8: return {-128, 127};
    case DType::i32: return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::i64: return {kLeast, kMax};
    default: return {};
  }
}

ValueRange value_range(const Kernel& kernel, const Domains& domains, const Expr& expr, const Place& place) {
  return RangeFinder(kernel, domains, place).of(expr);
}

}  // namespace megalith::loop
