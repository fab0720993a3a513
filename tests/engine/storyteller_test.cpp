// The bundled model against transformers: tests/golden/storyteller.json was written by tools/make_goldens.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "megalith/base/file.h"
#include "megalith/engine/engine.h"
#include "megalith/model/tokenizer.h"
#include "support/models.h"

namespace megalith {
namespace {

const std::string kGolden = MEGALITH_SOURCE_DIR "/tests/golden/storyteller";

TEST(Storyteller, WritesTheTokensThatTransformersWrites) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", "f32");
  const test::EnvironmentVariable optimize("MEGALITH_OPTIMIZE", "full");  // as users have it
  const auto golden = nlohmann::json::parse(file_read(kGolden + ".json"));
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  const Tokenizer tokenizer = Tokenizer::open(test::kStoryteller);
  engine::EngineOptions options{.num_workers = 2};
  engine::Engine engine(test::kStoryteller, options);

  int index = 0;
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = prompt.at("ids").get<std::vector<int>>();
    EXPECT_EQ(tokenizer.encode(prompt.at("text").get<std::string>(), false), ids);
    engine.generate({{.prompt = ids, .max_new_tokens = 1, .ignore_stop_tokens = true}});
    const WeightTensor& wanted = logits.get(fmt::format("prompt.{}", index++));
    double worst = 0;
    for (int64_t v = 0; v < engine.config().vocab_size; ++v)
      worst = std::max(worst, std::abs(engine.logits()[v] - element_load(wanted.bytes.data(), wanted.dtype, v)));
    EXPECT_LT(worst, 2e-2) << "logits after \"" << prompt.at("text") << "\"";

    const auto greedy = prompt.at("greedy").get<std::vector<int>>();
    ASSERT_EQ(greedy.size(), 64u);
    const auto found = engine.generate({{.prompt = ids, .max_new_tokens = 64, .ignore_stop_tokens = true}});
    EXPECT_EQ(found.tokens[0], greedy) << "after \"" << prompt.at("text") << "\"";
  }
  EXPECT_EQ(index, 8);
}

// With activations rounded to bf16: the same tokens as far as the two likeliest are further apart than that explains.
TEST(Storyteller, WritesThemWithRoundedActivationsUnlessTwoAreAlike) {
  const auto golden = nlohmann::json::parse(file_read(kGolden + ".json"));
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  constexpr double kApart = 5e-2;  // of logits that are up to 20
  const engine::EngineOptions options{.num_workers = 2};
  const auto engine_of = [&](const char* products) {
    const test::EnvironmentVariable variable("MEGALITH_PRODUCTS", products);
    return std::make_unique<engine::Engine>(test::kStoryteller, options);
  };
  const auto exact = engine_of("f32"), rounding = engine_of("bf16");
  const auto vocab = static_cast<size_t>(exact->config().vocab_size);
  int index = 0, equal = 0;
  for (const auto& prompt : golden.at("prompts")) {
    auto text = prompt.at("ids").get<std::vector<int>>();
    rounding->generate({{.prompt = text, .max_new_tokens = 1, .ignore_stop_tokens = true}});
    const WeightTensor& wanted = logits.get(fmt::format("prompt.{}", index++));
    double worst = 0;
    for (size_t v = 0; v < vocab; ++v)
      worst = std::max(worst, std::abs(rounding->logits()[v] -
                                       element_load(wanted.bytes.data(), wanted.dtype, static_cast<int64_t>(v))));
    EXPECT_LT(worst, kApart) << "logits after " << prompt.at("text");
    EXPECT_GT(worst, 1e-4) << "nothing was rounded";

    const auto greedy = prompt.at("greedy").get<std::vector<int>>();
    const auto found =
        rounding->generate({{.prompt = text, .max_new_tokens = 64, .ignore_stop_tokens = true}}).tokens[0];
    const auto parts = std::ranges::mismatch(found, greedy);
    if (parts.in2 == greedy.end()) {
      ++equal;
      continue;
    }
    text.insert(text.end(), greedy.begin(), parts.in2);
    exact->generate({{.prompt = text, .max_new_tokens = 1, .ignore_stop_tokens = true}});
    const float* const after = exact->logits();
    EXPECT_LT(after[*parts.in2] - after[*parts.in1], 2 * kApart) << "after " << prompt.at("text");
  }
  EXPECT_GE(equal, 6);
}

}  // namespace
}  // namespace megalith
