// print(parse(text)), parsed again, is the same kernel and prints the same text.
#include <gtest/gtest.h>

#include "megalith/loop/text.h"

namespace megalith::loop {
namespace {

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, PrintParsePrint) {
  const Kernel first = parse_kernel(GetParam());
  const std::string text = print(first);
  const Kernel second = parse_kernel(text);
  EXPECT_EQ(print(second), text);
  ASSERT_EQ(first.instructions.size(), second.instructions.size());
  for (size_t i = 0; i < first.instructions.size(); ++i) {
    const Instruction &a = first.instructions[i], &b = second.instructions[i];
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.within, b.within);
    EXPECT_EQ(a.depends_on, b.depends_on);
    EXPECT_TRUE(same_expression(a.target, b.target));
    EXPECT_TRUE(same_expression(a.value, b.value)) << print(a.value) << " / " << print(b.value);
  }
  ASSERT_EQ(first.tensors.size(), second.tensors.size());
  for (size_t i = 0; i < first.tensors.size(); ++i) {
    EXPECT_EQ(first.tensors[i].name, second.tensors[i].name);
    EXPECT_EQ(first.tensors[i].role, second.tensors[i].role);
    EXPECT_EQ(first.tensors[i].dtype, second.tensors[i].dtype);
    EXPECT_EQ(first.tensors[i].shape_known, second.tensors[i].shape_known);
  }
  EXPECT_EQ(first.domains, second.domains);
  EXPECT_EQ(first.assumptions, second.assumptions);
  EXPECT_EQ(first.opaque, second.opaque);
  EXPECT_EQ(first.tags, second.tags);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RoundTrip,
    testing::Values(
        "{ [i] : 0 <= i < n }\nout[i] = 2 * a[i]", "y[] = 5",
        "kernel k\nopaque\nparameter n\nparameter T dynamic\nattribute scale = 2\nattribute big = inf\n"
        "input x: bf16[n, T + 1]\ninput ids: i32\ntemporary t: [n // 4]\noutput o: f16[]\n{ [i] : 0 <= i < n }\n"
        "t[i // 4] = x[i, 0]\no[] = t[0]",
        "{ [i, j] : 0 <= i < n and 0 <= j < m }\nout[j, i] = a[i, j]\nout[i, j] = 2 * out[i, j]  {id=double, "
        "dep=insn0}",
        "[n] -> { [i, j] : exists (e : i = 2e) and 0 <= i < n and j = i }\nout[i] = 1  {inames=j, if=i > 3 or i == 1}",
        "{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < i }\nout[i] = sum(j, j * j, j mod 2 == 0)",
        "tag i = task\ntag j = loop\n{ [i, j] : 0 <= i, j < 4 }\no[i] = max((i, j), a[i] - (b[j] - 1)) - -3 + (1 - 2)",
        "{ [t, h] : 0 <= t < T and 0 <= h < H }\n"
        "y[t, h] = if(ids[t] >= 0, f32(table[ids[t] // 2, h mod 4]), -inf) / pow(2.5, -h) // 1"));

}  // namespace
}  // namespace megalith::loop
