// Weights in int8: how far an element may be off, and what that does to a model's judgement of a text.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "megalith/engine/engine.h"
#include "megalith/engine/quantize.h"
#include "megalith/model/tokenizer.h"
#include "support/configurations.h"

namespace megalith::engine {
namespace {

TEST(Quantize, ElementsAreWithinHalfAScale) {
  constexpr int64_t kRows = 5, kColumns = 77, kGroup = 32, kGroups = 3;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> from(kRows * kColumns);
  for (float& value : from) value = normal(random);
  for (int64_t c = 0; c < kColumns; ++c) from[2 * kColumns + c] = 0;  // a row of zeros
  from[3 * kColumns + 40] = -1000;                                    // alone in its group
  std::vector<int8_t> to(from.size());
  std::vector<uint16_t> scale(kRows * kGroups);
  // Rows in two turns, as threads take them.
  quantize_rows(to.data(), scale.data(), from.data(), DType::f32, kColumns, kGroup, 0, 2);
  quantize_rows(to.data(), scale.data(), from.data(), DType::f32, kColumns, kGroup, 2, kRows);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c) {
      const float s = bf16_to_float(scale[static_cast<size_t>(r * kGroups + c / kGroup)]);
      const auto i = static_cast<size_t>(r * kColumns + c);
      // A scale that bf16 rounded down by up to 1/512 leaves the largest element 127/512 further off, which is less.
      EXPECT_LE(std::abs(from[i] - s * static_cast<float>(to[i])), 0.501f * s) << r << ", " << c;
    }
  EXPECT_EQ(to[3 * kColumns + 40], -127);
  EXPECT_EQ(scale[2 * kGroups], 0);
}

// In the manner of the books that the model knows, but from none of them.
constexpr const char* kText =
    "Once upon a time there was a miller who had three daughters, and the youngest of them was so quick with her "
    "needle that people came from far away to see her work. One evening, when the wind was crying round the house, an "
    "old woman knocked at the door and asked for a bed. \"Come in,\" said the girl, \"and sit down by the fire.\" The "
    "old woman ate her supper and said nothing, but in the morning she took a golden thimble out of her pocket and "
    "laid it on the table. \"Whoever wears this,\" said she, \"shall never want for bread; but you must not let it "
    "fall "
    "into the water.\" The girl thanked her, and put it on her finger, and went down to the river to wash the wool.";

double perplexity(int64_t quant_columns) {
  const std::string folder = MEGALITH_SOURCE_DIR "/models/storyteller";
  EngineOptions options{.num_workers = 1};  // whose bits are those of any number, and nobody waits for another
  options.decoder.max_seq_len = 256;
  options.decoder.quant_columns = quant_columns;
  Engine engine(folder, options);
  const std::vector<int> tokens = Tokenizer::open(folder).encode(kText);
  const int64_t vocab = engine.config().vocab_size;
  double nats = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    engine.generate({{.prompt = {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i)},
                      .max_new_tokens = 1,
                      .ignore_stop_tokens = true}});
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v) total += std::exp(static_cast<double>(engine.logits()[v]));
    nats += std::log(total) - static_cast<double>(engine.logits()[tokens[i]]);
  }
  return std::exp(nats / static_cast<double>(tokens.size() - 1));
}

TEST(Quantize, TheStorytellersPerplexityIsWithinAPercent) {
  const double plain = perplexity(0);
  EXPECT_GT(plain, 5);
  EXPECT_LT(plain, 100) << "the text is not one that the model can judge";
  // The fewer scales, the further off is what they scale.
  for (const int64_t columns : test::some_of<int64_t>({128}, {32})) {
    const double quantized = perplexity(columns);
    printf("perplexity %.3f as it is, %.3f in int8 with %d columns to a scale\n", plain, quantized,
           static_cast<int>(columns));
    EXPECT_NE(quantized, plain);
    EXPECT_NEAR(quantized, plain, 0.01 * plain) << columns;
  }
}

}  // namespace
}  // namespace megalith::engine
