#include <gtest/gtest.h>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/count.h"
#include "megalith/loop/count_points.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

int64_t points(const std::string& text) { return count_points(isl::set(isl_context(), text)); }

TEST(CountPoints, AgreesWithEnumeration) {
  for (const char* text :
       {"{ [i, j] : 0 <= i < 7 and 0 <= j < 9 }", "{ [i, j] : 0 <= j < i < 20 }",
        "{ [i] : 0 <= i < 30 and i mod 4 = 1 }", "{ [i, j, k] : 0 <= i < 6 and 0 <= j < 5 and i <= k < 2i + j }",
        "{ [i] : 0 <= i < 4 or 2 <= i < 9 }", "{ [i, j] : 0 <= i, j < 8 and (i < j or i + j = 7) }", "{ [i] : 1 = 0 }",
        "{ [] }", "{ [i, j] : i = 3 and 0 <= j < 2i }", "{ [i, j] : 0 <= i < 12 and j = floor(i/3) }",
        "{ [i] : 2 <= 3i <= 20 }", "{ [i, j] : exists e : i = 2e and 0 <= i, j < 9 }"}) {
    int64_t expected = 0;
    const isl::set set(isl_context(), text);
    set.foreach_point([&](const isl::point&) { ++expected; });
    EXPECT_EQ(count_points(set), expected) << text;
  }
}

TEST(CountPoints, LargeSetsCostNothing) {
  EXPECT_EQ(points("{ [i, j, k] : 0 <= i < 100000 and 0 <= j < 100000 and 0 <= k < 1000 }"), 10'000'000'000'000);
  // A causal triangle of 4096 positions, 32 heads, 128 elements.
  EXPECT_EQ(points("{ [t, h, s, d] : 0 <= s <= t < 4096 and 0 <= h < 32 and 0 <= d < 128 }"),
            4096LL * 4097 / 2 * 32 * 128);
}

TEST(CountElements, OfOverlappingBoxes) {
  EXPECT_EQ(count_elements({}), 0);
  EXPECT_EQ(count_elements({Box{}}), 1);
  EXPECT_EQ(count_elements({Box{{0, 0}, {4, 4}}, Box{{2, 2}, {6, 3}}}), 16 + 2);
  EXPECT_EQ(count_elements({Box{{0}, {4}}, Box{{8}, {9}}}), 5);
}

OpCounts ops_of(const std::string& text, const Binding& binding, const std::vector<Range>& tile = {}) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  return count_ops(kernel, binding, tile);
}

TEST(CountOps, Triangle) {
  const OpCounts counts =
      ops_of("input x: f32[n]\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\ny[i] = sum(j, x[j] * x[i], j <= i) / 2",
             {{{"n", 100}}, {}});
  EXPECT_EQ(counts.ops.at({DType::f32, "mul"}), 5050);
  EXPECT_EQ(counts.ops.at({DType::f32, "add"}), 5050);
  EXPECT_EQ(counts.ops.at({DType::f32, "div"}), 100);
  EXPECT_EQ(counts.ops.at({DType::i32, "compare"}), 10000);
  EXPECT_EQ(counts.flops(), 10200);
}

TEST(CountOps, KindsAndTypes) {
  const OpCounts counts = ops_of(
      "input x: bf16[n + 1]\ninput ids: i32[n]\n{ [i] : 0 <= i < 10 }\n"
      "y[i] = if(ids[i + 0] > 0, exp(f32(x[i + 1])), rsqrt(-x[i])) + max(ids[i] + 1, 0)",
      {{{"n", 10}}, {}});
  const std::map<std::pair<DType, std::string>, int64_t> expected = {
      {{DType::f32, "select"}, 10}, {{DType::i32, "compare"}, 10}, {{DType::f32, "exp"}, 10},
      {{DType::f32, "cast"}, 10},   {{DType::f32, "rsqrt"}, 10},   {{DType::f32, "neg"}, 10},
      {{DType::f32, "add"}, 10},    {{DType::i32, "max"}, 10},     {{DType::i32, "add"}, 10}};
  EXPECT_EQ(counts.ops, expected);
  EXPECT_EQ(counts.flops(), 40);
}

TEST(CountOps, OfATile) {
  const Binding binding{{{"n", 512}, {"m", 256}, {"l", 128}}, {}};
  EXPECT_EQ(ops_of(kMatmul, binding, {{"i", 0, 16}, {"j", 250, 300}}).flops(), 2 * 16 * 6 * 128);
  EXPECT_EQ(ops_of(kMatmul, binding, {{"i", 512, 520}}).flops(), 0);
}

TEST(CountAccesses, OfAMatmul) {
  const auto counts = count_accesses(parse_kernel(kMatmul), {{{"n", 512}, {"m", 256}, {"l", 128}}, {}}, {{"i", 0, 16}});
  EXPECT_EQ(counts.at("a").loads, 16 * 256 * 128);
  EXPECT_EQ(counts.at("a").load_bytes, 4 * 16 * 256 * 128);
  EXPECT_EQ(counts.at("a").unique_read_bytes, 4 * 16 * 128);
  EXPECT_EQ(counts.at("b").unique_read_bytes, 4 * 256 * 128);
  EXPECT_EQ(counts.at("c").stores, 16 * 256);
  EXPECT_EQ(counts.at("c").store_bytes, 4 * 16 * 256);
  EXPECT_EQ(counts.at("c").unique_write_bytes, 4 * 16 * 256);
  EXPECT_EQ(counts.at("c").loads, 0);
  EXPECT_EQ(counts.size(), 3u);
}

TEST(CountAccesses, TemporariesAreLeftOut) {
  Kernel kernel = parse_kernel(kRmsNorm);
  const auto counts = count_accesses(kernel, {{{"T", 2}, {"H", 8}}, {}});
  EXPECT_FALSE(counts.contains("ss"));
  EXPECT_EQ(counts.at("x").loads, 2 * 8 * 2 + 2 * 8);
  EXPECT_EQ(counts.at("x").unique_read_bytes, 2 * 2 * 8);
  EXPECT_EQ(counts.at("weight").loads, 16);
  EXPECT_EQ(counts.at("weight").unique_read_bytes, 16);
}

}  // namespace
}  // namespace megalith::loop
