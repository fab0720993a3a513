// Python's numbers: integers of any size, doubles, and how the two meet. Integers are exact; a conversion to a double
// rounds to the nearest one, half to even.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "megalith/model/template_value.h"

namespace megalith {

class TemplateContext;

/// Equal, less, greater; unordered for NaN. Integers are compared with doubles exactly.
std::partial_ordering template_compare_numbers(const TemplateValue& a, const TemplateValue& b);

/// The bits of an integer without its sign.
int64_t template_bits(const TemplateValue& integer);
/// UserError if an integer would have more bits than any may have.
void template_check_bits(int64_t bits);

/// The integer, which is not copied if it is a large one.
class TemplateMpz {
 public:
  explicit TemplateMpz(const TemplateValue& integer)
      : small_(integer.is_big() ? 0 : static_cast<long>(integer.integer())),
        value_(integer.is_big() ? integer.big() : small_) {}
  operator const mpz_class&() const { return value_; }  // NOLINT: it stands for the integer
  const mpz_class& get() const { return value_; }

 private:
  mpz_class small_;
  const mpz_class& value_;
};
mpz_class template_to_mpz(const TemplateValue& integer);
/// float(number); UserError for an integer beyond every double.
double template_to_double(const TemplateValue& number);
/// int(number); UserError for what is not finite.
TemplateValue template_truncated(double number);
/// a / b for integers, b not 0.
double template_ratio(const mpz_class& a, const mpz_class& b);

/// int(text, base), base 0 or 2 to 36; null if that is not one, or has more digits than Python reads.
std::optional<TemplateValue> template_parse_integer(std::string_view text, int64_t base);
/// float(text); null if that is not one.
std::optional<double> template_parse_number(std::string_view text);

/// An integer in base 2 to 36, "-" in front; UserError for more digits than Python writes.
std::string template_digits(const TemplateValue& integer, int base = 10);
/// Python's repr of a float: "1.0", "1e+16", "nan".
std::string template_number(double value);

/// round(number, digits)
TemplateValue template_rounded(const TemplateValue& number, int64_t digits);

/// left op right for two numbers: "+", "-", "*", "/", "//", "%", "**".
TemplateValue template_arithmetic(TemplateContext& context, std::string_view op, const TemplateValue& left,
                                  const TemplateValue& right);
/// -number
TemplateValue template_negative(const TemplateValue& number);

}  // namespace megalith
