// Operators made of others: what their loop kernel reads like, and what a program that does not fit is told. That they mean
// the same as one operator behind the other is for tests/optimize/rules_test.cpp to show, in whole graphs.
#include "megalith/graph/compose.h"

#include <gtest/gtest.h>

#include <functional>

#include "megalith/base/error.h"
#include "megalith/graph/product.h"
#include "megalith/ops/registry.h"

namespace megalith::graph {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

std::string loops_of(const operator_& signature, const std::string& program) {
  return compose(signature, program, ops::single());
}

operator_ product() {
  return operator_("product", "")
      .input("x", {"T", "K"})
      .input("norm", {"K"})
      .input("weight", {"N", "K"})
      .output("y", {"T", "N"})
      .attribute("eps", 1e-6);
}

TEST(Compose, WhatHasNoSumGoesWhereItIsRead) {
  EXPECT_EQ(loops_of(product(), "normed = rmsnorm(x, norm)\n y = linear(normed, weight)\n"),
            "{ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }\n"
            "ss[t] = sum(k, f32(x[t, k]) * f32(x[t, k]))\n"
            "y[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(weight[n, k]))\n");
}

TEST(Compose, ASumThatIsReadOnceGoesThereToo) {
  operator_ op("sum", "");
  op.input("x", {"T", "K"}).input("weight", {"N", "K"}).input("r", {"T", "N"}).output("y", {"T", "N"});
  EXPECT_EQ(loops_of(op, "p = linear(x, weight)\n y = add(r, p; h as n)\n"),
            "{ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }\n"
            "y[t, n] = f32(r[t, n]) + sum(k, f32(x[t, k]) * f32(weight[n, k]))\n");
  EXPECT_NE(loops_of(op, "p = linear(x, weight)\n y = silu_mul(p, p; i as n)\n").find("p[t, n] = sum(k"),
            std::string::npos);  // read three times
}

TEST(Compose, ALoopOverAProductBecomesTwo) {
  operator_ op("tiled", "");
  op.input("x", {"T", "K"}).input("weight", {"C * L", "K"}).output("y", {"T", "C * L"});
  EXPECT_EQ(loops_of(op, "y = linear(x, weight)\n"),
            "{ [t, c, l, k] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= k < K }\n"
            "y[t, c * L + l] = sum(k, f32(x[t, k]) * f32(weight[c * L + l, k]))\n");
}

TEST(Compose, ALoopInPiecesEndsWhereItEnded) {
  operator_ op("pieces", "");
  op.input("x", {"T", "K"}).input("weight", {"N", "K"}).output("y", {"T", "N"}).size("C").size("L");
  EXPECT_EQ(loops_of(op, "y = linear(x, weight; n in C * L)\n"),
            "{ [t, c, l, k] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= k < K }\n"
            "y[t, c * L + l] = sum(k, f32(x[t, k]) * f32(weight[c * L + l, k]))  {if=c * L + l < N}\n");
}

TEST(Compose, WhatIsTakenInPiecesIsReadInPieces) {
  operator_ op("largest", "");
  op.input("x", {"T", "K"}).input("weight", {"V", "K"}).output("y", {"T", "V"}).output("value", {"T", "C"});
  op.output("index", {"T", "C"}, DType::i32).size("C").size("L");
  EXPECT_EQ(loops_of(op,
                     "sums = linear(x, weight; n in C * L)\n y = copy(sums; h in C * L)\n"
                     "value, index = argmax_partial(sums; r as t)\n"),
            "{ [t, c, l, k, v] : 0 <= t < T and 0 <= c < C and 0 <= l < L and 0 <= k < K and 0 <= v < L }\n"
            "sums[t, c, l] = sum(k, f32(x[t, k]) * f32(weight[c * L + l, k]))  {if=c * L + l < V}\n"
            "y[t, c * L + l] = f32(sums[t, c, l])  {if=c * L + l < V}\n"
            "value[t, c] = max(v, f32(sums[t, c, v]), c * L + v < V)\n"
            "index[t, c] = c * L + argmax(v, f32(sums[t, c, v]), c * L + v < V)\n");
}

// A temporary of heads has an axis for each factor, so that what is read of it is found in what was written.
TEST(Compose, TemporariesHaveAnAxisForEachFactor) {
  operator_ op("heads", "");
  op.input("x", {"T", "G * M * 2 * H"})
      .input("w", {"2 * H"})
      .input("c", {"S", "H"})
      .input("s", {"S", "H"})
      .index("p", {"T"}, "S")
      .output("y", {"T", "G * M * 2 * H"})
      .attribute("eps", 1e-6);
  const std::string text = loops_of(op,
                                    "n = head_norm(x, w; A = G * M, D = 2 * H)\n"
                                    "y = rope(n, c, s, p; A = G * M, M = H, m as h)\n");
  EXPECT_NE(text.find("ss[t, g, m] = sum(k, f32(x[t, (g * M + m) * (2 * H) + k])"), std::string::npos) << text;
  EXPECT_NE(text.find("f32(w[H + h])"), std::string::npos) << text;
  EXPECT_EQ(text.find("n["), std::string::npos) << text;
}

TEST(Compose, AProgramThatDoesNotFitIsToldWhy) {
  const auto error = [](const std::string& program) { return error_of([&] { loops_of(product(), program); }); };
  EXPECT_EQ(error("y = linear x"), "[product] \"y = linear x\" is not y = operator(x; ...) (\"y = linear x\")");
  EXPECT_EQ(error("y = linear(x)"), "[product] \"linear\" has no tensor for \"weight\" (\"y = linear(x)\")");
  EXPECT_EQ(error("y = linear(x, weight, norm)"),
            "[product] \"linear\" reads 2 and writes 1 tensors (\"y = linear(x, weight, norm)\")");
  EXPECT_EQ(error("y = linear(weight, x)"),
            "[product] \"y\" is [T, N], and \"linear\" wants [N, T] (\"y = linear(weight, x)\")");
  EXPECT_EQ(error("y = linear(x, norm)"),
            "[product] \"weight\" of \"linear\" has 2 axes and \"norm\" has 1 (\"y = linear(x, norm)\")");
  EXPECT_EQ(
      error("y = linear(x, weight; quickly)"),
      "[product] \"quickly\" is none of \"SIZE = ...\", \"loop as other\", \"loop in C * L\" (\"y = linear(x, weight; "
      "quickly)\")");
  EXPECT_NE(error("y = matmul(x, weight)").find("there is no operator \"matmul\""), std::string::npos);
  operator_ op("scaled", "");
  op.input("x", {"T", "N"}).input("squares", {"T", "C"}).output("y", {"T", "N"}).size("K");
  EXPECT_EQ(
      error_of([&] { loops_of(op, "y = rmsnorm_scale(x, squares)"); }),
      "[scaled] the attribute \"eps\" of \"rmsnorm_scale\" is none of the whole (\"y = rmsnorm_scale(x, squares)\")");
  EXPECT_EQ(error_of([&] { loops_of(op, "y = argmax_partial(x)"); }).substr(0, 8), "[scaled]");
}

TEST(Product, ReadsWhatShapesHave) {
  EXPECT_EQ(Product::of("G * 2 * H").axes(), (std::vector<std::string>{"G", "2 * H"}));
  EXPECT_EQ(Product::of("12").text(), "12");
  EXPECT_TRUE(same_product(Product::of("A * M * 2").replaced({{"A", "G * N"}}), Product::of("2*N*G*M")));
  EXPECT_EQ(error_of([] { Product::of("G + 1"); }),
            "\"G + 1\" is no product of sizes and whole numbers, as \"G * 2 * H\" is");
}

}  // namespace
}  // namespace megalith::graph
