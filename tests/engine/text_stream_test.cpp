// What may be shown of a text while it is made.
#include "megalith/engine/text_stream.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/base/file.h"
#include "megalith/model/tokenizer.h"

namespace megalith::engine {
namespace {

class TextStreamTest : public testing::Test {
 protected:
  Tokenizer tokenizer_ = Tokenizer::open(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/qwen2.tokenizer.json");
  const int end_ = tokenizer_.token_id("<|im_end|>").value(), think_ = tokenizer_.token_id("<think>").value();

  std::vector<int> ids(const std::string& text) const { return tokenizer_.encode(text, false); }
  std::string shown(const std::vector<int>& tokens, const TextOptions& options) const {
    TextStream stream(&tokenizer_, options);
    std::string text;
    for (int token : tokens) text += stream.push(token);
    return text + stream.finish();
  }
};

TEST_F(TextStreamTest, SpecialTokensAreShownOnRequest) {
  const std::vector<int> tokens = ids("one<|im_end|> two<think>");
  EXPECT_EQ(shown(tokens, {}), "one two<think>");
  EXPECT_EQ(shown(tokens, {.show_special = true}), "one<|im_end|> two<think>");
}

TEST_F(TextStreamTest, ATokenThatEndsTheTextIsNoPartOfIt) {
  const std::vector<int> tokens = ids("one<think>");
  EXPECT_EQ(shown(tokens, {.stop_tokens = {think_}}), "one");
  EXPECT_EQ(shown(tokens, {.stop_tokens = {think_}, .show_special = true}), "one<think>");
}

// Makers name special tokens as stop strings, and these are not shown.
TEST_F(TextStreamTest, StopStringsMayBeSpecialTokensOrHaveAPartInOne) {
  const std::vector<int> tokens = ids("one<|im_end|> two");
  EXPECT_EQ(shown(tokens, {.stops = {"<|im_end|>"}}), "one");
  EXPECT_EQ(shown(tokens, {.stops = {"e<|im_"}}), "on");
  EXPECT_EQ(shown(tokens, {.stops = {"|> t"}}), "one");
  EXPECT_EQ(shown(tokens, {.stops = {"one two"}}), "one two") << "there is something between";
  EXPECT_EQ(shown(tokens, {.stops = {"<|im_end|>x"}}), "one two") << "held back, and given out without what is hidden";
}

TEST_F(TextStreamTest, StopStringsEndBehindTheLeastTokens) {
  const auto shown_of = [](int64_t min_tokens) {
    TextStream stream(nullptr, {.stops = {" 7"}, .min_tokens = min_tokens});
    std::string text;
    for (const int token : {5, 7, 6, 7}) text += stream.push(token);
    return text + stream.finish();
  };
  EXPECT_EQ(shown_of(1), " 5");
  EXPECT_EQ(shown_of(2), " 5 7 6");
  EXPECT_EQ(shown_of(4), " 5 7 6 7");
}

TEST_F(TextStreamTest, CharactersStayWhole) {
  const std::vector<int> tokens = ids("🙂<|im_end|>🙂");
  TextStream stream(&tokenizer_, {});
  std::string text;
  for (int token : tokens) text += stream.push(token);
  EXPECT_EQ(text + stream.finish(), "🙂🙂");
  EXPECT_TRUE(stream.is_over());
  EXPECT_FALSE(stream.is_stopped());
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(TextStreamTest, WithoutATokenizerTextsAreIds) {
  TextStream stream(nullptr, {.stops = {" 7"}});
  EXPECT_EQ(stream.push(12), " 12");
  EXPECT_EQ(stream.push(7), "");
  EXPECT_TRUE(stream.is_over());
}

}  // namespace
}  // namespace megalith::engine
