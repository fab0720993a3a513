// Domains as isl sets, the nest, and the loop bounds and guards that code generators print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/text.h"

namespace megalith::loop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

isl::set set_of(const std::string& text) { return isl::set(isl_context(), text); }

TEST(Domain, IsTheIntersectionOfAllTexts) {
  const Kernel kernel = parse_kernel("assume n >= 3\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < i }\ny[i] = sum(j, 1)");
  EXPECT_TRUE(kernel_domain(kernel).is_equal(set_of("[n] -> { [i, j] : n >= 3 and 0 <= j < i < n }")));
  EXPECT_TRUE(kernel_domain(kernel, {{{"n", 4}}, {}}).is_equal(set_of("{ [i, j] : 0 <= j < i < 4 }")));
  const Instruction& insn = kernel.instructions[0];
  EXPECT_TRUE(instruction_domain(kernel_domain(kernel), kernel, insn)
                  .is_equal(set_of("[n] -> { [i] : 1 <= i < n and n >= 3}")));
  // The instruction is within i alone, and the text of i knows nothing of j.
  EXPECT_TRUE(Domains(kernel).over({"i"}).is_equal(set_of("[n] -> { [i] : n >= 3 and 0 <= i < n }")));
  EXPECT_TRUE(Domains(kernel).over({"j"}).is_equal(set_of("[n] -> { [j] : n >= 3 and 0 <= j < n - 1 }")));
}

TEST(Domain, BindSizesWritesThemIn) {
  Kernel kernel = bind_sizes(parse_kernel("parameter G\ninput k: f32[H // G]\nassume G >= 1\n"
                                          "{ [h, e] : 0 <= h < H and 0 <= e < 2H and exists (m : e = 3m) }\n"
                                          "y[h] = k[h // G] {inames=e, if=h mod G == 0}"),
                             {{{"G", 4}, {"H", 8}}, {}});
  EXPECT_TRUE(is_affine(kernel, kernel.instructions[0].value.args[0]));
  EXPECT_EQ(print(kernel),
            "input k: f32[8 // 4]\noutput y\nassume 4 >= 1\n"
            "{ [h, e] : 0 <= h < 8 and 0 <= e < 2 * 8 and exists (m : e = 3m) }\n"
            "y[h] = k[h // 4]  {if=h mod 4 == 0, inames=e}\n");
  EXPECT_TRUE(kernel_domain(kernel).is_equal(set_of("{ [h, e] : 0 <= h < 8 and 0 <= e < 16 and e mod 3 = 0 }")));
}

TEST(Domain, BindKeepsDynamicParameters) {
  const Kernel kernel = parse_kernel(
      "kernel k\nparameter T dynamic\nassume T >= 1 or H >= 2\n"
      "{ [t, h] : 0 <= t < T and 0 <= h < 2H }\ny[t, h] = x[t * H + h]");
  EXPECT_EQ(print(bind(kernel, {{{"T", 4}, {"H", 8}}, {}})),
            "kernel k\nparameter T dynamic\noutput y\ninput x\nassume (T >= 1 or 8 >= 2) and 0 <= T <= 4\n"
            "{ [t, h] : 0 <= t < T and 0 <= h < 2 * 8 }\ny[t, h] = x[t * 8 + h]\n");
  EXPECT_THROW(bind(kernel, {{{"T", 4}}, {}}), UserError);
}

TEST(Domain, AffineOrNot) {
  const Kernel kernel = parse_kernel("attribute eps = 1\n{ [i, j] : 0 <= i, j < n }\ny[i] = x[j] {inames=j}");
  auto affine = [&](const std::string& text) {
    return is_affine(kernel, parse_kernel("{ [i, j] : 0 <= i, j < n }\ny[i] = " + text).instructions[0].value);
  };
  for (const char* text : {"i", "n - 2 * i + j", "(2 + 1) * i", "i // 4", "(i + j) mod 3", "-i", "7", "i * (8 // 2)"})
    EXPECT_TRUE(affine(text)) << text;
  for (const char* text :
       {"i * j", "x[i]", "eps", "i // n", "i // 0", "2.0 * i", "i / 2", "m", "sum(j, j)", "max(n, i)"})
    EXPECT_FALSE(affine(text)) << text;
}

std::string nest_text(const std::vector<NestNode>& nodes) {
  std::string text;
  for (const NestNode& node : nodes)
    text += (text.empty() ? "" : " ") +
            (node.iname.empty() ? std::to_string(node.instruction) : node.iname + "{" + nest_text(node.body) + "}");
  return text;
}

TEST(Nest, SharesTheOpenLoops) {
  auto nest = [](const std::string& text) {
    return nest_text(build_nest(parse_kernel("{ [i, j, k] : 0 <= i, j, k < n }\n" + text)));
  };
  EXPECT_EQ(nest("a[i] = 1\nb[i, j] = a[i]\nc[i] = 2"), "i{0 j{1} 2}");
  EXPECT_EQ(nest("a[j] = 1\nb[i, j] = 2"), "j{0} i{j{1}}");
  EXPECT_EQ(nest("a[i, j] = 1\nb[j, i] = 2"), "i{j{0 1}}");
  EXPECT_EQ(nest("a[i, j] = 1\nb[i, k] = 2\nc[] = 3\nd[i] = 4"), "i{j{0} k{1}} 2 i{3}");
  EXPECT_EQ(nest("a[i, j] = 1\nb[i] = 2\nc[i, j] = 3"), "i{j{0} 1 j{2}}");
}

TEST(Bounds, OfABoxAndATriangle) {
  const isl::set triangle = set_of("[n] -> { [i, j] : 0 <= i < n and 0 <= j < n and j <= i }");
  const LoopBounds i = loop_bounds(triangle, "i", {}), j = loop_bounds(triangle, "j", {"i"});
  EXPECT_THAT(i.lower, ElementsAre("0"));
  EXPECT_THAT(i.upper, ElementsAre("n"));
  EXPECT_THAT(j.lower, ElementsAre("0"));
  EXPECT_THAT(j.upper, ElementsAre("i + 1"));  // that j < n follows from i < n
  const isl::set implemented = enter_loop(enter_loop(isl::set(isl_context(), "[n] -> { [] }"), i), j);
  EXPECT_THAT(guards(triangle, implemented), IsEmpty());
}

TEST(Bounds, DivisionsRoundInwards) {
  const isl::set set = set_of("[n] -> { [b, i] : 0 <= 3b + i < n and 0 <= i < 3 and 0 <= 2i - 1 and b >= 0 }");
  const LoopBounds b = loop_bounds(set, "b", {}), i = loop_bounds(set, "i", {"b"});
  EXPECT_THAT(b.upper, ElementsAre("floord(n - 2, 3) + 1"));  // i starts at 1
  EXPECT_THAT(i.lower, ElementsAre("1"));
  EXPECT_THAT(i.upper, ElementsAre("3", "n - 3 * b"));
  EXPECT_THAT(loop_bounds(set_of("[n] -> { [i] : n <= 4i and 3i <= 2n }"), "i", {}).lower,
              ElementsAre("-floord(-n, 4)"));
}

TEST(Bounds, HolesAndUnionsBecomeGuards) {
  const isl::set even = set_of("[n] -> { [i] : 0 <= i < n and i mod 2 = 0 }");
  const LoopBounds bounds = loop_bounds(even, "i", {});
  EXPECT_THAT(bounds.lower, ElementsAre("0"));
  EXPECT_THAT(bounds.upper, ElementsAre("n"));
  EXPECT_TRUE(bounds.implemented.is_equal(set_of("[n] -> { [i] : 0 <= i < n }")));
  EXPECT_THAT(guards(even, bounds.implemented), ElementsAre("2 * floord(i, 2) - i == 0"));

  const isl::set two = set_of("[n, m] -> { [i] : 0 <= i < n or 7 <= i < m }");
  const LoopBounds both = loop_bounds(two, "i", {});
  EXPECT_THAT(both.lower, ElementsAre("min(0, 7)"));
  EXPECT_THAT(both.upper, ElementsAre("max(m, n)"));
  EXPECT_TRUE(two.is_subset(both.implemented));
  EXPECT_THAT(guards(two, both.implemented), ElementsAre("((i - 7 >= 0 && m - i - 1 >= 0) || (n - i - 1 >= 0))"));
  EXPECT_THAT(guards(isl::set::empty(two.space()), both.implemented), ElementsAre("0"));
}

TEST(Bounds, UnboundedIsAnError) {
  EXPECT_THROW(loop_bounds(set_of("{ [i] : 0 <= i }"), "i", {}), UserError);
  try {
    loop_bounds(set_of("{ [i] : 0 <= i }"), "i", {});
  } catch (const UserError& error) { EXPECT_STREQ(error.what(), "[domain] the iname \"i\" has no upper bound"); }
}

// Walks the nest as a generator does: the loops and guards together implement each instruction's domain exactly.
void expect_implemented(const Kernel& kernel, const Domains& domains, const NestNode& node,
                        std::vector<std::string> outer, const isl::set& implemented, int& num_guards) {
  if (node.iname.empty()) {
    const isl::set wanted = domains.over(kernel.instructions[static_cast<size_t>(node.instruction)].within);
    num_guards += static_cast<int>(guards(wanted, implemented).size());
    EXPECT_TRUE(wanted.is_subset(implemented));
    return;
  }
  const LoopBounds bounds = loop_bounds(loop_domain(domains, kernel, node, outer), node.iname, outer);
  outer.push_back(node.iname);
  for (const NestNode& child : node.body)
    expect_implemented(kernel, domains, child, outer, enter_loop(implemented, bounds), num_guards);
}

TEST(Bounds, OfAWholeNest) {
  auto count_guards = [](const std::string& text) {
    const Kernel kernel = parse_kernel(text);
    const Domains domains(kernel);
    int num_guards = 0;
    for (const NestNode& node : build_nest(kernel))
      expect_implemented(kernel, domains, node, {}, parameter_context(kernel), num_guards);
    return num_guards;
  };
  EXPECT_EQ(count_guards("assume H >= 1 and K >= 1\n{ [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < K }\n"
                         "s[t] = sum(k, x[t, k])\ny[t, h] = s[t]"),
            0);
  // Without the assumption the projection onto t says that K is positive.
  EXPECT_EQ(count_guards("{ [t, k] : 0 <= t < T and 0 <= k < K }\ns[t] = sum(k, x[t, k])"), 1);
  EXPECT_EQ(count_guards("{ [i, j] : 0 <= j < i < n }\na[i] = sum(j, 1)\nb[i, j] = a[i]"), 0);
  // Neighbours in one loop with different domains: the loop covers both, the smaller one needs a guard.
  EXPECT_EQ(count_guards("assume n >= 1 and m > n\n{ [i] : 0 <= i < m }\n{ [j] : i <= j < n }\na[i] = 1\nb[i, j] = 2"),
            0);
  EXPECT_EQ(count_guards("{ [i] : 0 <= i < n and i mod 3 = 1 }\na[i] = 1"), 1);
}

}  // namespace
}  // namespace megalith::loop
