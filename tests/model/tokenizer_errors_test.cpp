// What a tokenizer.json may not say, and how it is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/model/encode_budget.h"
#include "megalith/model/regex.h"
#include "megalith/model/tokenizer.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The message that loading one of the golden tokenizers ends in after `change`.
std::string error_of(const char* name, const std::function<void(json&)>& change) {
  json document =
      json::parse(file_read(std::string(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/") + name + ".tokenizer.json"));
  change(document);
  return user_error([&] { Tokenizer::parse(document.dump(), "tokenizer.json"); });
}
std::string error_at(const char* pointer, const json& value) {
  return error_of("qwen2", [&](json& document) { document[json::json_pointer(pointer)] = value; });
}

TEST(TokenizerErrorsTest, Files) {
  EXPECT_THAT(user_error([] { Tokenizer::open("/nonexistent"); }), HasSubstr("no tokenizer at /nonexistent"));
  EXPECT_THAT(user_error([] { Tokenizer::parse("{", "t.json"); }), HasSubstr("t.json is not JSON"));
  EXPECT_THAT(user_error([] { Tokenizer::parse("[]", "t.json"); }),
              HasSubstr("t.json is an array of 0, want an object"));
  EXPECT_THAT(user_error([] { Tokenizer::parse("{}", "t.json"); }), HasSubstr("t.json lacks \"model\""));
}

TEST(TokenizerErrorsTest, UnknownParts) {
  EXPECT_THAT(error_at("/model/type", "Unigram"),
              HasSubstr("tokenizer.json: \"model.type\" is \"Unigram\", supported is \"BPE\""));
  EXPECT_THAT(error_at("/model/dropout", 0.1), HasSubstr("\"model.dropout\" is 0.1: random merges"));
  EXPECT_THAT(error_at("/model/continuing_subword_prefix", "##"), HasSubstr("is \"##\", which is not supported"));
  EXPECT_THAT(error_at("/model/end_of_word_suffix", "</w>"), HasSubstr("\"model.end_of_word_suffix\" is \"</w>\""));
  EXPECT_THAT(error_at("/normalizer/type", "Precompiled"),
              HasSubstr("\"normalizer.type\" is \"Precompiled\", supported are NFC, NFD, NFKC, NFKD, Lowercase"));
  EXPECT_THAT(error_at("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}}),
              HasSubstr("\"normalizer.normalizers[1].type\" is \"Nmt\", supported are"));
  EXPECT_THAT(error_at("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a("}}}, {"content", ""}}),
              HasSubstr("\"normalizer.pattern.Regex\" cannot be used: regular expression \"a(\" is malformed"));
  EXPECT_THAT(error_at("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
              HasSubstr("\"pre_tokenizer.type\" is \"BertPreTokenizer\", supported are Sequence, Split, Digits, "));
  EXPECT_THAT(error_at("/decoder", {{"type", "WordPiece"}}),
              HasSubstr("\"decoder.type\" is \"WordPiece\", supported is"));
  EXPECT_THAT(error_at("/decoder", nullptr), HasSubstr("has no \"decoder\", want ByteLevel"));
  EXPECT_THAT(error_at("/decoder", {{"type", "Sequence"}, {"decoders", json::array()}}),
              HasSubstr("is a sequence of 0 decoders"));
  EXPECT_THAT(error_at("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("\"post_processor.type\" is \"BertProcessing\", supported are"));
}

TEST(TokenizerErrorsTest, PreTokenizer) {
  EXPECT_THAT(error_at("/pre_tokenizer/pretokenizers/1", {{"type", "Digits"}}),
              HasSubstr("\"decoder.type\" is \"ByteLevel\", supported are Sequence, Replace, ByteFallback"));
  EXPECT_THAT(error_at("/pre_tokenizer/pretokenizers/2", {{"type", "Digits"}}),
              HasSubstr("is \"Digits\", but nothing may follow ByteLevel"));
  EXPECT_THAT(error_at("/pre_tokenizer/pretokenizers/0/behavior", "Sideways"),
              HasSubstr("is \"Sideways\", supported are"));
  EXPECT_THAT(error_at("/pre_tokenizer/pretokenizers/0/pattern", json::object()),
              HasSubstr("pattern\" has neither \"Regex\" nor \"String\""));
  EXPECT_THAT(error_at("/pre_tokenizer/pretokenizers/0/pattern/Regex", "a("),
              HasSubstr("regular expression \"a(\" is malformed near byte 2"));
}

TEST(TokenizerErrorsTest, Characters) {
  auto error = [](const char* pointer, const json& value) {
    return error_of("mistral", [&](json& document) { document[json::json_pointer(pointer)] = value; });
  };
  EXPECT_EQ(error("/model/byte_fallback", false), "");
  EXPECT_THAT(error("/pre_tokenizer/replacement", "__"), HasSubstr("is \"__\", want one character"));
  EXPECT_THAT(error("/pre_tokenizer/replacement", ""), HasSubstr("is \"\", want one character"));
  EXPECT_THAT(error("/pre_tokenizer/prepend_scheme", "last"), HasSubstr("is \"last\", supported are \"always\""));
  EXPECT_THAT(error("/pre_tokenizer/add_prefix_space", false),
              HasSubstr("has the prepend_scheme \"first\", but add_prefix_space is false"));
  EXPECT_THAT(error("/decoder", nullptr), HasSubstr("has no \"decoder\", want Replace, ByteFallback, Fuse and Strip"));
  EXPECT_THAT(error("/decoder/decoders/0/type", "CTC"), HasSubstr("decoders[0].type\" is \"CTC\", supported are"));
  EXPECT_THAT(error("/decoder/decoders/0", {{"type", "Fuse"}}), HasSubstr("\"ByteFallback\", but stands too late"));
  EXPECT_THAT(error("/decoder/decoders/2", {{"type", "ByteFallback"}}), HasSubstr("\"Strip\" without \"Fuse\""));
  EXPECT_THAT(error("/decoder/decoders/3/stop", 1), HasSubstr("stop\" is 1, supported is 0"));
  EXPECT_THAT(error("/decoder/decoders/3/content", ""), HasSubstr("content\" is empty, want one character"));
}

TEST(TokenizerErrorsTest, Vocabulary) {
  EXPECT_THAT(error_at("/model/vocab/A", 3), HasSubstr("has the id 3, which another token has too"));
  EXPECT_THAT(error_at("/model/vocab/A", -1), HasSubstr("\"model.vocab.A\" is -1, want 0 to 4194303"));
  EXPECT_THAT(error_at("/model/vocab/A", 1e9), HasSubstr("is 1000000000.0, want 0 to 4194303"));
  EXPECT_THAT(error_at("/model/vocab/A", 0.5), HasSubstr("is 0.5, want a whole number"));
  EXPECT_THAT(error_at("/model/vocab", json::array()), HasSubstr("\"model.vocab\" is an array of 0, want an object"));
}

TEST(TokenizerErrorsTest, Merges) {
  EXPECT_THAT(error_at("/model/merges/0", "ab"), HasSubstr("is \"ab\", want two tokens with a space between"));
  EXPECT_THAT(error_at("/model/merges/0", "a b c"), HasSubstr("want two tokens with a space between"));
  EXPECT_THAT(error_at("/model/merges/0", json::array({"a"})), HasSubstr("is an array of 1, want two tokens"));
  EXPECT_THAT(error_at("/model/merges/0", json::array({"a", "日本"})),
              HasSubstr("\"model.merges[0]\" names \"a日本\", which is not in the vocabulary"));
  EXPECT_THAT(error_at("/model/merges/0", 5), HasSubstr("\"model.merges[0]\" is 5, want an array"));
}

TEST(TokenizerErrorsTest, AddedTokens) {
  EXPECT_THAT(error_at("/added_tokens/0/content", ""), HasSubstr("has a content of 0 bytes"));
  EXPECT_THAT(error_at("/added_tokens/0/id", 5),
              HasSubstr("gives \"<|endoftext|>\" the id 5, which the vocabulary gives to"));
  EXPECT_THAT(error_at("/added_tokens/0/id", 641), HasSubstr("has the id 641, which another added token has too"));
  EXPECT_THAT(error_at("/added_tokens/0/content", "<think>"), HasSubstr("which another added token has too"));
  EXPECT_THAT(error_at("/added_tokens/0/content", "A"),
              HasSubstr("gives \"A\" the id 640, but the vocabulary gives it"));
  EXPECT_THAT(error_at("/added_tokens/0/id", int64_t{1} << 31), HasSubstr("want 0 to 4194303"));
  // Said twice, it is said.
  EXPECT_EQ(error_of("qwen2", [](json& document) { document["added_tokens"].push_back(document["added_tokens"][0]); }),
            "");
}

TEST(TokenizerErrorsTest, Template) {
  auto error = [](const char* pointer, const json& value) {
    return error_of("llama3", [&](json& document) {
      document["post_processor"] = document["post_processor"]["processors"][1];
      document["post_processor"][json::json_pointer(pointer)] = value;
    });
  };
  EXPECT_EQ(error("/unrelated", 1), "");
  EXPECT_THAT(error("/single", json::array()), HasSubstr("holds the sequence 0 times, want once"));
  EXPECT_THAT(error("/special_tokens", json::object()), HasSubstr("special_tokens\" lacks \"<|begin_of_text|>\""));
  EXPECT_THAT(error("/special_tokens/<|begin_of_text|>/ids/0", 99999),
              HasSubstr("\"post_processor\" adds the token 99999, but there is none of that id"));
}

TEST(TokenizerErrorsTest, Regex) {
  auto error = [](const char* pattern) { return user_error([&] { Regex regex(pattern); }); };
  for (const char* pattern : {R"((?i:'s)|\s+(?!\S)|[^\s\w]{1,3}|\d+?|(?<=a)b|(?>x)|(?:y)|\x{41}\\s)", "(?i)a", "[]a]"})
    EXPECT_EQ(error(pattern), "") << pattern;
  EXPECT_THAT(error("(?m:.)"), HasSubstr("the option \"m\" (at byte 2) is not supported"));
  EXPECT_THAT(error("(?x:a)"), HasSubstr("the option \"x\""));
  EXPECT_THAT(error("(?R)"), HasSubstr("the option \"R\""));
  EXPECT_THAT(error("(?C1)a"), HasSubstr("the option \"C\""));
  EXPECT_THAT(error("(?(1)a)"), HasSubstr("the group (?("));
  EXPECT_THAT(error("(*UTF)a"), HasSubstr("a verb"));
  EXPECT_THAT(error(R"([\W])"), HasSubstr("\\W in a class"));
  EXPECT_THAT(error(R"(\h)"), HasSubstr("\\h (at byte 0)"));
  EXPECT_THAT(error("[a[b]]"), HasSubstr("a class within a class"));
  EXPECT_THAT(error("[a&&b]"), HasSubstr("an intersection of classes"));
  EXPECT_THAT(error("a{1,2}+"), HasSubstr("a possessive count"));
  EXPECT_THAT(error("\\"), HasSubstr("is malformed"));
  EXPECT_THAT(error("\xFF"), HasSubstr("is malformed"));
}

TEST(TokenizerErrorsTest, RegexThatExplodes) {
  const Regex regex("(?:a|aa)+c");
  EncodeBudget budget(200);
  EXPECT_THAT(user_error([&] { regex.each_match(std::string(200, 'a') + "bc", budget, [](size_t, size_t) {}); }),
              ::testing::ContainsRegex("backtracks? too much"));  // by its steps, or by the time that they take
}

// Long texts are looked at through a window; where it ends changes nothing.
TEST(TokenizerErrorsTest, RegexOnLongTexts) {
  auto found = [](const char* pattern, const std::string& text) {
    EncodeBudget budget(text.size());
    std::string pieces;
    Regex(pattern).each_match(text, budget,
                              [&](size_t begin, size_t end) { pieces += text.substr(begin, end - begin) + "|"; });
    return pieces;
  };
  const char* const words = R"(\s+(?!\S)|\s+|\w+|(?<=a)!)";
  for (size_t length : {1, 500, 509, 510, 511, 512, 513, 514, 1023, 1024, 5000}) {
    const std::string word(length, 'a');
    EXPECT_EQ(found(words, word + "   \u00e9!"), word + "|  | |\u00e9|") << length;
    EXPECT_EQ(found(words, "." + word + "!"), word + "|!|") << length;
    EXPECT_EQ(found(words, "." + std::string(length, ' ') + "!"),
              length == 1 ? " |" : std::string(length - 1, ' ') + "| |")
        << length;
    EXPECT_EQ(found(R"((?!\S))", word), "|") << length << ": at the end alone";
    EXPECT_EQ(found(R"(b$)", word + "b\nb"), "b|b|") << length;
  }
  std::string text, pieces;
  for (int i = 0; i < 500; ++i) text += "ab  cd \u00e9 ", pieces += "ab| | |cd| |\u00e9| |";
  EXPECT_EQ(found(words, text), pieces);
}

TEST(TokenizerErrorsTest, RegexWhiteSpace) {
  // U+180E is white space to PCRE2, and to nobody else.
  std::string found;
  const std::string text = "a\u180e\u3000\u0085_\u203f";
  EncodeBudget budget(text.size());
  Regex(R"(\s|\w)").each_match(text, budget, [&](size_t begin, size_t end) {
    found += text.substr(begin, end - begin) + "|";
  });
  EXPECT_EQ(found, "a|\u3000|\u0085|_|\u203f|");
}

}  // namespace
}  // namespace megalith
