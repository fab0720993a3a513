// Programs with known results from loopy's documentation and tests, re-expressed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/check.h"
#include "megalith/loop/count.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

using testing::HasSubstr;

TEST(Loopy, L1_Doubling) {
  const Array a = random_array({256}, 1);
  const Array out = run("{ [i] : 0 <= i < n }\nout[i] = 2 * a[i]", {{{"n", 256}}, {}}, {{"a", a}}, "out");
  ASSERT_EQ(out.shape, (std::vector<int64_t>{256}));
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(out.values[i], 2 * a.values[i]);
}

// Both instructions in one nest run point by point, so some elements are doubled before they are written.
TEST(Loopy, L2_SharedInamesInterleave) {
  const int64_t n = 8;
  const Array a = random_array({n, n}, 1);
  auto is_twice_transposed = [&](const char* text) {
    const Array out = run(text, {{{"n", n}}, {}}, {{"a", a}}, "out");
    bool equal = true;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) equal &= out.values[i * n + j] == 2 * a.values[j * n + i];
    return equal;
  };
  EXPECT_FALSE(is_twice_transposed(kTransposeAndDouble));
  EXPECT_TRUE(is_twice_transposed(kTransposeThenDouble));
}

TEST(Loopy, L2_TheOrderCheckSeesIt) {
  EXPECT_EQ(
      error_of([] { check_access_order(parse_kernel(kTransposeAndDouble)); }),
      "[transpose_and_dbl] instructions \"transpose\" and \"insn1\" touch the same elements of out, out[j, i] and "
      "out[i, j], now in this order and now in that, inside the loops they share (i, j): use other inames in one of "
      "them");
  EXPECT_EQ(error_of([] { check_access_order(parse_kernel(kTransposeThenDouble)); }), "");
}

TEST(Loopy, L10_StaticMaximum) {
  const std::string text = "kernel fill\n{ [i] : 0 <= i < n }\nout[i] = 5\nout[0] = 6";
  Kernel kernel = parse_kernel(text);
  EXPECT_EQ(error_of([&] { infer_shapes(kernel); }),
            "[fill] the shape of out, dimension 0: static maximum not found: (1): n <= 1; (n): n >= 2; add an "
            "assumption such "
            "as `assume n >= 1`, or declare the shape");
  Kernel assumed = parse_kernel(text + "\nassume n >= 1");
  infer_shapes(assumed);
  ASSERT_EQ(assumed.find_tensor("out")->shape.size(), 1u);
  EXPECT_EQ(print(assumed.find_tensor("out")->shape[0]), "n");
}

// loopy's kernel of two types; where it has f64, which no tensor has here, this one has i64 of the same size.
constexpr const char* kTwoTypes = R"(
kernel stats
input a: f32[n, m, l]
input b: f32[n, m, l]
input g: i64[n, m]
input h: i64[n, m + 1]
output c: f32[n, m, l]
output e: i64[n, m]
assume n >= 1 and m >= 1 and l >= 1
{ [i, j, k] : 0 <= i < n and 0 <= k < m and 0 <= j < l }
c[i, k, j] = a[i, k, j] * b[i, k, j] / 3.0 + a[i, k, j]
e[i, k] = g[i, k] * (2 + h[i, k + 1])
)";
const Binding kTwoTypesSizes = {{{"n", 256}, {"m", 256}, {"l", 8}}, {}};

// Index arithmetic (loopy's 65536 additions of i32 for k + 1) is not counted.
TEST(Loopy, L11_OperationsByType) {
  Kernel kernel = parse_kernel(kTwoTypes);
  infer_types(kernel);
  const OpCounts counts = count_ops(kernel, kTwoTypesSizes);
  for (const char* name : {"add", "mul", "div"}) EXPECT_EQ(counts.ops.at({DType::f32, name}), 524288) << name;
  for (const char* name : {"add", "mul"}) EXPECT_EQ(counts.ops.at({DType::i64, name}), 65536) << name;
  EXPECT_EQ(counts.ops.size(), 5u);
  EXPECT_EQ(counts.flops(), 1572864);
}

TEST(Loopy, L12_BytesByTensor) {
  Kernel kernel = parse_kernel(kTwoTypes);
  infer_types(kernel);
  const auto counts = count_accesses(kernel, kTwoTypesSizes);
  EXPECT_EQ(counts.at("a").loads, 1048576);
  EXPECT_EQ(counts.at("c").stores, 524288);
  EXPECT_EQ(counts.at("g").loads, 65536);
  EXPECT_EQ(counts.at("e").stores, 65536);
  int64_t loaded = 0, stored = 0;
  for (const auto& [name, count] : counts) {
    loaded += count.load_bytes;
    stored += count.store_bytes;
  }
  EXPECT_EQ(loaded, 7340032);
  EXPECT_EQ(stored, 2621440);
}

TEST(Loopy, L14_MatmulOperations) {
  Kernel kernel = parse_kernel(kMatmul);
  infer_types(kernel);
  const int64_t n = 512, m = 256, l = 128;
  const OpCounts counts = count_ops(kernel, {{{"n", n}, {"m", m}, {"l", l}}, {}});
  EXPECT_EQ(counts.ops.at({DType::f32, "add"}), n * m * l);
  EXPECT_EQ(counts.ops.at({DType::f32, "mul"}), n * m * l);
  EXPECT_EQ(counts.ops.size(), 2u);
  EXPECT_EQ(counts.flops(), 2 * n * m * l);
}

TEST(Loopy, L18_Reductions) {
  EXPECT_EQ(run("{ [i] : 0 <= i < 100 }\ny[] = sum(i, 2)", {}, {}, "y").values[0], 200);

  const Array empty = run("{ [i] : 0 <= i < 20 }\n{ [j] : 0 <= j < 0 }\na[i] = sum(j, j)", {},
                          {{"a", Array{{20}, std::vector<double>(20, 9)}}}, "a");
  for (const double value : empty.values) EXPECT_EQ(value, 0);

  const int64_t n = 330;
  const Array nested =
      run("{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < i + l }\na[i] = sum(j, j)", {{{"n", n}, {"l", 3}}, {}}, {}, "a");
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(nested.values[static_cast<size_t>(i)], (i + 3) * (i + 2) / 2);

  Array x = random_array({1, 10000}, 4);
  x.values[7777] = 2;
  EXPECT_EQ(run(kArgmax, {{{"T", 1}, {"V", 10000}}, {}}, {{"x", x}}, "y").values[0], 7777);
  x.values[123] = 2;  // the lowest of equals
  EXPECT_EQ(run(kArgmax, {{{"T", 1}, {"V", 10000}}, {}}, {{"x", x}}, "y").values[0], 123);
}

}  // namespace
}  // namespace megalith::loop
