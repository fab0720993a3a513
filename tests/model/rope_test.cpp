// RoPE against values computed with 50 decimal digits.
#include "megalith/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/scratch.h"

namespace megalith {
namespace {

struct Row {
  int64_t position;
  int64_t pair;
  double frequency;
  double cos;
  double sin;
};

// rope_theta 1e6, head_dim 128, no scaling.
constexpr Row kQwen3[] = {
    {0, 5, 0.33982083289425596, 1, 0},
    {1, 0, 1.0, 0.540302306, 0.841470985},
    {1, 32, 0.001, 0.9999995, 0.000999999833},
    {7, 3, 0.5232991146814947, -0.867072311, -0.498182304},
    {1000, 1, 0.8058421877614819, -0.0236699049, 0.999719829},
    {4097, 17, 0.025482967479793464, -0.744400201, -0.667733735},
    {40959, 2, 0.6493816315762113, 0.268614027, 0.963247894},
    {40959, 63, 1.2409377607517195e-06, 0.998708557, 0.0508056876},
    {40959, 40, 0.00017782794100389227, 0.53990732, 0.841724471},
};
// rope_theta 5e5, head_dim 64, llama3 scaling by 32: pairs 0-14 are kept, 15-17 mixed, the rest slowed.
constexpr Row kLlama[] = {
    {0, 5, 0.12868737343265052, 1, 0},
    {1, 0, 1.0, 0.540302306, 0.841470985},
    {1, 16, 0.0004295567965593682, 0.999999908, 0.000429556783},
    {7, 3, 0.2922278225730151, -0.457159184, 0.889384889},
    {1000, 1, 0.6636012376960885, -0.748374879, -0.663275991},
    {4097, 17, 9.708287802627673e-05, 0.921935414, 0.387343635},
    {40959, 2, 0.44036660267178046, -0.460485227, -0.887667368},
    {40959, 31, 9.41830672543491e-08, 0.999992559, 0.00385763468},
    {40959, 16, 0.0004295567965593682, 0.310251177, -0.95065462},
};

void expect_rows(const char* model, std::span<const Row> rows) {
  const ModelConfig config = config_read(std::string(MEGALITH_SOURCE_DIR "/models/shapes/") + model);
  const std::vector<double> frequencies = rope_frequencies(config);
  const RopeTable table = rope_table(config, 40960);
  ASSERT_EQ(table.half_dim, config.head_dim / 2);
  ASSERT_EQ(table.cos.size(), static_cast<size_t>(40960 * table.half_dim));
  ASSERT_EQ(table.sin.size(), table.cos.size());
  for (const Row& row : rows) {
    EXPECT_NEAR(frequencies[row.pair] / row.frequency, 1, 1e-14) << row.pair;
    EXPECT_NEAR(table.cos[row.position * table.half_dim + row.pair], row.cos, 1e-7) << row.position << " " << row.pair;
    EXPECT_NEAR(table.sin[row.position * table.half_dim + row.pair], row.sin, 1e-7) << row.position << " " << row.pair;
  }
}

TEST(RopeTest, Plain) { expect_rows("Qwen3-0.6B", kQwen3); }
TEST(RopeTest, Llama3Scaling) { expect_rows("Llama-3.2-1B", kLlama); }

TEST(RopeTest, RefusesTooLongAContext) {
  const ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-0.6B");
  for (int64_t positions : {int64_t{0}, int64_t{-1}, int64_t{40961}})
    EXPECT_THAT(user_error([&] { rope_table(config, positions); }),
                testing::HasSubstr("positions was asked for, this model has 1 to 40960"));
}

}  // namespace
}  // namespace megalith
