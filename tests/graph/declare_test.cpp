// Operators from texts: what a declaration becomes, and what a body may not say. The messages of mistakes are in
// tests/python/messages.txt.
#include "megalith/graph/declare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "megalith/base/error.h"

namespace megalith::graph {
namespace {

using ::testing::HasSubstr;

Declaration scaled() {
  return {.name = "scaled",
          .doc = "y = scale * x, added over groups",
          .text =
              "attribute scale = 2\n"
              "parameter G\n"
              "input x: bf16[T,\n"
              "  G * L]\n"
              "input ids: i32[T]\n"
              "output y: f32[T, L]\n"
              "temporary part: f32[T, L]\n"
              "{ [t, l, g] : 0 <= t < T and 0 <= l < L and 0 <= g < G }\n"
              "part[t, l] = sum(g, x[t, g * L + l])\n"
              "y[t, l] = scale * part[t, l] + ids[t]\n",
          .index = {{"ids", "L"}},
          .tests = {{{"T", 2}, {"G", 3}, {"L", 4}}}};
}

TEST(Declare, TakesEverythingFromTheText) {
  const Operator op = declare(scaled());
  ASSERT_EQ(op.operands.size(), 3u);
  EXPECT_EQ(op.operands[0].name, "x");
  EXPECT_EQ(op.operands[0].dtype, DType::bf16);
  EXPECT_EQ(op.operands[0].shape, (std::vector<std::string>{"T", "G * L"}));
  EXPECT_FALSE(op.operands[0].exact_dtype);
  EXPECT_TRUE(op.operands[1].exact_dtype);
  EXPECT_EQ(op.operands[1].index_into, "L");
  EXPECT_EQ(op.operands[2].role, loop::Role::output);
  EXPECT_EQ(op.attributes.at(0).value, 2);
  EXPECT_EQ(op.extra_sizes, std::vector<std::string>{}) << "y tells L, and x then G";
  ASSERT_EQ(op.axes.size(), 1u);
  EXPECT_EQ(op.axes[0].iname, "t");
  EXPECT_TRUE(op.loops.starts_with("temporary part: f32[T, L]\n{ [t, l, g]")) << op.loops;
}

TEST(Declare, ASizeThatNoShapeTellsIsTheNodes) {
  Declaration declaration = scaled();
  declaration.text =
      "input x: f32[A * B]\noutput y: f32[A * B]\n{ [a, b] : 0 <= a < A and 0 <= b < B }\n"
      "y[a * B + b] = 2 * x[a * B + b]\n";
  declaration.index = {};
  declaration.tests = {{{"A", 2}, {"B", 3}}};
  EXPECT_EQ(declare(declaration).extra_sizes, (std::vector<std::string>{"A", "B"}));
}

TEST(Declare, WhichDtypesAreExactMayBeSaid) {
  Declaration declaration = scaled();
  declaration.exact = {"x"};
  const Operator op = declare(declaration);
  EXPECT_TRUE(op.operands[0].exact_dtype);
  EXPECT_TRUE(op.operands[1].exact_dtype) << "it points into L";
  EXPECT_FALSE(op.operands[2].exact_dtype);
  declaration.index = {};
  EXPECT_FALSE(declare(declaration).operands[1].exact_dtype);
}

TEST(Declare, OneTaskHasNoAxis) {
  Declaration declaration = scaled();
  declaration.one_task = true;
  EXPECT_TRUE(declare(declaration).axes.empty());
}

std::string complaint(const std::string& text, const std::string& target = "cuda") {
  try {
    check_body_text("f", {target, text});
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(BodyText, MaySayAnythingInCommentsAndLiterals) {
  EXPECT_EQ(complaint("// blockIdx\n/* asm\n\"*/ void f(const auto& task) { g(\"extern \\\" static\", '\"', 1'000); }"),
            "");
  EXPECT_EQ(complaint("static constexpr int kOne = 1;\nvoid f(const auto& task) { static_assert(kOne == 1); }"), "");
}

TEST(BodyText, MayNotAskWhoRunsIt) {
  EXPECT_THAT(complaint("/* 1\n 2 */\nvoid f(const auto& task) {\n  ::blockIdx.x; }"),
              HasSubstr("\"blockIdx\" in line 4"));
  EXPECT_THAT(complaint("#include <sched.h>\nvoid f(const auto& task) {}", "cpu"), HasSubstr("\"include\" in line 1"));
  EXPECT_THAT(complaint("void f(const auto& task) { static int calls; }"), HasSubstr("from task to task"));
  EXPECT_THAT(complaint("void g(const auto& task) {}"), HasSubstr("want: void f(const auto& task) { ... }"));
  EXPECT_THAT(complaint("", "rocm"), HasSubstr("\"rocm\"; targets are cpu and cuda"));
}

// To some compilers they end a line, and what looks like a comment is none.
TEST(BodyText, HasNoControlCharacters) {
  for (const char c : {'\r', '\0', '\f', '\v', '\x1a', '\x7f'})
    EXPECT_THAT(complaint(std::string("void f(const auto& task) {\n// ") + c + "asm(\"\"); }"),
                HasSubstr(fmt::format("has the control character \\x{:02x} in line 2", static_cast<int>(c))));
  EXPECT_EQ(complaint("void f(const auto& task) {\r\n\t// of a file from Windows\r\n}"), "");
}

}  // namespace
}  // namespace megalith::graph
