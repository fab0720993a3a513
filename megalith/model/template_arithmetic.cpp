// Arithmetic of two numbers, as Python has it: integers stay integers but for "/", division rounds down.
#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_number.h"

namespace megalith {

namespace {

[[noreturn]] void fail_zero(TemplateContext& context, std::string_view op, const TemplateValue& left,
                            const TemplateValue& right) {
  context.fail(fmt::format("{} {} {} divides by zero", left.is_big() ? left.describe() : left.to_text().text, op,
                           right.to_text().text));
}

// In limbs of 64 bits: schoolbook multiplication is the most that GMP takes.
void charge_product(TemplateContext& context, int64_t left_bits, int64_t right_bits) {
  const int64_t left = left_bits / 64, right = right_bits / 64;
  context.charge((left + right) / 4 + left * right / 8192);
}

TemplateValue integer_power(TemplateContext& context, const mpz_class& base, const mpz_class& exponent) {
  if (abs(base) > 1) {
    // 2 ** n has n + 1 bits.
    const auto bits = static_cast<int64_t>(mpz_sizeinbase(base.get_mpz_t(), 2)) - 1;
    constexpr int64_t kMany = int64_t{1} << 40;
    const int64_t times = exponent < kMany ? exponent.get_si() : kMany;
    template_check_bits(bits < kMany ? bits * std::min(times, kMany / std::max<int64_t>(bits, 1)) : kMany);
    charge_product(context, (bits + 1) * times, (bits + 1) * times);
    mpz_class result;
    mpz_pow_ui(result.get_mpz_t(), base.get_mpz_t(), static_cast<unsigned long>(times));
    return result;
  }
  if (base == 0) return exponent == 0 ? 1 : 0;
  return base == 1 || mpz_even_p(exponent.get_mpz_t()) ? 1 : -1;
}

TemplateValue integer_arithmetic(TemplateContext& context, std::string_view op, const TemplateValue& left,
                                 const TemplateValue& right) {
  if (!left.is_big() && !right.is_big()) {
    const int64_t a = left.integer(), b = right.integer();
    int64_t result = 0;
    if (op == "+" && !__builtin_add_overflow(a, b, &result)) return result;
    if (op == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
    if (op == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  }
  const TemplateMpz left_number(left), right_number(right);
  const mpz_class &a = left_number, &b = right_number;
  const int64_t left_bits = template_bits(left), right_bits = template_bits(right);
  charge_product(context, left_bits, right_bits);
  if (op == "+" || op == "-") {
    template_check_bits(std::max(left_bits, right_bits));
    return op == "+" ? mpz_class(a + b) : mpz_class(a - b);
  }
  if (op == "*") {
    template_check_bits(left_bits + right_bits - 1);
    return mpz_class(a * b);
  }
  if (op == "**") return integer_power(context, a, b);
  if (b == 0) fail_zero(context, op, left, right);
  if (op == "/") return template_ratio(a, b);
  mpz_class result;
  if (op == "//")
    mpz_fdiv_q(result.get_mpz_t(), a.get_mpz_t(), b.get_mpz_t());
  else
    mpz_fdiv_r(result.get_mpz_t(), a.get_mpz_t(), b.get_mpz_t());
  return result;
}

double power(TemplateContext& context, double a, double b) {
  if (a == 0 && b < 0) context.fail(fmt::format("0 ** {} divides by zero", template_number(b)));
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    context.fail(
        fmt::format("{} ** {} is a complex number, which is not supported", template_number(a), template_number(b)));
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    context.fail(fmt::format("{} ** {} is too large for a float", template_number(a), template_number(b)));
  return result;
}

TemplateValue number_arithmetic(TemplateContext& context, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return power(context, a, b);
  if (b == 0) fail_zero(context, op, a, b);
  if (op == "/") return a / b;
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == "%") return rest;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

}  // namespace

TemplateValue template_arithmetic(TemplateContext& context, std::string_view op, const TemplateValue& left,
                                  const TemplateValue& right) {
  const bool whole =
      left.is_integer() && right.is_integer() && !(op == "**" && right.less(0));  // which Python computes with floats
  return whole ? integer_arithmetic(context, op, left, right)
               : number_arithmetic(context, op, template_to_double(left), template_to_double(right));
}

}  // namespace megalith
