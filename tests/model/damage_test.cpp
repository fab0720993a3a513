// Files with random damage: each reads, or ends in a UserError; nothing else may happen. Worth most under `asan`.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/model/chat_template.h"
#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"
#include "megalith/model/tokenizer.h"
#include "megalith/model/utf8.h"
#include "model/scratch.h"

namespace megalith {
namespace {

constexpr unsigned kSeed = 7;

// A few bytes changed, removed, doubled or swapped for what means something in JSON.
std::string damaged(std::string text, std::mt19937& random) {
  static const std::string kTokens[] = {"\"", "{",    "}",       "[",    "]",
                                        ",",  ":",    "null",    "true", "-1",
                                        "0",  "1e9",  "\\u0000", "\xFF", "99999999999999999999",
                                        "[[", "\"\"", "\\"};
  for (int count = 1 + static_cast<int>(random() % 3); count > 0 && !text.empty(); --count) {
    const size_t place = random() % text.size();
    const size_t length = std::min<size_t>(1 + random() % 8, text.size() - place);
    switch (random() % 5) {
      case 0: text[place] = static_cast<char>(random()); break;
      case 1: text.erase(place, length); break;
      case 2: text.insert(place, text.substr(place, length)); break;
      case 3: text.replace(place, length, kTokens[random() % std::size(kTokens)]); break;
      case 4: text.resize(place); break;
    }
  }
  return text;
}

class DamageTest : public ScratchTest {
 protected:
  std::mt19937 random_{kSeed};
};

TEST_F(DamageTest, Config) {
  const std::string good = file_read(MEGALITH_SOURCE_DIR "/models/shapes/Llama-3.2-1B/config.json");
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string bad = damaged(good, random_);
    refused += !user_error([&] { config_parse(bad, "config.json"); }).empty();
    user_error([&] { generation_config_parse(bad, "generation_config.json"); });
  }
  EXPECT_GT(refused, 2500);
}

TEST_F(DamageTest, Safetensors) {
  const std::vector<float> values(6);
  WeightTensor tensor{"x", DType::f32, {2, 3}, std::as_bytes(std::span(values))};
  const std::string path = folder() + "/model.safetensors";
  safetensors_write(path, std::vector{tensor, WeightTensor{"y", DType::bf16, {12}, tensor.bytes}});
  const std::string good = file_read(path);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = damaged(good, random_);
    if (round % 2 == 0 && bad.size() > 8) {  // let the length be right, so that the header is read
      const uint64_t header_bytes = std::min<uint64_t>(bad.size() - 8, bad.rfind('}') + 1 - 8);
      bad.replace(0, 8, std::string(reinterpret_cast<const char*>(&header_bytes), 8));
    }
    std::ofstream(folder() + "/bad.safetensors", std::ios::binary) << bad;  // not write(): that syncs the disk
    const std::string copy = folder() + "/bad.safetensors";
    double sum = 0;
    user_error([&] {
      const Weights weights = Weights::open(copy);
      for (const std::string& name : weights.names()) {
        const WeightTensor& got = weights.get(name);
        for (int64_t i = 0; i < static_cast<int64_t>(got.bytes.size()) / dtype_bytes(got.dtype); ++i)
          sum += element_load(got.bytes.data(), got.dtype, i);
      }
    });
  }
}

TEST_F(DamageTest, Tokenizer) {
  for (const char* name : {"qwen2", "llama3", "mixed", "llama2", "mistral", "characters"}) {
    const std::string good =
        file_read(std::string(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/") + name + ".tokenizer.json");
    // The vocabulary is most of the file; the damage belongs into the rest.
    const size_t head = good.find("\"vocab\"");
    for (int round = 0; round < 300; ++round) {
      const std::string bad =
          round % 3 == 0 ? damaged(good, random_) : damaged(good.substr(0, head), random_) + good.substr(head);
      user_error([&] {
        const Tokenizer tokenizer = Tokenizer::parse(bad, "tokenizer.json");
        const std::string text = "Hello <|im_end|> world's 123 \u00e9\u0301\n\n <mask> 日本";
        tokenizer.decode(tokenizer.encode(text));
        tokenizer.encode(std::vector<TextSegment>{{"<s>a", false}, {text, true}, {"\u0301</s>", false}});
      });
    }
  }
}

// Parts of templates put together anew, with a few bytes of damage; and what they are given, damaged too.
TEST_F(DamageTest, ChatTemplate) {
  const auto golden = nlohmann::json::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/chat.json"));
  std::vector<std::string> sources;
  for (const auto& row : golden["cases"]) {
    const std::string name = row["template"];
    sources.push_back(golden["templates"].value(name, name));
  }
  const std::string good = golden["messages"]["odd"].dump();
  auto any = [&] { return sources[random_() % sources.size()]; };
  int rendered = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string source = any(), other = any();
    if (round % 3 == 1) source.insert(random_() % (source.size() + 1), other.substr(random_() % (other.size() + 1)));
    if (round % 3 == 2) source += other;
    if (round % 4 != 0) source = damaged(source, random_);
    const std::string messages = round % 5 == 0 ? damaged(good, random_) : good;
    user_error([&] {
      const ChatTemplate chat = ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
      const auto segments = chat.render(TemplateValue::from_json(messages, "m"), {.now = 0});
      for (const TextSegment& segment : segments) EXPECT_TRUE(utf8_is_valid(segment.text)) << source;
      ++rendered;
    });
  }
  EXPECT_GT(rendered, 500);
}

}  // namespace
}  // namespace megalith
