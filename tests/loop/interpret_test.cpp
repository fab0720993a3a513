#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/domain.h"

namespace megalith::loop {
namespace {

using testing::ElementsAre;

// The value that `text` gives for y[], with i, j, k in 0..9 to reduce over and x = {3, 1, 4, 1, 5}.
double value_of(const std::string& text) {
  return run("{ [i, j, k] : 0 <= i, j, k < 10 }\ny[] = " + text, {}, {{"x", array_of({5}, {3, 1, 4, 1, 5})}}, "y")
      .values[0];
}

TEST(Interpret, Arithmetic) {
  EXPECT_EQ(value_of("1 + 2 * 3 - x[0]"), 4);
  EXPECT_EQ(value_of("7 / 2"), 3.5);
  EXPECT_EQ(value_of("7 // 2"), 3);
  EXPECT_EQ(value_of("(-7) // 2"), -4);
  EXPECT_EQ(value_of("(-7) mod 3"), 2);
  EXPECT_EQ(value_of("i32(-2.7)"), -2);
  EXPECT_EQ(value_of("floor(-2.7)"), -3);
  EXPECT_EQ(value_of("f32(2.5)"), 2.5);
  EXPECT_EQ(value_of("bf16(1 + 3 / 256) - 1"), 4.0 / 256);  // between 2 and 4, the even one
  EXPECT_EQ(value_of("f16(1 + 3 / 2048) - 1"), 4.0 / 2048);
  EXPECT_EQ(value_of("rsqrt(16.0) + sqrt(9) + pow(2, 10) + abs(-3)"), 0.25 + 3 + 1024 + 3);
  EXPECT_EQ(value_of("exp(1) + log(2) + sin(3) + cos(4) + tanh(5)"),
            std::exp(1) + std::log(2) + std::sin(3) + std::cos(4) + std::tanh(5));
  EXPECT_EQ(value_of("min(x[0], 2) + max(x[1], 2.5)"), 4.5);
  EXPECT_EQ(value_of("(1 < 2) + (2 <= 2) + (2 > 2) + (2 >= 2) + (1 == 1) + (1 != 1) + (not 1)"), 4);
  EXPECT_EQ(value_of("-(-inf)"), INFINITY);
}

// As generated code has it (tests/codegen/checks_test.cpp).
TEST(Interpret, WholeNumbersEndAtTheEdgesOfTheirType) {
  EXPECT_EQ(value_of("i32(3e9)"), 2147483647);
  EXPECT_EQ(value_of("i32(-3e9)"), -2147483648.0);
  EXPECT_EQ(value_of("i8(300) + i8(-300)"), 127 - 128);
  EXPECT_EQ(value_of("i64(inf)"), 0x1p63);
  EXPECT_EQ(value_of("i32(inf - inf)"), -2147483648.0);
  EXPECT_EQ(value_of("i64(-inf) // (-1)"), -0x1p63);
  EXPECT_EQ(value_of("i64(-inf) mod (-1)"), 0);
  EXPECT_EQ(value_of("7 // (-2) + 10 * (7 mod (-2))"), -4 - 10);
  const auto stored = [](const std::string& dtype, double value) {
    return run("output y: " + dtype + "[1]\n{ [i] : 0 <= i < 1 }\ny[i] = x[i]", {}, {{"x", array_of({1}, {value})}},
               "y")
        .values[0];
  };
  EXPECT_EQ(stored("i32", 1e12), 2147483647);
  EXPECT_EQ(stored("i8", -1e12), -128);
  EXPECT_EQ(stored("i64", 3.9), 3);
  EXPECT_EQ(stored("i32", -3.9), -3);
  EXPECT_EQ(stored("i32", NAN), -2147483648.0);
  EXPECT_EQ(stored("f32", -3.9), -3.9);
}

TEST(Interpret, DividingByZeroIsAnError) {
  for (const char* expression : {"7 // (x[0] - 3)", "7 mod (x[0] - 3)"})
    EXPECT_THROW(value_of(expression), UserError) << expression;
}

TEST(Interpret, OnlyTheChosenSideIsEvaluated) {
  EXPECT_EQ(value_of("if(1 > 2, x[99], 5)"), 5);
  EXPECT_EQ(value_of("if(1 < 2, 6, x[99])"), 6);
  EXPECT_EQ(value_of("1 > 2 and x[99] > 0"), 0);
  EXPECT_EQ(value_of("1 < 2 or x[99] > 0"), 1);
}

TEST(Interpret, Reductions) {
  EXPECT_EQ(value_of("sum(i, i)"), 45);
  EXPECT_EQ(value_of("sum((i, j), i * j)"), 45 * 45);
  EXPECT_EQ(value_of("sum(i, sum(j, j, j <= i))"), 165);
  EXPECT_EQ(value_of("max(i, x[i mod 5] + i)"), 5 + 9);
  EXPECT_EQ(value_of("min(i, x[i mod 5])"), 1);
  EXPECT_EQ(value_of("argmax(i, x[i mod 5])"), 4);  // 4 and 9 attain it
  EXPECT_EQ(value_of("argmax(i, x[i mod 5], i != 4)"), 9);
  EXPECT_EQ(value_of("sum(i, 1, i > 20)"), 0);
  EXPECT_EQ(value_of("max(i, i, i > 20)"), -INFINITY);
  EXPECT_EQ(value_of("min(i, i, i > 20)"), INFINITY);
  EXPECT_EQ(value_of("argmax(i, i, i > 20)"), 0);
  EXPECT_EQ(value_of("argmax(i, -inf, i >= 3)"), 3);
  EXPECT_TRUE(std::isnan(value_of("max(i, if(i == 3, inf - inf, i))")));
}

TEST(Interpret, ConditionsThatDependOnDataBoundTheLoop) {
  EXPECT_EQ(value_of("sum(i, 1, i <= x[0])"), 4);
  EXPECT_EQ(value_of("sum(i, 1, x[0] >= i and i > x[1])"), 2);
  EXPECT_EQ(value_of("sum(i, 1, i < 2.5)"), 3);
  EXPECT_EQ(value_of("sum(i, 1, i == x[2])"), 1);
  EXPECT_EQ(value_of("sum(i, 1, i == 2.5)"), 0);
  EXPECT_EQ(value_of("sum(i, 1, i < log(-1))"), 0);
  EXPECT_EQ(value_of("sum((i, j), 1, i < 5 and j < x[i])"), 14);
  EXPECT_EQ(value_of("sum(i, x[i], i < 5 and i < x[0] and x[i] > 1)"), 7);
  // The first condition guards the access of the second, which must not be asked before.
  EXPECT_EQ(value_of("sum(i, 1, x[0] > 3 and i < x[99])"), 0);
  EXPECT_EQ(value_of("sum(i, 1, i > 20 and i < x[99])"), 0);
}

TEST(Interpret, LoopsDoNotVisitWhatAConditionExcludes) {
  // A million points in all, of which ten hold: with 1e12 points this test would not end.
  EXPECT_EQ(run("{ [t] : 0 <= t < 1000 }\n{ [s] : 0 <= s < 1000000000 }\ny[t] = sum(s, 1, s <= p[t])", {},
                {{"p", Array{{1000}, std::vector<double>(1000, 9)}}}, "y")
                .values[999],
            10);
  EXPECT_EQ(
      run("{ [t] : 0 <= t < 1000 }\n{ [s] : 0 <= s < 1000000000 }\ny[t] = sum(s, 1, s <= t and s < n)\nparameter n",
          {{{"n", 3}}, {}}, {}, "y")
          .values[999],
      3);
}

TEST(Interpret, DomainsOfAnyShape) {
  EXPECT_THAT(run("{ [i, j] : 0 <= j <= i < 4 }\ny[i, j] = 1 + i", {}, {}, "y").values,
              ElementsAre(1, 0, 0, 0, 2, 2, 0, 0, 3, 3, 3, 0, 4, 4, 4, 4));
  EXPECT_THAT(run("{ [i] : 0 <= i < 7 and i mod 3 = 1 }\ny[i] = i", {}, {}, "y").values, ElementsAre(0, 1, 0, 0, 4));
  EXPECT_THAT(run("{ [i] : 0 <= i < 2 or 4 <= i < 6 }\ny[i] = 1", {}, {}, "y").values, ElementsAre(1, 1, 0, 0, 1, 1));
  EXPECT_THAT(run("{ [k, i] : 0 <= i < 3 and i <= k < 3 }\ny[i] = sum(k, 1)", {}, {}, "y").values,
              ElementsAre(3, 2, 1));
  EXPECT_THAT(run("{ [i] : 0 <= i < 4 }\n{ [j] : 0 <= j < i and i >= 2 }\ny[i] = sum(j, 1)", {}, {}, "y").values,
              ElementsAre(0, 0, 2, 3));
  EXPECT_THAT(run("{ [i, j] : 0 <= i < 3 and 0 <= j < 2 }\ny[i] = 1 + i\nz[i, j] = y[i]", {}, {}, "z").values,
              ElementsAre(1, 1, 2, 2, 3, 3));
}

TEST(Interpret, RandomDomainsVisitExactlyTheirPoints) {
  std::mt19937 random(7);
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto constraint = [&] {
    const char* names[] = {"i", "j", "k"};
    const std::string a = names[pick(3)], b = names[pick(3)], n = std::to_string(pick(9));
    switch (pick(6)) {
      case 0: return a + " <= " + b;
      case 1: return a + " + " + b + " < 4 + " + n;
      case 2: return a + " mod 3 = " + std::to_string(pick(3));
      case 3: return "(" + a + " < " + n + " or " + b + " > 3)";
      case 4: return "2" + a + " >= " + b + " - " + n;
      default: return a + " != " + n;
    }
  };
  for (int round = 0; round < 60; ++round) {
    const std::string domain =
        "{ [i, j, k] : 0 <= i < 7 and 0 <= j < 6 and 0 <= k < 5 and " + constraint() + " and " + constraint() + " }";
    int64_t points = 0, pairs = 0;
    const isl::set set(isl_context(), domain);
    set.foreach_point([&](const isl::point&) { ++points; });
    project_dimensions(set, {"i", "j"}).foreach_point([&](const isl::point&) { ++pairs; });
    Arrays arrays = {{"n", Array::zeros({7, 6})}, {"m", Array::zeros({7, 6, 5})}};
    interpret(parse_kernel("inout n\ninout m\n" + domain +
                           "\nn[i, j] = n[i, j] + 100 + sum(k, 1)\nm[i, j, k] = m[i, j, k] + 1"),
              {}, arrays);
    double n = 0, m = 0;
    for (const double value : arrays["n"].values) n += value;
    for (const double value : arrays["m"].values) m += value;
    EXPECT_EQ(n, 100.0 * static_cast<double>(pairs) + static_cast<double>(points)) << domain;
    EXPECT_EQ(m, static_cast<double>(points)) << domain;
    EXPECT_LE(*std::ranges::max_element(arrays["m"].values), 1) << domain;
  }
}

TEST(Interpret, NeighboursInOneLoopWithDifferentDomains) {
  // The loop over i covers both domains; each instruction keeps its own.
  const char* text =
      "{ [i, j] : 0 <= i < 6 and 3 <= j < 5 and j <= i }\n{ [k] : 0 <= k < 2 }\n"
      "a[i, j] = 1 {id=a}\nb[i, k] = 2\n";
  Arrays arrays;
  interpret(parse_kernel(text), {}, arrays);
  double a = 0, b = 0;
  for (const double value : arrays.at("a").values) a += value;
  for (const double value : arrays.at("b").values) b += value;
  EXPECT_EQ(a, 5);      // i = 3: 1, i = 4, 5: 2 each
  EXPECT_EQ(b, 2 * 6);  // the projection onto i is 3 <= i < 6
}

TEST(Interpret, ConditionsOfInstructions) {
  EXPECT_THAT(run("{ [i] : 0 <= i < 4 }\ny[i] = 1\ny[i] = 7  {if=i mod 2 == 1 and x[i] > 0}", {},
                  {{"x", array_of({4}, {1, 1, 1, 0})}}, "y")
                  .values,
              ElementsAre(1, 7, 1, 1));
}

// What an index was for the same inames is remembered: in fewer places than these have values, and not where the kernel
// writes what it is read from.
TEST(Interpret, IndicesThatAreNotLinear) {
  const Array x = random_array({7}, 1);
  double wanted = 0;
  for (int i = 0; i < 3; ++i)
    for (int64_t pass = 0; pass < 2; ++pass)
      for (int j = 0; j < 1500; ++j) wanted += x.values[static_cast<size_t>((i * 1500 + j) % 7)];
  const Array y =
      run("{ [i, p, j] : 0 <= i < 3 and 0 <= p < 2 and 0 <= j < 1500 }\n"
          "y[] = sum((i, p, j), x[(i * 1500 + j) mod 7])",
          {}, {{"x", x}}, "y");
  EXPECT_NEAR(y.values[0], wanted, 1e-9);
  const char* text =
      "{ [j, i] : 0 <= j < 3 and 0 <= i < 2 }\nat[0] = j  {id=set, inames=j}\n"
      "y[j, i] = x[at[0 * i]]  {dep=set}";
  EXPECT_THAT(run(text, {}, {{"x", array_of({3}, {5, 6, 7})}, {"at", Array::zeros({1})}}, "y").values,
              ElementsAre(5, 5, 6, 6, 7, 7));
}

TEST(Interpret, OutOfBoundsNamesInstructionTensorAndIndex) {
  const char* text = "kernel k\n{ [i] : 0 <= i < n }\ny[i] = x[i + 1]  {id=shift}";
  EXPECT_EQ(
      error_of([&] {
        run(text, {{{"n", 3}}, {}}, {{"x", Array::zeros({3})}}, "y");
      }),
      "[k] instruction \"shift\" reads x[3] outside its shape [3] (dimension 0: index 3, allowed 0 <= index < 3)");
  EXPECT_EQ(
      error_of([&] {
        run(text, {{{"n", 3}}, {}}, {{"x", Array::zeros({4})}, {"y", Array::zeros({2})}}, "y");
      }),
      "[k] instruction \"shift\" writes y[2] outside its shape [2] (dimension 0: index 2, allowed 0 <= index < 2)");
  EXPECT_EQ(
      error_of([&] {
        run("y[] = x[ids[0], 1]", {}, {{"x", Array::zeros({2, 2})}, {"ids", array_of({1}, {-1})}}, "y");
      }),
      "[kernel] instruction \"insn0\" reads x[-1, 1] outside its shape [2, 2] (dimension 0: index -1, allowed 0 <= "
      "index < 2)");
  EXPECT_EQ(error_of([&] {
              run("y[] = x[ids[0]]", {}, {{"x", Array::zeros({2})}, {"ids", array_of({1}, {0.5})}}, "y");
            }),
            "[kernel] instruction \"insn0\": an index is 0.5, wanted an integer");
  EXPECT_EQ(error_of([&] {
              run("y[] = 1 // x[0]", {}, {{"x", Array::zeros({2})}}, "y");
            }),
            "[kernel] instruction \"insn0\": floor division by zero");
  EXPECT_EQ(error_of([&] {
              run("y[] = x[0]", {}, {{"x", Array::zeros({2, 2})}}, "y");
            }),
            "[kernel] instruction \"insn0\": x[0] has 1 subscripts, the tensor has 2 dimensions");
}

TEST(Interpret, InputsAreChecked) {
  const char* text =
      "kernel k\nparameter T dynamic\ninput x: f32[T, H]\n{ [t, h] : 0 <= t < T and 0 <= h < H }\ny[t, h] = x[t, h] + "
      "eps";
  auto message = [&](Arrays arrays, Binding binding) {
    return error_of([&] { run(text, binding, std::move(arrays), "y"); });
  };
  const Binding binding{{{"T", 2}, {"H", 3}}, {}};
  EXPECT_EQ(message({}, binding), "[k] the input \"x\" is not given");
  EXPECT_EQ(message({{"x", Array::zeros({2, 3})}}, {{{"T", 2}}, {}}), "[k] the parameter \"H\" has no value");
  EXPECT_EQ(message({{"x", Array::zeros({2, 4})}}, binding), "[k] x has the shape [2, 4], wanted [2, 3]");
  EXPECT_EQ(message({{"x", Array::zeros({1, 3})}}, binding), "[k] x has the shape [1, 3], wanted [2, 3]");
  EXPECT_EQ(message({{"x", array_of({2, 3}, {1})}}, binding), "[k] x has 1 values, its shape [2, 3] wants 6");
  EXPECT_EQ(message({{"x", Array::zeros({2, 3})}}, binding), "[k] instruction \"insn0\": unknown name \"eps\"");
  EXPECT_EQ(
      error_of([&] { run("kernel k\n{ [i, j] : 0 <= i, j < 4 }\ny[i] = j", {}, {}, "y"); }),
      "[k] instruction \"insn0\" uses the iname \"j\", which is neither in its target nor reduced over: name it with "
      "{inames=j} or reduce over it");
  EXPECT_EQ(error_of([&] { run("kernel k\n{ [i, j] : 0 <= i, j < 4 }\ny[i] = sum(i, i)", {}, {}, "y"); }),
            "[k] instruction \"insn0\" reduces over the iname \"i\", which has a value there already");
  EXPECT_EQ(error_of([&] { run("kernel k\nopaque\ny[0] = x[0]", {}, {}, "y"); }),
            "[k] is opaque: it states what it touches, not what it computes");
}

TEST(Interpret, ArraysMayHaveTheLargestExtentOfADynamicParameter) {
  const char* text = "parameter T dynamic\ninput x: f32[T, 2]\noutput y: f32[T]\n{ [t] : 0 <= t < T }\ny[t] = x[t, 1]";
  const Array y =
      run(text, {{{"T", 1}}, {}}, {{"x", array_of({3, 2}, {1, 2, 3, 4, 5, 6})}, {"y", array_of({3}, {7, 8, 9})}}, "y");
  EXPECT_THAT(y.values, ElementsAre(2, 8, 9));
}

TEST(Interpret, TemporariesAreNotZero) {
  const Array y = run("{ [i] : 0 <= i < 2 }\ntemporary s: f32[4]\ns[i] = 1\ny[] = s[3]", {}, {}, "y");
  EXPECT_TRUE(std::isnan(y.values[0]));
  Arrays arrays;
  interpret(parse_kernel("s[0] = 1\ny[] = s[0]"), {}, arrays);
  EXPECT_FALSE(arrays.contains("s"));
}

// ---- operators, against plain C++ --------------------------------------------------------------

TEST(Operators, RmsNorm) {
  const int64_t T = 3, H = 5;
  const Array x = random_array({T, H}, 1), weight = random_array({H}, 2);
  const Array y = run(kRmsNorm, {{{"T", T}, {"H", H}}, {{"eps", 0.5}}}, {{"x", x}, {"weight", weight}}, "y");
  for (int64_t t = 0; t < T; ++t) {
    double squares = 0;
    for (int64_t h = 0; h < H; ++h) squares += x.values[t * H + h] * x.values[t * H + h];
    for (int64_t h = 0; h < H; ++h)
      EXPECT_NEAR(y.values[t * H + h], x.values[t * H + h] / std::sqrt(squares / H + 0.5) * weight.values[h], 1e-12);
  }
}

TEST(Operators, Embedding) {
  EXPECT_THAT(run(kEmbedding, {{{"T", 2}, {"H", 2}, {"V", 3}}, {}},
                  {{"ids", array_of({2}, {2, 0})}, {"table", array_of({3, 2}, {1, 2, 3, 4, 5, 6})}}, "y")
                  .values,
              ElementsAre(5, 6, 1, 2));
}

TEST(Operators, Rope) {
  const int64_t T = 2, N = 2, D = 3, S = 7;
  const Array x = random_array({T, N, 2 * D}, 1), c = random_array({S, D}, 2), s = random_array({S, D}, 3);
  const double position[] = {4, 6};
  const Array y = run(kRope, {{{"T", T}, {"N", N}, {"D", D}, {"S", S}}, {}},
                      {{"x", x}, {"cosine", c}, {"sine", s}, {"position", array_of({T}, {4, 6})}}, "y");
  for (int64_t t = 0; t < T; ++t)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t d = 0; d < D; ++d) {
        const int64_t low = (t * N + n) * 2 * D + d, at = static_cast<int64_t>(position[t]) * D + d;
        EXPECT_DOUBLE_EQ(y.values[low], x.values[low] * c.values[at] - x.values[low + D] * s.values[at]);
        EXPECT_DOUBLE_EQ(y.values[low + D], x.values[low + D] * c.values[at] + x.values[low] * s.values[at]);
      }
}

TEST(Operators, PagedAttention) {
  const int64_t T = 3, Q = 4, G = 2, D = 2, P = 2, S = 6, pages = 5;
  const Array q = random_array({T, Q, D}, 1), k = random_array({pages, P, Q / G, D}, 2),
              v = random_array({pages, P, Q / G, D}, 3);
  const std::vector<double> request = {1, 0, 1}, position = {3, 0, 5}, table = {4, 0, 1, 2, 3, 0};
  const Array y =
      run(kPagedAttention,
          {{{"T", T}, {"Q", Q}, {"G", G}, {"D", D}, {"P", P}, {"S", S}, {"R", 2}, {"pages", pages}, {"table", 3}}, {}},
          {{"q", q},
           {"k", k},
           {"v", v},
           {"request", array_of({T}, request)},
           {"position", array_of({T}, position)},
           {"page_table", array_of({2, 3}, table)}},
          "y");
  for (int64_t t = 0; t < T; ++t)
    for (int64_t h = 0; h < Q; ++h) {
      double total = 0, result[D] = {};
      for (int64_t s = 0; s <= static_cast<int64_t>(position[t]); ++s) {
        const auto page = static_cast<int64_t>(table[static_cast<size_t>(request[t]) * 3 + s / P]);
        const int64_t row = ((page * P + s % P) * (Q / G) + h / G) * D;
        double score = 0;
        for (int64_t d = 0; d < D; ++d) score += q.values[(t * Q + h) * D + d] * k.values[row + d];
        const double weight = std::exp(0.5 * score);
        total += weight;
        for (int64_t d = 0; d < D; ++d) result[d] += weight * v.values[row + d];
      }
      for (int64_t d = 0; d < D; ++d) EXPECT_NEAR(y.values[(t * Q + h) * D + d], result[d] / total, 1e-12);
    }
}

}  // namespace
}  // namespace megalith::loop
