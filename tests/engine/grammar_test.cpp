// Sequences with grammars: what they say is of the grammar, whatever the seed; others beside them keep their bits; and neither
// preemption nor an abort, nor a host that is late, makes a difference.
#include "megalith/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "megalith/model/tokenizer.h"
#include "support/models.h"

namespace megalith::engine {
namespace of_grammars {
namespace {

using grammar::GrammarKind;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

#define NEEDS_GRAMMARS() \
  if (!grammar::has_grammars()) GTEST_SKIP() << "[SKIP] this build has no grammars"

const char* const kPerson = R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Z][a-z]{1,6}$"},)"
                            R"("age":{"type":"integer","minimum":0,"maximum":120},"kind":{"enum":["king","cat"]},)"
                            R"("likes":{"type":"array","items":{"enum":["milk","gold"]},"maxItems":2}},)"
                            R"("required":["name","age","kind","likes"],"additionalProperties":false})";

const Tokenizer& tokenizer() {
  static const Tokenizer all = Tokenizer::open(test::kStoryteller);
  return all;
}
grammar::GrammarUse use_of(GrammarKind kind, const std::string& text) {
  static grammar::GrammarCompiler compiler(tokenizer(), 4096);
  return {.grammar = compiler.compile({kind, text})};
}

EngineOptions options_with(int64_t places, int64_t pages = 0) {
  EngineOptions options{.num_workers = 2};
  options.decoder.max_requests = places;
  options.decoder.max_seq_len = 160;
  options.decoder.max_pages = pages;
  options.decoder.page_size = 16;
  return options;
}

Request plain(uint64_t seed) {
  return {.prompt = tokenizer().encode("Once upon a time", false),
          .max_new_tokens = 60,
          .sampling = {.temperature = 1, .seed = seed},
          .ignore_stop_tokens = true,
          .logprobs = true};
}
Request person(uint64_t seed) {
  return {.prompt = tokenizer().encode("The king is ", false),
          .max_new_tokens = 140,
          .sampling = {.temperature = 1, .seed = seed},
          .grammar = use_of(GrammarKind::json_schema, kPerson)};
}

void expect_person(const std::vector<int>& tokens) {
  const std::string text = tokenizer().decode(tokens);
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_EQ(value.size(), 4U) << text;
  const std::string name = value["name"];
  EXPECT_TRUE(name.size() >= 2 && name.size() <= 7 && std::isupper(name[0])) << text;
  EXPECT_TRUE(value["age"].is_number_integer() && value["age"] >= 0 && value["age"] <= 120) << text;
  EXPECT_TRUE(value["kind"] == "king" || value["kind"] == "cat") << text;
  EXPECT_LE(value["likes"].size(), 2U) << text;
}

TEST(EngineGrammar, IsFollowedAtAnySeedAndOthersKeepTheirBits) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(4));
  std::vector<Generation> alone;
  for (uint64_t seed = 0; seed < 3; ++seed) alone.push_back(engine.generate({plain(seed)}));
  AsyncEngine service(engine);
  ServiceResults results;
  std::vector<RequestId> people, others;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    people.push_back(service.submit(person(seed), results.sink()));
    if (seed % 8 == 0) others.push_back(service.submit(plain(seed / 8), results.sink()));
  }
  std::set<std::string> texts;
  for (const RequestId id : people) {
    const ServiceResults::Result result = results.wait(id);
    ASSERT_EQ(result.end, RequestEnd::stop);
    EXPECT_EQ(result.tokens.back(), 0) << "the model's end";
    expect_person(result.tokens);
    texts.insert(tokenizer().decode(result.tokens));
  }
  EXPECT_GT(texts.size(), 12U) << "of 24 seeds many are different";
  for (size_t r = 0; r < others.size(); ++r) {
    const ServiceResults::Result result = results.wait(others[r]);
    EXPECT_EQ(result.tokens, alone[r].tokens[0]);
    EXPECT_EQ(result.logprobs, alone[r].logprobs[0]);
  }
}

// A batch that is generated as one, greedy, beside one without: the same as by the service.
TEST(EngineGrammar, IsFollowedInABatch) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(3));
  Request greedy = person(0);
  greedy.sampling.temperature = 0;
  Request word{.prompt = {300, 301}, .max_new_tokens = 8, .grammar = use_of(GrammarKind::regex, "(yes|no)")};
  const Generation made = engine.generate({greedy, plain(1), word});
  EXPECT_EQ(made.reasons[0], batch::kStopToken);
  expect_person(made.tokens[0]);
  EXPECT_THAT(tokenizer().decode(made.tokens[2]), ::testing::AnyOf("yes", "no"));
  EXPECT_EQ(made.tokens[1], engine.generate({plain(1)}).tokens[0]);
  AsyncEngine service(engine);
  ServiceResults results;
  EXPECT_EQ(results.wait(service.submit(greedy, results.sink())).tokens, made.tokens[0]);
}

// Each writes a number of 90 digits; there are pages for two of three.
TEST(EngineGrammar, GoesOnBehindAPreemption) {
  NEEDS_GRAMMARS();
  for (const bool has_regimes : {false, true}) {
    EngineOptions options = options_with(3, 14);
    options.decoder.max_rows = 8;
    if (has_regimes) options.regimes = {1};
    Engine engine(test::kStoryteller, options);
    const auto number = [&](uint64_t seed) {
      Request request = person(seed);
      request.max_new_tokens = 120;
      request.grammar = use_of(GrammarKind::ebnf, "root ::= (\"1\" | \"2\" | \"3\"){90}");
      return request;
    };
    std::vector<Generation> alone;
    for (uint64_t seed = 0; seed < 3; ++seed) alone.push_back(engine.generate({number(seed)}));
    AsyncEngine service(engine);
    ServiceResults results;
    std::vector<RequestId> ids;
    for (uint64_t seed = 0; seed < 3; ++seed) ids.push_back(service.submit(number(seed), results.sink()));
    for (size_t r = 0; r < ids.size(); ++r) {
      const ServiceResults::Result result = results.wait(ids[r]);
      EXPECT_EQ(result.end, RequestEnd::stop);
      EXPECT_EQ(tokenizer().decode(result.tokens).size(), 90U);
      if (has_regimes) continue;  // sums of another order
      EXPECT_EQ(result.tokens, alone[r].tokens[0]) << "request " << r;
    }
    EXPECT_GT(settled(service).preemptions, 0U);
  }
}

// At any moment: the kernel may wait for a mask just then.
TEST(EngineGrammar, IsAborted) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(3));
  const Generation alone = engine.generate({plain(3)});
  AsyncEngine service(engine);
  ServiceResults results;
  const RequestId other = service.submit(plain(3), results.sink());
  for (size_t i = 0; i < 40; ++i) {
    Request request = person(i);
    request.grammar = use_of(GrammarKind::regex, "[a-z ]*");
    const RequestId id = service.submit(request, results.sink());
    if (i % 4 != 0) results.wait(id, i % 7);
    service.abort(id);
    const RequestEnd end = results.wait(id).end;
    EXPECT_TRUE(end == RequestEnd::aborted || end == RequestEnd::length || end == RequestEnd::stop);
  }
  EXPECT_EQ(results.wait(other).tokens, alone.tokens[0]);
  EXPECT_EQ(settled(service).pages_used, 0);
}

// A kernel that waits for a host is not hung, and ends with the service.
TEST(EngineGrammar, AServiceEndsInTheMiddleOfOne) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(2));
  for (int i = 0; i < 5; ++i) {
    ServiceResults results;
    AsyncEngine service(engine);
    Request request = person(1);
    request.grammar = use_of(GrammarKind::regex, "[a-z ]*");
    results.wait(service.submit(request, results.sink()), static_cast<size_t>(i));
  }
}

// Those that find drafts do so beside it; what repeats most has none.
TEST(EngineGrammar, MakesNoDrafts) {
  NEEDS_GRAMMARS();
  EngineOptions options = options_with(2);
  options.decoder.draft_tokens = 4;
  options.decoder.draft_match = 1;
  Engine engine(test::kStoryteller, options);
  Request repeats = person(0);
  repeats.grammar = use_of(GrammarKind::ebnf, "root ::= (\"ab \"){30}");
  const Generation made = engine.generate({repeats});
  EXPECT_EQ(made.drafted, 0U);
  EXPECT_EQ(tokenizer().decode(made.tokens[0]).size(), 90U);
  const Generation both = engine.generate({repeats, plain(2)});
  EXPECT_EQ(both.tokens[0], made.tokens[0]);
  EXPECT_GT(both.drafted, 0U);
}

TEST(EngineGrammar, IsRefusedBesideWhatContradictsIt) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(2));
  const auto refusal = [&](auto change) {
    return [&engine, change] {
      Request request = person(0);
      change(request);
      engine.generate({request});
    };
  };
  EXPECT_THAT(refusal([](Request& one) { one.min_tokens = 3; }),
              ThrowsMessage<UserError>(HasSubstr("min_tokens is 3 beside a grammar")));
  EXPECT_THAT(refusal([](Request& one) {
                one.allowed_token_ids = {3, 4};
              }),
              ThrowsMessage<UserError>(HasSubstr("allowed_token_ids names 2 tokens beside a grammar")));
  EXPECT_THAT(refusal([](Request& one) { one.ignore_stop_tokens = true; }),
              ThrowsMessage<UserError>(HasSubstr("needs a token that ends the sequence, but those of the model are")));
}

// A sampled token that the model's own logits have is told with its own log-probability, mask or none.
TEST(EngineGrammar, LogProbabilitiesStayTheModels) {
  NEEDS_GRAMMARS();
  Engine engine(test::kStoryteller, options_with(2));
  Request request = person(0);
  request.sampling.temperature = 0;
  request.logprobs = true, request.top_logprobs = 3;
  Request free = request;
  free.grammar = {};
  free.max_new_tokens = 1;
  const Generation made = engine.generate({request}), wanted = engine.generate({free});
  EXPECT_EQ(made.top[0][0], wanted.top[0][0]);
  EXPECT_LT(made.logprobs[0][0], made.top[0][0][2].logprob) << "an opening brace is none of the most probable";
}

}  // namespace
}  // namespace of_grammars
}  // namespace megalith::engine
