// JSON as Python writes it, and as nobody should.
#include "megalith/model/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/scratch.h"

namespace megalith {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of_file(std::string_view text) {
  return user_error([&] { JsonFile::parse(text, "f.json"); });
}

TEST(JsonTest, NumbersThatPythonWrites) {
  const JsonFile file = JsonFile::parse(
      R"({"a": NaN, "b": [Infinity, -Infinity,NaN], "NaN": "NaN, Infinity \" NaN", "c":-Infinity})", "f.json");
  const JsonValue root = file.root();
  EXPECT_TRUE(std::isnan(root.at("a").find_number().value()));
  EXPECT_EQ(root.at("b").elements()[0].find_number(), INFINITY);
  EXPECT_EQ(root.at("b").elements()[1].find_number(), -INFINITY);
  EXPECT_TRUE(std::isnan(root.at("b").elements()[2].find_number().value()));
  EXPECT_EQ(root.at("c").find_number(), -INFINITY);
  EXPECT_EQ(root.at("NaN").string(), "NaN, Infinity \" NaN") << "texts stay what they are";
  EXPECT_THAT(user_error([&] { root.at("a").number(0, 1); }), HasSubstr("f.json: \"a\" is NaN, want 0 to 1"));
  EXPECT_THAT(user_error([&] { root.at("c").number(0, 1); }), HasSubstr("\"c\" is -Infinity, want 0 to 1"));
  EXPECT_THAT(user_error([&] { root.at("a").integer(0, 1); }), HasSubstr("\"a\" is NaN, want a whole number"));
  EXPECT_THAT(user_error([&] { root.at("c").integer(0, 1); }), HasSubstr("\"c\" is -Infinity, want 0 to 1"));
}

TEST(JsonTest, OnlyThoseNumbers) {
  for (const char* text : {"[nan]", "[NaNs]", "[1NaN]", "[-NaN]", "[+Infinity]", "[Infinity0]", "[inf]", "[Infinit]",
                           "[.NaN]", "{NaN: 1}", "NaN1"})
    EXPECT_THAT(error_of_file(text), HasSubstr("f.json is not JSON, near byte")) << text;
  // Places in complaints are those of the file.
  EXPECT_THAT(error_of_file("[NaN, Infinity, ?]"), HasSubstr("near byte 17"));
}

TEST(JsonTest, FiftyIsFifty) {
  const JsonFile file = JsonFile::parse(R"([50, 50.0, 5e1, 50.5, 9223372036854775808, -0.0])", "f.json");
  const std::vector<JsonValue> values = file.root().elements();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(values[i].integer(), 50);
  EXPECT_EQ(values[5].integer(), 0);
  EXPECT_THAT(user_error([&] { values[3].integer(); }), HasSubstr("\"[3]\" is 50.5, want a whole number"));
  EXPECT_THAT(user_error([&] { values[4].integer(0, 7); }), HasSubstr("is 9223372036854775808, want 0 to 7"));
}

TEST(JsonTest, KeepsTheOrderOfMembersWhereItIsAsked) {
  std::vector<std::string> keys;
  auto visit = [&](const std::string& key, const JsonValue&) { keys.push_back(key); };
  const JsonFile file = JsonFile::parse(R"({"z": 1, "a": [{"y": 1, "b": 2}], "m": {}})", "f.json", true);
  file.root().each_member(visit);
  file.root().at("a").elements()[0].each_member(visit);
  file.root().at("m").each_member(visit);
  EXPECT_THAT(keys, ElementsAre("z", "a", "m", "y", "b"));
}

// Two bytes of the file make 16 of memory and more.
TEST(JsonTest, HasNoMoreValuesThanAModelHas) {
  std::string text = "[0";
  for (int i = 0; i < 16'000'001; ++i) text += ",0";
  EXPECT_THAT(error_of_file(text + "]"), HasSubstr("f.json holds more than 16000000 values"));
}

TEST(JsonTest, ExcerptsAreShort) {
  const JsonFile file = JsonFile::parse("{\"a\": \"" + std::string(1000, 'x') + "\"}", "f.json");
  const std::string error = user_error([&] { file.root().at("a").boolean(); });
  EXPECT_LT(error.size(), 200u);
  EXPECT_THAT(error, HasSubstr("xxx\", want true or false"));
}

}  // namespace
}  // namespace megalith
