// The functions and conversions that bodies on a CPU use, against libm in double and against base/dtype.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "megalith/base/dtype.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/cpu/reduce.h"

namespace megalith::kernels {
namespace {

constexpr float kNan = __builtin_nanf("");

float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Error in units in the last place of the true value.
double error_in_units(float got, double want) {
  const auto nearest = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : INFINITY;
  const double unit = std::nextafter(std::abs(nearest), INFINITY) - std::abs(nearest);
  return std::abs(static_cast<double>(got) - want) / unit;
}

struct Case {
  const char* name;
  std::function<float(float)> ours;
  std::function<double(double)> theirs;
  float low, high;
  double units;  // promised at the top of prelude.h
};

TEST(Prelude, FunctionsAreAsAccurateAsPromised) {
  const Case cases[] = {
      {"exp", [](float x) { return exp(x); }, [](double x) { return std::exp(x); }, -INFINITY, INFINITY, 1.1},
      {"log", [](float x) { return log(x); }, [](double x) { return std::log(x); }, -INFINITY, INFINITY, 0.9},
      {"tanh", [](float x) { return tanh(x); }, [](double x) { return std::tanh(x); }, -INFINITY, INFINITY, 1.4},
      {"sin", [](float x) { return sin(x); }, [](double x) { return std::sin(x); }, -1e9f, 1e9f, 1.6},
      {"cos", [](float x) { return cos(x); }, [](double x) { return std::cos(x); }, -1e9f, 1e9f, 1.6},
      {"rsqrt", [](float x) { return rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }, 0, INFINITY, 1.6},
      {"pow 2.5", [](float x) { return pow(x, 2.5f); }, [](double x) { return std::pow(x, 2.5); }, 0, INFINITY, 0.6},
      {"pow -3", [](float x) { return pow(x, -3); }, [](double x) { return std::pow(x, -3); }, -INFINITY, INFINITY,
       0.6},
  };
  for (const Case& one : cases) {
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 100003) {
      const float x = float_of(static_cast<uint32_t>(bits));
      if (!(x >= one.low && x <= one.high)) continue;
      const double error = error_in_units(one.ours(x), one.theirs(static_cast<double>(x)));
      if (error > worst) {
        worst = error;
        at = x;
      }
    }
    EXPECT_LE(worst, one.units) << one.name << " at " << at;
  }
}

TEST(Prelude, FunctionsAreSaneAtTheEdges) {
  const float inf = INFINITY;
  EXPECT_EQ(exp(-inf), 0);
  EXPECT_EQ(exp(inf), inf);
  EXPECT_EQ(exp(0.0f), 1);
  EXPECT_TRUE(std::isnan(exp(kNan)));
  EXPECT_EQ(log(0.0f), -inf);
  EXPECT_EQ(log(inf), inf);
  EXPECT_TRUE(std::isnan(log(-1.0f)));
  EXPECT_TRUE(std::isnan(log(kNan)));
  EXPECT_EQ(tanh(inf), 1);
  EXPECT_EQ(tanh(-inf), -1);
  EXPECT_TRUE(std::isnan(tanh(kNan)));
  EXPECT_TRUE(std::isnan(sin(inf)));
  EXPECT_TRUE(std::isnan(cos(kNan)));
  EXPECT_EQ(pow(0.0f, 0.0f), 1);
  EXPECT_EQ(pow(0.0f, 2.0f), 0);
  EXPECT_EQ(pow(0.0f, -1.0f), inf);
  EXPECT_EQ(pow(-2.0f, 3.0f), -8);
  EXPECT_TRUE(std::isnan(pow(-2.0f, 0.5f)));
  EXPECT_EQ(max(-inf, 1.0f), 1);
}

TEST(Prelude, ConvertsLikeTheHost) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    const float f16_want = f16_to_float(narrow), bf16_want = bf16_to_float(narrow);
    const float f16_got = to_f32(f16{narrow}), bf16_got = to_f32(bf16{narrow});
    ASSERT_TRUE(f16_got == f16_want || (std::isnan(f16_got) && std::isnan(f16_want))) << bits;
    ASSERT_TRUE(bf16_got == bf16_want || (std::isnan(bf16_got) && std::isnan(bf16_want))) << bits;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    // Small exponents more often than not: where f16 rounds to subnormals and to infinity.
    uint32_t bits = random();
    if (i % 2) bits = (bits & 0x80ffffff) | ((0x60 + bits % 0x30) << 23);
    const float x = float_of(bits);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(to_f32(to_bf16(x))));
      ASSERT_TRUE(std::isnan(to_f32(to_f16(x))));
    } else {
      ASSERT_EQ(to_bf16(x).bits, bf16_from_float(x)) << x;
      ASSERT_EQ(to_f16(x).bits, f16_from_float(x)) << x;
    }
  }
}

TEST(Prelude, DividesDownwards) {
  for (i64 a = -20; a <= 20; ++a)
    for (i64 b = 1; b <= 7; ++b) {
      EXPECT_EQ(floord(a, b), static_cast<i64>(std::floor(static_cast<double>(a) / static_cast<double>(b))));
      EXPECT_EQ(mod(a, b), a - floord(a, b) * b);
    }
}

TEST(Reduce, AddsInLanesAndThenInATree) {
  std::vector<float> x(16 * 5 + 3);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 1e3f;
  for (size_t n = 0; n <= x.size(); ++n) {
    float lane[16] = {};
    for (size_t i = 0; i < n; ++i) lane[i % 16] += x[i];
    for (int half = 8; half; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    EXPECT_EQ(sum_in_lanes(0, static_cast<i64>(n), [&](f32 acc, i64 k) { return acc + x[static_cast<size_t>(k)]; }),
              lane[0]);
  }
  EXPECT_EQ(max_in_lanes(0, 0, [](f32 acc, i64) { return acc; }), -INFINITY);
}

TEST(Reduce, TakesTheLowestOfEqualMaxima) {
  const int x[] = {3, 7, 7, 1, 7};
  EXPECT_EQ(argmax(0, 5, [&](i64 k) { return x[k]; }), 1);
  EXPECT_EQ(argmax(2, 5, [&](i64 k) { return x[k]; }), 2);
  EXPECT_EQ(argmax(3, 3, [&](i64 k) { return x[k]; }), 0);
  EXPECT_EQ(argmax(
                0, 5, [&](i64 k) { return x[k]; }, [&](i64 k) { return k >= 2 && k <= 3; }),
            2);
  EXPECT_EQ(argmax(
                0, 5, [&](i64 k) { return x[k]; }, [](i64) { return false; }),
            0);
}

}  // namespace
}  // namespace megalith::kernels
