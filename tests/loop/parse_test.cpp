#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megalith/base/error.h"
#include "megalith/loop/text.h"

namespace megalith::loop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The message of the UserError that `text` gives; "" if it is a kernel.
std::string message_of(const std::string& text) {
  try {
    parse_kernel(text);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

// print() of the expression `text`, read as the value of an instruction over i, j, k.
std::string reprint(const std::string& text) {
  return print(parse_kernel("{ [i, j, k] : 0 <= i, j, k < n }\ny[i] = " + text).instructions[0].value);
}

TEST(Parse, FillsInWhatTheTextLeavesOut) {
  const Kernel kernel = parse_kernel(R"(
    { [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
    ss[t]   = sum(k, f32(x[t, k]) * f32(x[t, k]))
    y[t, h] = f32(x[t, h]) * rsqrt(ss[t] / H + eps) * f32(weight[h]))");
  EXPECT_EQ(kernel.name, "");
  EXPECT_THAT(kernel.inames(), ElementsAre("t", "h", "k"));
  ASSERT_EQ(kernel.parameters.size(), 2u);
  EXPECT_EQ(kernel.parameters[0].name, "T");
  EXPECT_EQ(kernel.parameters[1].name, "H");
  ASSERT_EQ(kernel.tensors.size(), 4u);
  EXPECT_EQ(kernel.find_tensor("ss")->role, Role::temporary);
  EXPECT_EQ(kernel.find_tensor("x")->role, Role::input);
  EXPECT_EQ(kernel.find_tensor("weight")->role, Role::input);
  EXPECT_EQ(kernel.find_tensor("y")->role, Role::output);
  EXPECT_FALSE(kernel.find_tensor("y")->shape_known);
  EXPECT_EQ(kernel.instructions[0].id, "insn0");
  EXPECT_THAT(kernel.instructions[0].within, ElementsAre("t"));
  EXPECT_THAT(kernel.instructions[1].within, ElementsAre("t", "h"));
}

TEST(Parse, ReadsDeclarationsAndOptions) {
  const Kernel kernel = parse_kernel(R"(
    kernel mix            # a comment
    parameter T dynamic
    parameter H
    attribute eps = -1e-3
    input x: bf16[T, 2 * H]
    inout cache
    output y: f32
    temporary s: [T]
    assume H >= 1
    assume T >= 0 or H mod 4 = 0
    tag t = task
    { [t, h] : 0 <= t < T and
               0 <= h < H }
    s[t] = x[t, 0] +
           1
    cache[t] = s[t]   {id=store, dep=insn0, if=t < 3 and max(t, H) > 2, inames=h})");
  EXPECT_EQ(kernel.name, "mix");
  EXPECT_TRUE(kernel.parameters[0].dynamic);
  EXPECT_FALSE(kernel.parameters[1].dynamic);
  EXPECT_EQ(kernel.attributes[0].value, -1e-3);
  EXPECT_EQ(kernel.find_tensor("x")->dtype, DType::bf16);
  EXPECT_EQ(print(kernel.find_tensor("x")->shape[1]), "2 * H");
  EXPECT_EQ(kernel.find_tensor("cache")->role, Role::inout);
  EXPECT_FALSE(kernel.find_tensor("y")->shape_known);
  EXPECT_FALSE(kernel.find_tensor("s")->dtype.has_value());
  EXPECT_EQ(kernel.assumptions, "(H >= 1) and (T >= 0 or H mod 4 = 0)");
  EXPECT_EQ(kernel.tags.at("t"), InameTag::task);
  const Instruction& store = kernel.instructions[1];
  EXPECT_EQ(store.id, "store");
  EXPECT_THAT(store.depends_on, ElementsAre("insn0"));
  EXPECT_THAT(store.within, ElementsAre("t", "h"));
  EXPECT_EQ(print(*store.condition), "t < 3 and max(t, H) > 2");
}

TEST(Parse, Precedence) {
  EXPECT_EQ(reprint("1 + 2 * i"), "1 + 2 * i");
  EXPECT_EQ(reprint("(1 + 2) * i"), "(1 + 2) * i");
  EXPECT_EQ(reprint("1 - (2 - i)"), "1 - (2 - i)");
  EXPECT_EQ(reprint("(1 - 2) - i"), "1 - 2 - i");
  EXPECT_EQ(reprint("i // 2 mod 3 * j"), "i // 2 mod 3 * j");
  EXPECT_EQ(reprint("i // (2 mod 3)"), "i // (2 mod 3)");
  EXPECT_EQ(reprint("-i * j"), "-i * j");
  EXPECT_EQ(reprint("-(i * j)"), "-(i * j)");
  EXPECT_EQ(reprint("- - i"), "-(-i)");
  EXPECT_EQ(reprint("i - -1"), "i - -1");
  EXPECT_EQ(reprint("if(i < j and not j >= k or i == 0, a[i], -2.5)"),
            "if(i < j and not j >= k or i == 0, a[i], -2.5)");
  EXPECT_EQ(reprint("if((i < j or j < k) and not (i < k and j < k), 1, 0)"),
            "if((i < j or j < k) and not (i < k and j < k), 1, 0)");
  EXPECT_EQ(reprint("(i < j) == (j < k)"), "(i < j) == (j < k)");
}

TEST(Parse, NumbersKeepTheirKind) {
  EXPECT_EQ(reprint("2"), "2");
  EXPECT_EQ(reprint("2.0"), "2.0");
  EXPECT_EQ(reprint("1e20"), "1e+20");
  EXPECT_EQ(reprint("-inf"), "-inf");
  EXPECT_EQ(reprint("0.1"), "0.1");
}

TEST(Parse, MaxOfTwoIsAFunctionUnlessTheFirstIsAnIname) {
  auto value = [](const std::string& text) {
    return parse_kernel("{ [i, j, k] : 0 <= i, j, k < n }\ny[i] = " + text).instructions[0].value;
  };
  EXPECT_EQ(value("max(n, a[i])").kind, Expr::Kind::call);
  EXPECT_EQ(value("max(a[i], j)").kind, Expr::Kind::call);
  EXPECT_EQ(value("max((j + 0), k)").kind, Expr::Kind::call);
  EXPECT_EQ(value("max((j, k), a[j])").kind, Expr::Kind::reduce);
  const Expr one = value("max(j, a[j], j < 3)");
  EXPECT_EQ(one.kind, Expr::Kind::reduce);
  EXPECT_EQ(one.reduce, ReduceOp::max);
  EXPECT_EQ(one.args.size(), 2u);
  EXPECT_EQ(value("argmax(j, a[j])").reduce, ReduceOp::argmax);
  EXPECT_THAT(value("sum((j, k), a[j])").inames, ElementsAre("j", "k"));
}

TEST(Parse, RulesBarriersAndStorage) {
  const std::string text =
      "input x: f32[n]\noutput y: f32[n]\ntemporary s: f32[n] shared in pool\ntemporary t: f32[n] in pool\n"
      "{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\n"
      "rule square(a) = a * a\nrule scaled(b, c) = square(b) + c * x[i]\n"
      "s[i] = scaled(x[i], 3)\nbarrier\nt[j] = s[j] + square(s[j])  {nosync=insn0}\ny[j] = t[j]\n";
  const Kernel kernel = parse_kernel(text);
  EXPECT_EQ(kernel.rules.size(), 2u);
  EXPECT_TRUE(kernel.instructions[1].is_behind_barrier);
  EXPECT_EQ(kernel.find_tensor("s")->storage, "pool");
  EXPECT_EQ(print(parse_kernel(print(kernel))), print(kernel));
  const std::string start = "{ [i] : 0 <= i < n }\n";
  EXPECT_THAT(message_of(start + "rule f(n) = n + 1\ny[i] = f(i)"),
              HasSubstr("\"n\" is of a rule, wanted a parameter"));
  EXPECT_THAT(message_of(start + "rule f(a) = a[i] + a\ny[i] = f(i)"), HasSubstr("wanted a tensor"));
  EXPECT_THAT(message_of(start + "rule f(a) = f(a)\ny[i] = f(i)"), HasSubstr("unknown function \"f\""));
  EXPECT_THAT(message_of(start + "rule f(a) = 2 * a\ny[i] = f(i, i)"), HasSubstr("f has 2 arguments, wanted 1"));
  EXPECT_THAT(message_of(start + "barrier\ny[i] = 1"), HasSubstr("a barrier with no instruction before it"));
}

TEST(Parse, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(message_of("kernel k\n{ [i] : 0 <= i < n }\ny[i] = 2 * "),
            "[k] line 3, column 12: found the end of the line, wanted an expression");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = f(i)").substr(0, 58),
            "[kernel] line 2, column 8: unknown function \"f\": known are");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = exp(i, i)"),
            "[kernel] line 2, column 8: exp has 2 arguments, wanted 1");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] 2"), "[kernel] line 2, column 6: found \"2\", wanted \"=\"");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = 2 3"),
            "[kernel] line 2, column 10: found \"3\", wanted the end of the line");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = i <= 2 < 3"),
            "[kernel] line 2, column 15: comparisons do not chain: write `a <= b and b < c`");
  EXPECT_EQ(
      message_of("{ [i] : 0 <= i < n }\ny[i] = sum(n, 1)"),
      "[kernel] line 2, column 12: found \"n\", wanted an iname, or several in parentheses, to reduce over, and \",\"");
  EXPECT_EQ(message_of("{ [i, j] : 0 <= i, j < n }\ny[i] = argmax((i, j), 1)"),
            "[kernel] line 2, column 8: argmax over 2 inames, wanted exactly one");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = 1 {idd=x}"),
            "[kernel] line 2, column 11: unknown option \"idd\", wanted id, dep, nosync, if, inames or tag");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = 1 {inames=n}"),
            "[kernel] line 2, column 18: \"n\" is not an iname of any domain");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\n{ [i] : 0 <= i < n }\ny[i] = 1"),
            "[kernel] line 2, column 1: the iname \"i\" is in two domains");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }"),
            "[kernel] line 1, column 21: found the end of the line, wanted an instruction such as `y[i] = 2 * x[i]`");
  EXPECT_EQ(message_of("input x: f64[n]\ny[0] = x[0]"),
            "[kernel] line 1, column 10: found \"f64\", wanted bf16, f16, f32, i8, i32 or i64");
  EXPECT_EQ(message_of("parameter n\ninput n\ny[0] = n[0]"),
            "[kernel] line 2, column 7: \"n\" is already a parameter, wanted a new name for a tensor");
  EXPECT_EQ(message_of("{ [i] : 0 <= i < n }\ny[i] = n[i]"),
            "[kernel] line 2, column 8: \"n\" is a parameter, wanted a tensor");
  EXPECT_EQ(message_of("{ [sum] : 0 <= sum < n }\ny[0] = 1"),
            "[kernel] line 1, column 4: \"sum\" has a meaning of its own, wanted an iname");
  EXPECT_EQ(message_of("y[0] = 1 {id=a}\ny[1] = 2 {id=a}"), "[kernel] two instructions have the id \"a\"");
  EXPECT_EQ(message_of("y[0] = 1 ? 2"),
            "[kernel] line 1, column 10: found \"?\", wanted a name, a number or an operator");
  EXPECT_EQ(message_of("tag q = task\ny[0] = 1"), "[kernel] line 1, column 5: \"q\" is not an iname of any domain");
  EXPECT_EQ(message_of("y[0] = 99999999999999999999"), "[kernel] line 1, column 8: the integer is larger than 2^53");
}

TEST(Parse, IslErrorsNameTheDomain) {
  testing::internal::CaptureStderr();
  const std::string message = message_of("kernel k\n\n  { [i] : 0 <= i < n * n }\ny[i] = 1");
  EXPECT_THAT(message, HasSubstr("[k] line 3, column 3: isl cannot read the domain { [i] : 0 <= i < n * n }"));
  EXPECT_THAT(message_of("kernel k\nassume n n\n{ [i] : 0 <= i < n }\ny[i] = 1"), HasSubstr("[k] line 2, column 1"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Parse, SurvivesHostileText) {
  const std::string domain = "{ [i] : 0 <= i < n }\n";
  const std::string open(100000, '('), closed(100000, ')');
  EXPECT_THAT(message_of(domain + "y[i] = " + open + "1" + closed), HasSubstr("nested deeper than 200 levels"));
  EXPECT_THAT(message_of(domain + "y[i] = " + std::string(100000, '-') + "i"), HasSubstr("nested deeper"));
  std::string chain = domain + "y[i] = 1", subscripts = domain + "y[i] = ", nots = domain + "y[i] = ";
  for (int i = 0; i < 50000; ++i) chain += " + i", subscripts += "a[", nots += "not ";
  EXPECT_THAT(message_of(chain), HasSubstr("nested deeper"));
  EXPECT_THAT(message_of(subscripts), HasSubstr("nested deeper"));
  EXPECT_THAT(message_of(nots + "i"), HasSubstr("nested deeper"));
  EXPECT_THAT(message_of("{ [i] : " + open + "0 <= i < n" + closed + " }\ny[i] = 1"), HasSubstr("nested too deeply"));
  EXPECT_THAT(message_of(std::string(2 << 20, 'a')), HasSubstr("want at most 1048576"));
  EXPECT_THAT(message_of(std::string("y[0] = \x01", 8)), HasSubstr("found \"\\x01\""));
  // Disjunctions whose complement and product would keep isl busy for ever.
  std::string hard = "{ [i] : not (";
  for (int i = 0; i < 60; ++i)
    hard += std::string(i ? " and " : "") + "(exists e : i = " + std::to_string(i + 2) + "e or i > " +
            std::to_string(i) + "n)";
  EXPECT_NE(message_of(hard + ") }\ny[i] = 1"), "");
  for (const char* text : {"",
                           "{",
                           "}",
                           "[",
                           "{ [",
                           "{ [i",
                           "{ [i]",
                           "y",
                           "y[",
                           "y[0",
                           "y[0] =",
                           "kernel",
                           "input",
                           "y[0] = 1 {",
                           "y[0] = 1 {id",
                           "y[0] = 1 {if=",
                           "assume",
                           "tag",
                           "attribute a =",
                           "input x:",
                           "input x: [",
                           "y[0] = sum(",
                           "y[0] = max((",
                           "y[0] = if(",
                           "\n\n",
                           "#",
                           ",,,",
                           "{ [i] : i }\ny[i] = 1"})
    EXPECT_NE(message_of(text), "") << text;
}

// Whatever bytes come, the answer is a kernel or a UserError; and what is a kernel can be printed and read again.
TEST(Parse, MutatedTextsNeverCrash) {
  const std::string seed = R"(kernel k
parameter T dynamic
attribute eps = 1e-06
input x: bf16[T, 2 * H]
assume H >= 1
{ [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k <= h }
s[t] = sum((h, k), x[t, k] * 2, k mod 3 <= t // 2)
y[t, h] = if(s[t] > 0 and not h == 1, max(s[t], -x[t, h]), exp(s[t])) {id=w, dep=insn0, if=t < 3}
)";
  const std::string alphabet = "[]{}(),:=<>+-*/ \nthkxs019.eand_mod#%";
  unsigned state = 12345;
  auto random = [&](size_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<size_t>((state >> 8) % n);
  };
  int kernels = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed;
    for (size_t edits = 1 + random(4); edits-- > 0;) {
      const size_t at = random(text.size());
      switch (random(4)) {
        case 0: text[at] = alphabet[random(alphabet.size())]; break;
        case 1: text.erase(at, 1 + random(5)); break;
        case 2: text.insert(at, 1, alphabet[random(alphabet.size())]); break;
        case 3: text.insert(at, text.substr(random(text.size()), random(20))); break;
      }
    }
    try {
      const std::string printed = print(parse_kernel(text));
      ++kernels;
      ASSERT_EQ(print(parse_kernel(printed)), printed) << text;
    } catch (const UserError&) {}
  }
  EXPECT_GT(kernels, 100);
}

}  // namespace
}  // namespace megalith::loop
