// A tokenizer.json is a program of others. Whatever one of them asks for, on whatever text, a call ends within seconds
// and megabytes: in total, not for each step.
#include "megalith/model/encode_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <nlohmann/json.hpp>

#include "megalith/model/regex.h"
#include "megalith/model/tokenizer.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;

Tokenizer with_changes(const std::string& name, const std::function<void(json&)>& change) {
  json document = json::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/" + name + ".tokenizer.json"));
  change(document);
  return Tokenizer::parse(document.dump(), "tokenizer.json");
}
std::string load_error(const std::string& name, const std::function<void(json&)>& change) {
  return user_error([&] { with_changes(name, change); });
}

// The thread's own time, because others run beside this one.
double seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class EncodeBudgetTest : public testing::Test {
 protected:
  // Two seconds and what the text adds, for each of a few calls; a sanitizer takes ten times as long for the rest.
  void TearDown() override { EXPECT_LT(seconds() - start_, 60); }
  double start_ = seconds();
};

Tokenizer splitting(const std::vector<std::string>& patterns) {
  return with_changes("qwen2", [&](json& document) {
    json steps = json::array();
    for (const std::string& pattern : patterns)
      steps.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back(document["pre_tokenizer"]["pretokenizers"][1]);
    document["pre_tokenizer"]["pretokenizers"] = steps;
    document["normalizer"] = nullptr;
  });
}

// From each place to the end, and nothing found: no single match is too long.
TEST_F(EncodeBudgetTest, PatternsThatLookThroughTheTextFromEveryPlace) {
  for (const char* pattern :
       {"a*a*[bc]", "(?=a+[bc])[ax]", "(?:a|x)+[bc]", "(a+)a*\\1[bc]", "(?:a*)*[bc]", "a*a*a*a*a*a*[bc]"}) {
    const double start = seconds();
    EXPECT_THAT(user_error([&] { splitting({pattern}).encode(std::string(400'000, 'a')); }),
                AnyOf(HasSubstr("takes more than 2 s for a text of 400000 bytes: its regular expressions backtrack "
                                "too much"),
                      HasSubstr("gives up on this text")))
        << pattern;
    EXPECT_LT(seconds() - start, 10) << pattern;
  }
}

// Each place alone is within the limit of a match.
TEST_F(EncodeBudgetTest, PatternsThatBacktrackAtEveryPlace) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::string(20, 'a') + " ";
  const std::string error = user_error([&] { splitting({"(?:a|aa)+[bc]"}).encode(text); });
  EXPECT_THAT(error, HasSubstr("takes more than 2 s"));
}

TEST_F(EncodeBudgetTest, ManyStepsShareIt) {
  // Each of them takes a part of a second.
  const std::vector<std::string> patterns(31, "(?=a+[bc])[ax]");
  EXPECT_THAT(user_error([&] { splitting(patterns).encode(std::string(60'000, 'a')); }), HasSubstr("takes more than"));
}

// Sensible patterns on hostile text need nothing of it (tokenizer_test.cpp has more of these).
TEST_F(EncodeBudgetTest, SensiblePatternsTakeLongTexts) {
  const Tokenizer tokenizer = with_changes("gpt4o", [](json&) {});
  for (const char* part : {"a", "A", " ", "\n", "Aa", "'s", "1", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += part;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << part;
  }
}

TEST_F(EncodeBudgetTest, NormalizersThatMultiply) {
  auto error = [](const json& steps, const std::string& text) {
    return user_error([&] {
      with_changes("mistral", [&](json& document) {
        document["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
        document["added_tokens"] = json::array();
        document["post_processor"] = nullptr;
      }).encode(text);
    });
  };
  auto replace = [](const char* from, size_t times) {
    return json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", std::string(times, 'a')}};
  };
  const std::string told = "its \"normalizer\" or \"pre_tokenizer\" multiplies text";
  EXPECT_THAT(error(json(20, replace("a", 10)), "a"), HasSubstr(told));
  EXPECT_THAT(error(json::array({replace("a", 1'000'000)}), std::string(1'000'000, 'a')), HasSubstr(told));
  json regex = replace("a", 1'000'000);
  regex["pattern"] = {{"Regex", "a"}};
  EXPECT_THAT(error(json::array({regex}), std::string(1'000'000, 'a')), HasSubstr(told));
  EXPECT_THAT(error(json(60, {{"type", "Prepend"}, {"prepend", std::string(100'000, 'a')}}), "a"), HasSubstr(told));
  EXPECT_THAT(error(json(65, replace("b", 1)), "a"), HasSubstr("is one of more than 64 steps"));
  // A pattern that nearly fits everywhere.
  EXPECT_EQ(error({{{"type", "Replace"}, {"pattern", {{"String", std::string(100'000, 'a') + "b"}}}, {"content", ""}}},
                  std::string(1'000'000, 'a')),
            "");
  // What Unicode does is none of this.
  EXPECT_EQ(error({{{"type", "NFKD"}}}, "\uFDFA\uFDFA\uFDFA"), "");
}

TEST_F(EncodeBudgetTest, AddedTokensThatAreAlike) {
  const Tokenizer tokenizer = with_changes("gpt2", [](json& document) {
    int id = document["added_tokens"][0]["id"];
    for (int i = 0; i < 1000; ++i)
      document["added_tokens"].push_back(
          {{"id", ++id}, {"content", std::string(1000, 'a') + std::to_string(i)}, {"special", true}});
  });
  EXPECT_THAT(user_error([&] { tokenizer.encode(std::string(2'000'000, 'a')); }),
              HasSubstr("its added tokens are too much alike"));
  EXPECT_THAT(load_error("gpt2",
                         [](json& document) {
                           int id = document["added_tokens"][0]["id"];
                           for (int i = 0; i < 5000; ++i)
                             document["added_tokens"].push_back(
                                 {{"id", ++id}, {"content", std::to_string(i) + std::string(1000, 'a')}});
                         }),
              HasSubstr("the added tokens have more than 4194304 bytes in all"));
}

// Their contents are normalized on loading, all by one budget.
TEST_F(EncodeBudgetTest, AddedTokensThatTakeLongToNormalize) {
  EXPECT_THAT(
      load_error("mistral",
                 [](json& document) {
                   json steps = json::array();
                   steps.push_back({{"type", "Prepend"}, {"prepend", std::string(60'000, 'a')}});
                   steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", "(?=a+[bc])[ax]"}}}, {"content", ""}});
                   document["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
                   int id = 800;
                   for (int i = 0; i < 1000; ++i)
                     document["added_tokens"].push_back(
                         {{"id", ++id}, {"content", "<" + std::to_string(i)}, {"normalized", true}});
                 }),
      HasSubstr("takes more than 2 s"));
}

TEST_F(EncodeBudgetTest, TemplatesThatAddThousandsOfTokens) {
  EXPECT_THAT(load_error("llama3",
                         [](json& document) {
                           json step = document["post_processor"]["processors"][1];
                           document["post_processor"] = {{"type", "Sequence"}, {"processors", json(1025, step)}};
                         }),
              HasSubstr("puts more than 1024 tokens around a text"));
  EXPECT_THAT(load_error("llama3",
                         [](json& document) {
                           json& step = document["post_processor"]["processors"][1];
                           step["special_tokens"]["<|begin_of_text|>"]["ids"] = json(100'000, 3);
                         }),
              HasSubstr("puts more than 1024 tokens around a text"));
}

TEST_F(EncodeBudgetTest, DecodersThatMultiply) {
  auto decoding = [](const json& steps) {
    return load_error("mistral", [&](json& document) {
      document["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
    });
  };
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  EXPECT_THAT(decoding(json(10, replace)), HasSubstr("\"decoder\" makes more than"));
  EXPECT_THAT(decoding(json(17, {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}})),
              HasSubstr("is one of more than 16 steps"));
}

TEST_F(EncodeBudgetTest, ATextThatIsTooLong) {
  const Tokenizer tokenizer = with_changes("gpt2", [](json&) {});
  EXPECT_THAT(user_error([&] { tokenizer.encode(std::string((16 << 20) + 1, 'a')); }),
              HasSubstr("a text of 16777217 bytes is too long to tokenize, at most 16777216 can be"));
}

TEST_F(EncodeBudgetTest, PatternsThatAreTooLong) {
  EXPECT_THAT(user_error([] { Regex regex(std::string(8193, 'a')); }), HasSubstr("has 8193 bytes, want at most 8192"));
  // Nor are long ones printed.
  EXPECT_LT(user_error([] { Regex regex(std::string(8000, 'a') + "("); }).size(), 400u);
}

}  // namespace
}  // namespace megalith
