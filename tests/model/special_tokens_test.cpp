// What tokenizer_config.json, special_tokens_map.json and added_tokens.json lay over a tokenizer.json. Ids and flags
// are those of transformers 5.24 (AutoTokenizer on the same folders), but for where a comment says otherwise.
#include "megalith/model/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/model/tokenizer.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// The vocabulary has 640 tokens; <|endoftext|> is 640.
constexpr int kNext = 641;

class SpecialTokensTest : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    document_ = json::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/gpt2.tokenizer.json"));
  }
  void add(const std::string& content, int id, bool special) {
    document_["added_tokens"].push_back({{"id", id},
                                         {"content", content},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", special}});
  }
  Tokenizer open(const std::string& config = "", const std::string& map = "", const std::string& added = "") {
    files(config, map, added);
    return Tokenizer::open(folder());
  }
  void files(const std::string& config, const std::string& map, const std::string& added) {
    std::filesystem::remove(folder() + "/tokenizer_config.json");
    std::filesystem::remove(folder() + "/special_tokens_map.json");
    std::filesystem::remove(folder() + "/added_tokens.json");
    write("tokenizer.json", document_.dump());
    if (!config.empty()) write("tokenizer_config.json", config);
    if (!map.empty()) write("special_tokens_map.json", map);
    if (!added.empty()) write("added_tokens.json", added);
  }
  std::string error(const std::string& config, const std::string& map = "", const std::string& added = "") {
    return user_error([&] { open(config, map, added); });
  }
  json document_;
};

// "a", what is looked for, "b": three tokens if it is one.
std::vector<int> around(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode("a" + text + "b");
}
bool is_one(const Tokenizer& tokenizer, const std::string& text, int id) {
  return around(tokenizer, text) ==
         std::vector<int>{tokenizer.token_id("a").value(), id, tokenizer.token_id("b").value()};
}
// Whether a user who writes it makes it.
bool users_can_write(const Tokenizer& tokenizer, const std::string& text) {
  const int id = tokenizer.token_id(text).value();
  const std::vector<int> ids = tokenizer.encode(std::vector<TextSegment>{{"a", false}, {text, true}, {"b", false}});
  return std::ranges::find(ids, id) != ids.end();
}

TEST_F(SpecialTokensTest, WithoutFilesThereAreNone) {
  EXPECT_GT(around(open(), "<|x|>").size(), 3u);
  EXPECT_GT(around(open("{}", "{}", "{}"), "<|x|>").size(), 3u);
  EXPECT_EQ(open().end_token(), std::nullopt);
}

TEST_F(SpecialTokensTest, EachFileThatNamesATokenMakesItOne) {
  const std::vector<std::array<std::string, 3>> kFiles = {
      {R"({"added_tokens_decoder": {"641": {"content": "<|x|>", "special": true}}})"},
      {R"({"eos_token": "<|x|>"})"},
      {R"({"pad_token": {"__type": "AddedToken", "content": "<|x|>", "normalized": true}})"},
      {R"({"unk_token": {"content": "<|x|>"}})"},
      {R"({"additional_special_tokens": ["<|x|>"]})"},
      {R"({"additional_special_tokens": [{"content": "<|x|>", "special": true}], "extra_special_tokens": []})"},
      {R"({"extra_special_tokens": ["<|x|>"]})"},
      {R"({"extra_special_tokens": {"a_token": "<|x|>"}})"},
      {R"({"image_token": "<|x|>", "add_bos_token": true})"},
      {"", R"({"bos_token": "<|x|>"})"},
      {"", R"({"cls_token": {"content": "<|x|>", "lstrip": false, "normalized": true}})"},
      {"", R"({"additional_special_tokens": ["<|x|>"]})"},
      {"{}", R"({"extra_special_tokens": [{"content": "<|x|>", "special": true}]})"},
      {R"({"sep_token": "<|x|>"})", "", R"({"<|x|>": 641})"}};
  for (const auto& [config, map, added] : kFiles) {
    const Tokenizer tokenizer = open(config, map, added);
    EXPECT_TRUE(is_one(tokenizer, "<|x|>", kNext)) << config << map << added;
    EXPECT_TRUE(tokenizer.is_special(kNext)) << config << map << added;
    EXPECT_FALSE(users_can_write(tokenizer, "<|x|>")) << config << map << added;
    EXPECT_EQ(tokenizer.vocab_size(), kNext + 1);
    EXPECT_EQ(tokenizer.decode(around(tokenizer, "<|x|>")), "ab");
    EXPECT_EQ(tokenizer.decode(around(tokenizer, "<|x|>"), false), "a<|x|>b");
  }
}

TEST_F(SpecialTokensTest, NewOnesGetTheNextIdsInOrder) {
  const Tokenizer tokenizer = open(R"({"eos_token": "<e>", "bos_token": "<b>", "z_token": "<z>", "a_token": "<a>",
      "extra_special_tokens": {"y": "<y>", "c": "<c>"}, "additional_special_tokens": ["<l>", "<k>"]})");
  int id = kNext;
  for (const char* name : {"<b>", "<e>", "<z>", "<a>", "<y>", "<c>"}) EXPECT_EQ(tokenizer.token_id(name), id++) << name;
  const Tokenizer list = open(R"({"extra_special_tokens": ["<l>", "<k>"], "eos_token": "<e>"})");
  id = kNext;
  for (const char* name : {"<e>", "<l>", "<k>"}) EXPECT_EQ(list.token_id(name), id++) << name;
  // By their own ids, where the file has some; here they stay what they are, also where one is left out.
  const Tokenizer ids = open(R"({"added_tokens_decoder": {"650": {"content": "<q>"}, "645": {"content": "<p>"}}})");
  EXPECT_EQ(ids.token_id("<p>"), 645);
  EXPECT_EQ(ids.token_id("<q>"), 650);
  EXPECT_EQ(open("", "", R"({"<q>": 643, "<p>": 642})").token_id("<q>"), 643);
}

TEST_F(SpecialTokensTest, TokensOfTheVocabularyAreMeant) {
  const Tokenizer tokenizer = open(R"({"eos_token": "Q"})");
  const int q = document_["model"]["vocab"]["Q"];
  EXPECT_EQ(tokenizer.token_id("Q"), q);
  EXPECT_TRUE(tokenizer.is_special(q));
  EXPECT_EQ(tokenizer.end_token(), q);
  document_["model"]["vocab"]["<|v|>"] = kNext;  // which no merges make
  EXPECT_GT(around(open(), "<|v|>").size(), 3u);
  const Tokenizer unmerged = open(R"({"eos_token": "<|v|>"})");
  EXPECT_TRUE(is_one(unmerged, "<|v|>", kNext));
  EXPECT_FALSE(users_can_write(unmerged, "<|v|>"));
}

TEST_F(SpecialTokensTest, FlagsLieOverThoseOfTokenizerJson) {
  add("<t>", kNext, false);
  add("<s>", kNext + 1, true);
  const Tokenizer tokenizer = open(R"({"added_tokens_decoder": {
      "641": {"content": "<t>", "special": true, "lstrip": true, "rstrip": true},
      "642": {"content": "<s>", "special": false}}})");
  EXPECT_TRUE(tokenizer.is_special(kNext));
  EXPECT_EQ(around(tokenizer, " <t> "), around(tokenizer, "<t>")) << "spaces are its own now";
  EXPECT_FALSE(users_can_write(tokenizer, "<t>"));
  EXPECT_FALSE(tokenizer.is_special(kNext + 1)) << "it is shown";
  EXPECT_EQ(tokenizer.decode(around(tokenizer, "<s>")), "a<s>b");
  EXPECT_FALSE(users_can_write(tokenizer, "<s>")) << "one file calls it special";
  // A part that a token plays changes none of its other flags.
  const Tokenizer named = open(R"({"eos_token": {"__type": "AddedToken", "content": "<t>", "lstrip": true}})");
  EXPECT_TRUE(named.is_special(kNext));
  EXPECT_NE(around(named, " <t>"), around(named, "<t>"));
}

// What transformers passes over makes no token, but guards one.
TEST_F(SpecialTokensTest, AnyFileThatCallsATokenSpecialGuardsIt) {
  add("<t>", kNext, false);
  EXPECT_TRUE(users_can_write(open(), "<t>"));
  const std::vector<std::array<std::string, 2>> kFiles = {
      {R"({"added_tokens_decoder": {}})", R"({"eos_token": "<t>"})"},
      {R"({"added_tokens_decoder": {}})", R"({"additional_special_tokens": ["<t>"]})"},
      {R"({"extra_special_tokens": ["<u>"], "additional_special_tokens": ["<t>"]})"},
      {R"({"extra_special_tokens": ["<u>"]})", R"({"additional_special_tokens": ["<t>"]})"},
      {R"({"chat_control_tokens": ["<t>"]})"}};
  for (const auto& [config, map] : kFiles) {
    const Tokenizer tokenizer = open(config, map);
    EXPECT_TRUE(is_one(tokenizer, "<t>", kNext));
    EXPECT_FALSE(users_can_write(tokenizer, "<t>")) << config << map;
    EXPECT_FALSE(tokenizer.is_special(kNext)) << config << map;
  }
  document_["added_tokens"].erase(1);
  for (const auto& [config, map] : kFiles) EXPECT_GT(around(open(config, map), "<t>").size(), 3u) << config << map;
}

TEST_F(SpecialTokensTest, ParametersOfAFamilyAreNames) {
  auto names = [&](const std::string& config, const std::string& map = "") {
    files(config, map, "");
    return SpecialTokens::from_folder(folder()).names;
  };
  EXPECT_THAT(
      names(R"({"eos_token": "<e>", "bos_token": {"content": "<b>"}, "pad_token": null, "image_token": "<i>",
                        "add_bos_token": true, "extra_special_tokens": {"x": "<x>"}})"),
      ElementsAre(Pair("bos_token", "<b>"), Pair("eos_token", "<e>"), Pair("image_token", "<i>"), Pair("x", "<x>")));
  // The older file lies over the newer one, unless that has the tokens themselves.
  const std::string map = R"({"bos_token": "<m>", "eos_token": null, "unk_token": "<u>"})";
  EXPECT_THAT(names(R"({"bos_token": "<b>", "eos_token": "<e>"})", map),
              ElementsAre(Pair("bos_token", "<m>"), Pair("unk_token", "<u>")));
  EXPECT_THAT(names(R"({"bos_token": "<b>", "added_tokens_decoder": {}})", map), ElementsAre(Pair("bos_token", "<b>")));
  EXPECT_THAT(names(""), IsEmpty());
}

TEST_F(SpecialTokensTest, SplitSpecialTokensLeavesNone) {
  EXPECT_GT(around(open(R"({"split_special_tokens": true})"), "<|endoftext|>").size(), 3u);
  EXPECT_EQ(around(open(R"({"split_special_tokens": false})"), "<|endoftext|>").size(), 3u);
}

// tokenizer.json alone says what stands around a text; transformers takes these away where there is one.
TEST_F(SpecialTokensTest, AddBosTokenIsTokenizerJsons) {
  const std::vector<int> plain = open().encode("the");
  EXPECT_EQ(open(R"({"bos_token": "<|endoftext|>", "add_bos_token": true, "add_eos_token": true})").encode("the"),
            plain);
  document_["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<|endoftext|>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<|endoftext|>", {{"ids", {640}}}}}}};
  EXPECT_EQ(open(R"({"bos_token": "<|endoftext|>", "add_bos_token": false})").encode("the").front(), 640);
}

TEST_F(SpecialTokensTest, AFileAloneIsAllThatCounts) {
  open(R"({"eos_token": "<|x|>"})");
  EXPECT_GT(around(Tokenizer::open(folder() + "/tokenizer.json"), "<|x|>").size(), 3u);
}

TEST_F(SpecialTokensTest, WhatCannotBeIsRefusedByFileAndKey) {
  const std::string in = folder() + "/tokenizer_config.json: ";
  EXPECT_THAT(error(R"({"eos_token": 5})"), HasSubstr(in + "\"eos_token\" is 5, want a string"));
  EXPECT_THAT(error(R"({"eos_token": {"lstrip": true}})"), HasSubstr("\"eos_token\" lacks \"content\""));
  EXPECT_THAT(error(R"({"eos_token": ""})"), HasSubstr("\"eos_token\" has a content of 0 bytes, want 1 to 1024"));
  EXPECT_THAT(error(R"({"extra_special_tokens": ["<a>", 7]})"), HasSubstr("\"extra_special_tokens[1]\" is 7, want"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})"),
              HasSubstr("\"added_tokens_decoder.x\" is keyed by what is no id, want 0 to 4194303"));
  EXPECT_THAT(error(R"({"added_tokens_decoder": {"99999999999": {"content": "<a>"}}})"), HasSubstr("is no id"));
  EXPECT_THAT(error("[]"), HasSubstr("tokenizer_config.json is no object"));
  EXPECT_THAT(error("", "{"), HasSubstr("special_tokens_map.json is not JSON"));
  EXPECT_THAT(error("", "", R"({"<a>": -1})"), HasSubstr("added_tokens.json: \"<a>\" is -1, want 0 to 4194303"));
}

// A stale id is no reason to load nothing; the warning is the command's test.
TEST_F(SpecialTokensTest, AnIdThatTokenizerJsonContradictsDoesNotCount) {
  const Tokenizer tokenizer =
      open(R"({"added_tokens_decoder": {"700": {"content": "<|endoftext|>", "special": true}}})");
  EXPECT_EQ(tokenizer.token_id("<|endoftext|>"), 640);
}

// As in transformers, which gives each new token the next free id.
TEST_F(SpecialTokensTest, ATokenWhoseIdIsTakenGetsAnotherOne) {
  const Tokenizer tokenizer =
      open(R"({"added_tokens_decoder": {"3": {"content": "<a>"}, "641": {"content": "<b>", "special": true}}})");
  EXPECT_EQ(tokenizer.token_id("<a>"), kNext);
  EXPECT_EQ(tokenizer.token_id("<b>"), kNext + 1);
}

TEST_F(SpecialTokensTest, MarkersAreKeptFromUsersWhateverTheyAre) {
  add("<t>", kNext, false);
  add("<w>", kNext + 1, false);
  const Tokenizer tokenizer = open();
  const std::vector<TextSegment> segments = {{"<t>", false}, {"<t><w>", true}};
  auto count = [&](const std::vector<int>& ids, int id) { return std::ranges::count(ids, id); };
  EXPECT_EQ(count(tokenizer.encode(segments), kNext), 2);
  const std::vector<int> ids = tokenizer.encode(segments, false, {kNext + 7, kNext});
  EXPECT_EQ(count(ids, kNext), 1);
  EXPECT_EQ(count(ids, kNext + 1), 1);
}

// As many tokens as a file can hold take no more than their number.
TEST_F(SpecialTokensTest, ManyTokensTakeLinearTime) {
  std::string list;
  for (int i = 0; i < 100'000; ++i) list += (i ? ",\"<|" : "\"<|") + std::to_string(i) + "|>\"";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(open("{\"extra_special_tokens\": [" + list + "]}").vocab_size(), kNext + 100'000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace megalith
