// What /openapi.json says, against what is read.
#include "megalith/serve/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "megalith/model/json.h"
#include "megalith/serve/answer_schemas.h"
#include "megalith/serve/generation_request.h"
#include "megalith/serve/member_schemas.h"
#include "megalith/serve/tokenize.h"

namespace megalith::serve {
namespace {

using ::testing::ContainerEq;

MemberFacts chat_members() { return generation_members(Api::chat); }

std::string document(bool needs_key) {
  return openapi_json({{"POST", "/v1/chat/completions", "A chat", "ChatCompletion", chat_members, true},
                       {"GET", "/v1/models/{id}", "A model", "Model"},
                       {"GET", "/", "A page", "text/html", nullptr, false, true},
                       {"GET", "/slots", "Slots", "Slots", nullptr, false, false, "fail"}},
                      {"storyteller"}, needs_key);
}

TEST(OpenApi, HasTheRangesOfTheReaders) {
  const JsonFile file = JsonFile::parse(document(false), "openapi.json");
  const JsonValue operation = file.root().at("paths").at("/v1/chat/completions").at("post");
  const JsonValue body = operation.at("requestBody").at("content").at("application/json").at("schema");
  EXPECT_EQ(body.at("required").elements()[0].string(), "messages");
  const JsonValue temperature = body.at("properties").at("temperature");
  EXPECT_EQ(temperature.at("minimum").number(-1, 100), 0);
  EXPECT_EQ(temperature.at("maximum").number(-1, 100), 99);
  EXPECT_EQ(temperature.at("type").elements()[1].string(), "null");
  EXPECT_TRUE(body.at("properties").at("skip_special_tokens").at("default").boolean());
  EXPECT_EQ(body.at("properties").at("model").at("enum").elements()[1].string(), "storyteller");
  EXPECT_FALSE(body.at("properties").has("best_of"));  // refused
  EXPECT_FALSE(body.at("properties").has("echo"));     // of completions
  const JsonValue answers = operation.at("responses").at("200").at("content");
  EXPECT_TRUE(answers.has("application/json") && answers.has("text/event-stream"));
}

TEST(OpenApi, SaysWhatNeedsAKey) {
  const JsonFile without = JsonFile::parse(document(false), "openapi.json");
  EXPECT_FALSE(without.root().has("security"));
  const JsonFile with = JsonFile::parse(document(true), "openapi.json");
  EXPECT_TRUE(with.root().has("security"));
  EXPECT_EQ(with.root().at("paths").at("/").at("get").at("security").size(), 0U);
  EXPECT_FALSE(with.root().at("paths").at("/slots").at("get").has("security"));
}

// Where a reader takes values of several forms, somebody has to say which.
TEST(OpenApi, EveryMemberHasASchemaAndEverySchemaAMember) {
  std::set<std::string> wanted, written;
  for (const MemberFacts& facts :
       {chat_members(), generation_members(Api::completion), generation_members(Api::responses),
        generation_members(Api::llama), tokenize_members(), detokenize_members()})
    for (const MemberFact& fact : facts)
      if (fact.schema.empty()) wanted.insert(fact.key);
  for (const MemberSchema& one : member_schemas()) {
    EXPECT_TRUE(written.insert(std::string(one.key)).second) << one.key << " is there twice";
    JsonFile::parse(one.schema, std::string(one.key));
  }
  EXPECT_THAT(written, ContainerEq(wanted));
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  std::set<std::string> names;
  for (const AnswerSchema& one : answer_schemas()) names.insert(std::string(one.name));
  const std::string all = document(true), mark = "#/components/schemas/";
  size_t found = 0;
  for (size_t at = all.find(mark); at != std::string::npos; at = all.find(mark, at + 1), ++found) {
    const size_t begin = at + mark.size();
    EXPECT_TRUE(names.contains(all.substr(begin, all.find('"', begin) - begin))) << all.substr(begin, 40);
  }
  EXPECT_GT(found, 4U);  // the routes' own
}

}  // namespace
}  // namespace megalith::serve
