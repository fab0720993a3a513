#include "megalith/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"

namespace megalith {
namespace {

// A 16-bit float by its definition: sign, exponent, fraction.
double decode(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

struct Format {
  const char* name;
  int exponent_bits, fraction_bits;
  uint16_t (*from_float)(float);
  float (*to_float)(uint16_t);
  double decode(uint16_t bits) const { return ::megalith::decode(bits, exponent_bits, fraction_bits); }
};
void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class Float16 : public testing::TestWithParam<Format> {};

TEST_P(Float16, EveryPatternDecodes) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 65536; ++bits) {
    const double want = format.decode(static_cast<uint16_t>(bits));
    const double got = format.to_float(static_cast<uint16_t>(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST_P(Float16, EveryPatternSurvivesARoundTrip) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 65536; ++bits) {
    const float value = format.to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(format.to_float(format.from_float(value)))) << bits;
    } else {
      ASSERT_EQ(format.from_float(value), bits);
    }
  }
}

// Between each two neighbours: just below the middle rounds down, just above rounds up, the middle to the even one.
TEST_P(Float16, RoundsToNearestEven) {
  const Format& format = GetParam();
  const int infinity = ((1 << format.exponent_bits) - 1) << format.fraction_bits;
  for (int low = 0; low < infinity; ++low) {
    const int high = low + 1;
    // The number after the largest finite one would be where infinity stands.
    const double a = format.decode(static_cast<uint16_t>(low));
    const double b = high == infinity ? a + (a - format.decode(static_cast<uint16_t>(low - 1)))
                                      : format.decode(static_cast<uint16_t>(high));
    const float middle = static_cast<float>((a + b) / 2);  // exact: f32 has more fraction bits
    for (int sign : {0, 0x8000}) {
      const float s = sign ? -1.0f : 1.0f;
      const int even = low % 2 == 0 ? low : high;
      ASSERT_EQ(format.from_float(s * middle), sign | even) << low;
      ASSERT_EQ(format.from_float(s * std::nextafter(middle, 0.0f)), sign | low) << low;
      ASSERT_EQ(format.from_float(s * std::nextafter(middle, std::numeric_limits<float>::infinity())), sign | high)
          << low;
    }
  }
}

TEST_P(Float16, ExtremesOfF32) {
  const Format& format = GetParam();
  const float huge = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isinf(format.to_float(format.from_float(huge))));
  EXPECT_EQ(format.from_float(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(format.from_float(-std::numeric_limits<float>::denorm_min()), 0x8000);
  // A NaN whose payload lies in the low bits must not become infinity.
  EXPECT_TRUE(std::isnan(format.to_float(format.from_float(std::bit_cast<float>(0x7f800001u)))));
}

INSTANTIATE_TEST_SUITE_P(All, Float16,
                         testing::Values(Format{"bf16", 8, 7, bf16_from_float, bf16_to_float},
                                         Format{"f16", 5, 10, f16_from_float, f16_to_float}),
                         [](const auto& format) { return format.param.name; });

TEST(DType, NamesRoundTrip) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::i32, DType::i64})
    EXPECT_EQ(dtype_parse(dtype_name(dtype)), dtype);
  EXPECT_EQ(test::message_of<UserError>([] { dtype_parse("float32"); }),
            "unknown dtype \"float32\": known are bf16, f16, f32, i8, i32, i64");
}

TEST(DType, EpsilonIsHalfAUnitInTheLastPlace) {
  EXPECT_EQ(dtype_epsilon(DType::bf16), std::ldexp(1, -8));
  EXPECT_EQ(dtype_epsilon(DType::f16), std::ldexp(1, -11));
  EXPECT_EQ(dtype_epsilon(DType::f32), std::ldexp(1, -24));
  EXPECT_EQ(dtype_epsilon(DType::i32), 0);
  EXPECT_TRUE(dtype_is_float(DType::f16));
  EXPECT_FALSE(dtype_is_float(DType::i64));
}

TEST(DType, ElementsLoadWhatWasStored) {
  for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::i32, DType::i64}) {
    std::vector<char> data(static_cast<size_t>(3 * dtype_bytes(dtype)), 0x55);
    element_store(data.data(), dtype, 0, 1);
    element_store(data.data(), dtype, 2, 3);
    element_store(data.data(), dtype, 1, -2);
    EXPECT_EQ(element_load(data.data(), dtype, 0), 1) << dtype_name(dtype);
    EXPECT_EQ(element_load(data.data(), dtype, 1), -2) << dtype_name(dtype);
    EXPECT_EQ(element_load(data.data(), dtype, 2), 3) << dtype_name(dtype);
  }
}

// double -> float -> 16 bits rounds twice; this is where it differs from rounding once, and it is meant to.
TEST(DType, StoringADoubleRoundsThroughF32) {
  uint16_t bits;
  const double just_above_middle = 1 + std::ldexp(1, -8) + std::ldexp(1, -40);
  element_store(&bits, DType::bf16, 0, just_above_middle);
  EXPECT_EQ(bf16_to_float(bits), 1.0f);
}

}  // namespace
}  // namespace megalith
