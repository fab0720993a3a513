#include "megalith/model/template_number.h"

#include <fmt/format.h>
#include <locale.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"
#include "megalith/model/utf8.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// Python has no bound. What is computed with these takes microseconds, and prompts count messages.
constexpr int64_t kMaxBits = 1 << 17;
// Python reads and writes no more, because the conversion is quadratic; powers of two are free of it.
constexpr size_t kMaxDigits = 4300;

bool is_power_of_two(int64_t base) { return base == 2 || base == 4 || base == 8 || base == 16 || base == 32; }

std::strong_ordering order(int sign) { return sign <=> 0; }

int64_t bits(const mpz_class& value) {
  return value == 0 ? 0 : static_cast<int64_t>(mpz_sizeinbase(value.get_mpz_t(), 2));
}

// Python takes decimal digits and white space of every script.
std::string to_ascii(std::string_view text) {
  std::string result;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(static_cast<size_t>(utf8_next(rest)))) {
    const char32_t c = utf8_code_point(rest);
    if (const int digit = unicode_decimal(c); digit >= 0)
      result += static_cast<char>('0' + digit);
    else if (unicode_is_python_space(c))
      result += ' ';
    else
      result += c < 0x80 ? static_cast<char>(c) : '\x7F';  // which is in no number
  }
  const size_t begin = result.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return result.substr(begin, result.find_last_not_of(' ') + 1 - begin);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes out single underscores between digits; false if there are others.
bool take_underscores(std::string& text, bool (*is_neighbour)(char)) {
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_' && (i == 0 || i + 1 == text.size() || !is_neighbour(text[i - 1]) || !is_neighbour(text[i + 1])))
      return false;
  std::erase(text, '_');
  return true;
}

double parse_double(const std::string& text) {
  static const locale_t kPlain = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(text.c_str(), nullptr, kPlain);
}

// [digits][.digits][e[+-]digits], with a digit in front of the e.
bool is_number(std::string_view text) {
  size_t at = 0, digits = 0;
  auto take = [&] {
    for (; at < text.size() && is_digit(text[at]); ++at) ++digits;
  };
  take();
  if (at < text.size() && text[at] == '.') ++at, take();
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    digits = 0;
    take();
    if (digits == 0) return false;
  }
  return at == text.size();
}

// Rounds a whole number, of which `rest` tells that something was cut off, to a multiple of 10^places, half to even.
mpz_class rounded_to(const mpz_class& whole, bool rest, int64_t places) {
  mpz_class unit;
  mpz_ui_pow_ui(unit.get_mpz_t(), 10, static_cast<unsigned long>(places));
  mpz_class quotient, remainder;
  mpz_fdiv_qr(quotient.get_mpz_t(), remainder.get_mpz_t(), whole.get_mpz_t(), unit.get_mpz_t());
  const int side = cmp(remainder * 2, unit);
  if (side > 0 || (side == 0 && (rest || mpz_odd_p(quotient.get_mpz_t())))) ++quotient;
  return quotient * unit;
}

}  // namespace

std::partial_ordering template_compare_numbers(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integer() && b.is_integer()) {
    if (!a.is_big() && !b.is_big()) return a.integer() <=> b.integer();
    return order(cmp(TemplateMpz(a).get(), TemplateMpz(b).get()));
  }
  if (!a.is_integer() && !b.is_integer()) return a.number() <=> b.number();
  if (a.is_integer()) return 0 <=> template_compare_numbers(b, a);
  if (std::isnan(a.number())) return std::partial_ordering::unordered;
  if (std::isinf(a.number())) return a.number() <=> 0.0;
  return order(-mpz_cmp_d(TemplateMpz(b).get().get_mpz_t(), a.number()));
}

int64_t template_bits(const TemplateValue& integer) { return bits(TemplateMpz(integer)); }

void template_check_bits(int64_t count) {
  MEGALITH_CHECK(count <= kMaxBits, "the integer is too large: it would have {} bits, want at most {}", count,
                 kMaxBits);
}

mpz_class template_to_mpz(const TemplateValue& integer) {
  return integer.is_big() ? integer.big() : mpz_class(static_cast<long>(integer.integer()));
}

double template_to_double(const TemplateValue& number) {
  if (number.is(Kind::number)) return number.number();
  return number.is_big() ? template_ratio(number.big(), 1) : static_cast<double>(number.integer());
}

TemplateValue template_truncated(double number) {
  MEGALITH_CHECK(std::isfinite(number), "{} is no integer", template_number(number));
  return mpz_class(number);
}

double template_ratio(const mpz_class& a, const mpz_class& b) {
  constexpr int64_t kExact = 53;  // bits of a double, and its smallest one is 2^-1074
  if (bits(a) <= kExact && bits(b) <= kExact) return a.get_d() / b.get_d();
  const bool negative = (a < 0) != (b < 0);
  // The quotient in units of 2^-shift: two bits more than a double has, the last one for all that is cut off.
  const int64_t shift = std::min<int64_t>(kExact + 2 - (bits(a) - bits(b)), 1076);
  mpz_class above = abs(a), below = abs(b), quotient, rest;
  if (shift > 0)
    above <<= static_cast<mp_bitcnt_t>(shift);
  else
    below <<= static_cast<mp_bitcnt_t>(-shift);
  mpz_tdiv_qr(quotient.get_mpz_t(), rest.get_mpz_t(), above.get_mpz_t(), below.get_mpz_t());
  const int64_t cut = std::max(bits(quotient) - kExact, shift - 1074);
  bool up = false;
  if (cut > 0) {
    const bool half = mpz_tstbit(quotient.get_mpz_t(), static_cast<mp_bitcnt_t>(cut - 1)),
               more = rest != 0 || (cut > 1 && mpz_scan1(quotient.get_mpz_t(), 0) < static_cast<mp_bitcnt_t>(cut - 1));
    quotient >>= static_cast<mp_bitcnt_t>(cut);
    up = half && (more || mpz_odd_p(quotient.get_mpz_t()));
  }
  if (up) ++quotient;
  const double result = std::ldexp(quotient.get_d(), static_cast<int>(std::max<int64_t>(cut, 0) - shift));
  MEGALITH_CHECK(std::isfinite(result), "the integer is too large for a float");
  return negative ? -result : result;
}

std::optional<TemplateValue> template_parse_integer(std::string_view text, int64_t base) {
  std::string digits = to_ascii(text);
  bool negative = false;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  auto prefix = [&](char lower, int64_t of) {
    return (base == 0 || base == of) && digits.size() > 1 && digits[0] == '0' && (digits[1] | 0x20) == lower;
  };
  const int64_t told = prefix('x', 16) ? 16 : prefix('o', 8) ? 8 : prefix('b', 2) ? 2 : 0;
  if (told) digits.erase(0, digits.size() > 2 && digits[2] == '_' ? 3 : 2);
  // A zero in front means nothing but zeros, where the base is to be told from the text.
  const bool zeros = base == 0 && !told && digits.starts_with('0');
  if (told || base == 0) base = told ? told : 10;
  const auto is_part = [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0; };
  if (digits.empty() || !take_underscores(digits, is_part)) return std::nullopt;
  for (const char c : digits) {
    if (!is_part(c)) return std::nullopt;
    if ((is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10) >= base) return std::nullopt;
  }
  if (zeros && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
  if (!is_power_of_two(base) && digits.size() > kMaxDigits) return std::nullopt;
  template_check_bits(static_cast<int64_t>(digits.size()));
  mpz_class value(digits, static_cast<int>(base));
  template_check_bits(bits(value));
  if (negative) value = -value;
  return value;
}

std::optional<double> template_parse_number(std::string_view text) {
  std::string digits = to_ascii(text);
  if (!take_underscores(digits, is_digit)) return std::nullopt;
  std::string_view rest = digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  std::string word;
  for (const char c : rest.substr(0, 9)) word += static_cast<char>(tolower(static_cast<unsigned char>(c)));
  double value = 0;
  if (word == "inf" || word == "infinity")
    value = HUGE_VAL;
  else if (word == "nan")
    value = NAN;
  else if (is_number(rest))
    value = parse_double(std::string(rest));
  else
    return std::nullopt;
  return negative ? -value : value;
}

std::string template_digits(const TemplateValue& integer, int base) {
  if (!integer.is_big() && base == 10) return fmt::format_int(integer.integer()).str();
  const TemplateMpz held(integer);
  const mpz_class& value = held;
  if (is_power_of_two(base)) return value.get_str(base);
  constexpr int64_t kBits = 15000;  // of somewhat more digits
  const std::string digits = bits(value) < kBits ? value.get_str(base) : std::string(kMaxDigits + 2, '0');
  MEGALITH_CHECK(digits.size() - digits.starts_with('-') <= kMaxDigits,
                 "an integer has more than {} digits, which is the most that are written", kMaxDigits);
  return digits;
}

std::string template_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

TemplateValue template_rounded(const TemplateValue& number, int64_t digits) {
  if (number.is_integer()) {
    if (digits >= 0) return template_to_mpz(number);          // True becomes 1
    if (digits < -(template_bits(number) / 3 + 1)) return 0;  // 10 has more than three bits
    return rounded_to(template_to_mpz(number), false, -digits);
  }
  const double value = number.number();
  if (!std::isfinite(value) || value == 0 || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  // Exact: of what the double is, not of what it is written as.
  if (digits >= 0) return parse_double(fmt::format("{:.{}f}", value, digits));
  const mpz_class whole(std::trunc(std::abs(value)));
  const double result = template_ratio(rounded_to(whole, std::trunc(value) != value, -digits), 1);
  return std::copysign(result, value);
}

TemplateValue template_negative(const TemplateValue& number) {
  if (number.is(Kind::number)) return -number.number();
  return mpz_class(-template_to_mpz(number));
}

}  // namespace megalith
