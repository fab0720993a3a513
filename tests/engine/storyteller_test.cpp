// The bundled model against transformers: tests/golden/storyteller.json was written by tools/make_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megalith/base/file.h"
#include "megalith/engine/engine.h"
#include "megalith/model/tokenizer.h"

namespace megalith {
namespace {

const std::string kModel = MEGALITH_SOURCE_DIR "/models/storyteller";
const std::string kGolden = MEGALITH_SOURCE_DIR "/tests/golden/storyteller";

TEST(Storyteller, WritesTheTokensThatTransformersWrites) {
  const auto golden = nlohmann::json::parse(file_read(kGolden + ".json"));
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  const Tokenizer tokenizer = Tokenizer::open(kModel);
  engine::EngineOptions options{.num_workers = 2};
  engine::Engine engine(kModel, options);

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

}  // namespace
}  // namespace megalith
