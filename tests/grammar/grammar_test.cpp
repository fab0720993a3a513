// Grammars against a slow judge: every token of a vocabulary tried byte by byte on all that a small grammar says.
#include "megalith/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "megalith/base/error.h"

namespace megalith::grammar {
namespace {

using ::testing::HasSubstr;

#define NEEDS_GRAMMARS() \
  if (!has_grammars()) GTEST_SKIP() << "[SKIP] this build has no grammars"

/// The bundled model's: all tokens of its vocabulary are words and parts of words, or bytes.
const Tokenizer& tokenizer() {
  static const Tokenizer all = Tokenizer::open(std::string(MEGALITH_SOURCE_DIR) + "/models/storyteller");
  return all;
}
GrammarCompiler& compiler() {
  static GrammarCompiler all(tokenizer(), tokenizer().vocab_size());
  return all;
}
int end_token() { return tokenizer().end_token().value(); }

std::set<int> tokens_of(Matcher& matcher) {
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(tokenizer().vocab_size())));
  matcher.fill(mask.data());
  std::set<int> tokens;
  for (int token = 0; token < tokenizer().vocab_size(); ++token)
    if (mask[static_cast<size_t>(token / 32)] >> token % 32 & 1) tokens.insert(token);
  return tokens;
}

/// What may come behind `text` of a finite language.
std::set<int> wanted_tokens(const std::vector<std::string>& language, const std::string& text) {
  std::set<int> tokens;
  for (int token = 0; token < tokenizer().vocab_size(); ++token) {
    const std::string longer = text + std::string(tokenizer().token_bytes(token));
    const bool goes_on = !tokenizer().is_special(token) && longer != text &&
                         std::ranges::any_of(language, [&](const auto& one) { return one.starts_with(longer); });
    if (goes_on) tokens.insert(token);
  }
  if (std::ranges::find(language, text) != language.end()) tokens.insert(end_token());
  return tokens;
}

/// Each way through the language, one of each kind of token at a time: the masks are those of the judge.
void expect_language(const GrammarSource& source, const std::vector<std::string>& language) {
  const auto grammar = compiler().compile(source);
  uint32_t random = 7;
  for (int way = 0; way < 40; ++way) {
    Matcher matcher({.grammar = grammar}, {end_token()});
    std::string text;
    for (;;) {
      const std::set<int> found = tokens_of(matcher);
      ASSERT_EQ(found, wanted_tokens(language, text)) << source.text << " behind \"" << text << "\"";
      random = random * 1664525 + 1013904223;
      const int token = *std::next(found.begin(), static_cast<long>((random >> 8) % found.size()));
      ASSERT_TRUE(matcher.accept(token)) << matcher.failure();
      if (token == end_token()) break;
      text += tokenizer().token_bytes(token);
    }
    EXPECT_NE(std::ranges::find(language, text), language.end()) << text;
  }
}

TEST(Grammar, MasksAreThoseOfEveryTokenTried) {
  NEEDS_GRAMMARS();
  expect_language(choice_of({"yes", "no", "yesterday", "the king", "\"quoted\\\n", "h\xc3\xa9"}),
                  {"yes", "no", "yesterday", "the king", "\"quoted\\\n", "h\xc3\xa9"});
  std::vector<std::string> language;
  for (const char* a : {"the ", "a "})
    for (const char* b : {"cat", "cats", "catss", "king", "kings", "kingss"}) language.push_back(std::string(a) + b);
  expect_language({GrammarKind::regex, "(the|a) (cat|king)s{0,2}"}, language);
  expect_language({GrammarKind::ebnf,
                   "root ::= article noun\narticle ::= \"the \" | \"a \"\n"
                   "noun ::= (\"cat\" | \"king\") (\"s\" \"s\"?)?"},
                  language);
}

TEST(Grammar, JsonOfASchemaIsWhatTheSchemaSays) {
  NEEDS_GRAMMARS();
  const auto grammar = compiler().compile(
      {GrammarKind::json_schema, R"({"type":"object","properties":{"b":{"enum":["x","y"]},"a":{"type":"boolean"}},)"
                                 R"("required":["b","a"],"additionalProperties":false})"});
  const auto is_taken = [&](const std::string& text) {
    Matcher matcher({.grammar = grammar}, {end_token()});
    for (const int token : tokenizer().encode(text, false))
      if (!matcher.accept(token)) return false;
    return matcher.accept(end_token());
  };
  EXPECT_TRUE(is_taken(R"({"b":"x","a":true})"));
  EXPECT_TRUE(is_taken("{\n  \"b\": \"y\",\n  \"a\": false\n}"));
  EXPECT_FALSE(is_taken(R"({"a":true,"b":"x"})")) << "members come as the schema has them";
  EXPECT_FALSE(is_taken(R"({"b":"z","a":true})"));
  EXPECT_FALSE(is_taken(R"({"b":"x","a":true,"c":1})"));
  EXPECT_FALSE(is_taken(R"({"b":"x")"));
  const auto any = compiler().compile({GrammarKind::json});
  Matcher matcher({.grammar = any}, {end_token()});
  for (const int token : tokenizer().encode(R"({"a": [1, {"b": null}], "c": "d"})", false))
    ASSERT_TRUE(matcher.accept(token)) << matcher.failure();
  EXPECT_TRUE(tokens_of(matcher).contains(end_token()));
}

TEST(Grammar, BeginsBehindReasoning) {
  NEEDS_GRAMMARS();
  const auto grammar = compiler().compile(choice_of({"yes", "no"}));
  const int king = tokenizer().encode(" king", false).front();
  Matcher matcher({.grammar = grammar, .begins_in_reasoning = true, .reasoning_end = "</think>"}, {end_token()});
  const size_t all = tokens_of(matcher).size();
  EXPECT_EQ(all, static_cast<size_t>(tokenizer().vocab_size()) - 1) << "all but the end";
  EXPECT_TRUE(matcher.accept(king));
  for (const int token : tokenizer().encode("hm</think>", false)) ASSERT_TRUE(matcher.accept(token));
  // A token of white space may come then, since models write one.
  const std::set<int> behind = tokens_of(matcher), wanted_behind = wanted_tokens({"yes", "no"}, "");
  EXPECT_TRUE(std::ranges::includes(behind, wanted_behind));
  for (const int token : behind) {
    const bool is_space = tokenizer().token_bytes(token).find_first_not_of(" \n\r\t") == std::string_view::npos;
    EXPECT_TRUE(is_space || wanted_behind.contains(token)) << token;
  }
  ASSERT_TRUE(matcher.accept(tokenizer().encode("\n", false).front()));
  EXPECT_EQ(tokens_of(matcher), wanted_behind);

  // One that may reason, or not.
  for (const bool reasons : {false, true}) {
    Matcher may({.grammar = grammar, .reasoning_token = king, .end_token = king}, {end_token()});
    std::set<int> wanted = wanted_tokens({"yes", "no"}, "");
    wanted.insert(king);
    EXPECT_EQ(tokens_of(may), wanted);
    if (reasons) {
      ASSERT_TRUE(may.accept(king));
      EXPECT_EQ(tokens_of(may).size(), all);
      ASSERT_TRUE(may.accept(tokenizer().encode("hm", false).front()));
      ASSERT_TRUE(may.accept(king));
    }
    for (const int token : tokenizer().encode("no", false)) ASSERT_TRUE(may.accept(token)) << may.failure();
    EXPECT_EQ(tokens_of(may), wanted_tokens({"yes", "no"}, "no"));
    EXPECT_FALSE(may.accept(king)) << "reasoning comes first or never";
    EXPECT_THAT(may.failure(), HasSubstr("not of the grammar"));
  }
}

TEST(Grammar, SaysWhyASourceIsNone) {
  NEEDS_GRAMMARS();
  const auto refusal = [&](const GrammarSource& source) -> std::string {
    try {
      compiler().compile(source);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_THAT(refusal({GrammarKind::regex, "a("}), HasSubstr("the regular expression is none that can be followed"));
  EXPECT_THAT(refusal({GrammarKind::ebnf, "root ::= nothing"}), HasSubstr("the grammar is none that can be followed"));
  EXPECT_THAT(refusal({GrammarKind::json_schema, "{\"type\": \"nothing\"}"}), HasSubstr("the JSON schema"));
  EXPECT_THAT(refusal({GrammarKind::json_schema, "[1"}), HasSubstr("the JSON schema is none: "));
  // What it would leave out.
  EXPECT_THAT(refusal({GrammarKind::json_schema, R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})"}),
              HasSubstr("the JSON schema has \"uniqueItems\", which no grammar can follow"));
  EXPECT_THAT(refusal({GrammarKind::json_schema, R"({"properties":{"a":{"anyOf":[{"not":{"type":"string"}}]}}})"}),
              HasSubstr("has \"not\""));
  // Names and values that only look like it.
  EXPECT_EQ(refusal({GrammarKind::json_schema,
                     R"({"type":"object","properties":{"not":{"enum":[{"if":1}]}},"uniqueItems":false})"}),
            "");
  EXPECT_THAT(refusal({GrammarKind::ebnf, std::string(300 << 10, 'a')}), HasSubstr("has 307200 bytes, want at most"));
  EXPECT_THAT(refusal({GrammarKind::regex, std::string(5000, '(')}), HasSubstr("brackets inside each other"));
}

// A few hundred bytes that ask for gigabytes, hours, or the end of the stack.
TEST(Grammar, BombsAreRefused) {
  NEEDS_GRAMMARS();
  GrammarCompiler small(tokenizer(), tokenizer().vocab_size(), {.grammar_bytes = 64 << 20, .processor_ms = 100});
  std::string refs = R"({"$defs":{)", wide = R"({"anyOf":[)", deep = "1";
  for (int i = 0; i < 3000; ++i)
    refs += fmt::format(R"("d{}":{{"type":"array","items":{{"$ref":"#/$defs/d{}"}}}},)", i, i + 1);
  refs += R"("d3000":{"type":"string"}},"$ref":"#/$defs/d0"})";
  for (int i = 0; i < 150; ++i)
    deep = fmt::format(R"({{"anyOf":[{{"type":"array","items":{}}}]}})", i == 0 ? "true" : deep);
  for (int i = 0; i < 2000; ++i)
    wide += fmt::format(R"({}{{"type":"string","pattern":"^(a|b){{{}}}c+$"}})", i ? "," : "", i);
  wide += "]}";
  std::string rules = "root ::= r0";
  for (int i = 0; i < 60; ++i) rules += fmt::format("\nr{} ::= r{} r{} | \"{}\"", i, i + 1, i + 1, i);
  rules += "\nr60 ::= \"x\"";
  std::string chain = "root ::= r0";
  for (int i = 0; i < 8000; ++i) chain += fmt::format("\nr{} ::= \"a\" r{}", i, i + 1);
  chain += "\nr8000 ::= \"x\"";
  const std::vector<GrammarSource> bombs = {
      {GrammarKind::regex, "(((((a{1,200}){1,200}){1,200}){1,200}){1,200}){1,200}"},
      {GrammarKind::regex, "a{1000000000}"},
      {GrammarKind::regex, "(a|a)*(a|a)*(a|a)*(a?){3000}b"},
      {GrammarKind::ebnf, "root ::= (((\"a\"{0,3000}){0,3000}){0,3000}){0,3000}"},
      {GrammarKind::ebnf, rules},
      {GrammarKind::ebnf, chain},
      {GrammarKind::ebnf, "root ::= root root | \"a\" root | root \"a\" | \"\""},
      {GrammarKind::json_schema, refs},
      {GrammarKind::json_schema, wide},
      {GrammarKind::json_schema, deep},
      {GrammarKind::json_schema, R"({"$ref":"#"})"},
      {GrammarKind::json_schema, R"({"type":"string","minLength":100000000})"},
      {GrammarKind::json_schema, R"({"type":"array","items":{"type":"array","minItems":9999,"items":{"type":"array",)"
                                 R"("minItems":9999,"items":{"type":"integer"}}},"minItems":9999})"},
      {GrammarKind::json_schema, R"({"type":"integer","minimum":-9e999,"maximum":1e300})"},
  };
  int num_refused = 0;
  for (const GrammarSource& bomb : bombs) {
    const auto begin = std::chrono::steady_clock::now();
    std::string said;
    try {
      const auto grammar = small.compile(bomb);  // some of them are only large
      Matcher matcher({.grammar = grammar}, {end_token()});
      std::vector<uint32_t> mask(static_cast<size_t>(mask_words(tokenizer().vocab_size())));
      for (int i = 0; i < 50 && matcher.failure().empty(); ++i) {
        matcher.fill(mask.data());
        int token = 0;
        while (token < tokenizer().vocab_size() && (mask[static_cast<size_t>(token / 32)] >> token % 32 & 1) == 0)
          ++token;
        ASSERT_LT(token, tokenizer().vocab_size());
        if (token == end_token()) break;
        matcher.accept(token);
      }
      said = matcher.failure();
    } catch (const UserError& error) { said = error.what(); }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, 60) << bomb.text.substr(0, 80);  // a tenth of a second of a core that others use, too
    num_refused += said.find("takes too much") != std::string::npos;
  }
  EXPECT_GE(num_refused, 3) << "a chain of 8000 rules, one of 3000 references, and 2000 patterns";
}

TEST(Grammar, KeepsThoseThatWereUsedLast) {
  NEEDS_GRAMMARS();
  const GrammarSource one = choice_of({"one"}), two = choice_of({"two"});
  GrammarCompiler probe(tokenizer(), tokenizer().vocab_size());
  for (const GrammarSource& source : {one, two}) probe.compile(source);
  const int64_t both = probe.load().cache_bytes;
  EXPECT_GT(both, 1000);
  GrammarCompiler small(tokenizer(), tokenizer().vocab_size(), {.cache_bytes = both - 1});
  const auto first = small.compile(one);
  EXPECT_EQ(small.compile(one), first);
  EXPECT_EQ(small.load().found, 1U);
  small.compile(two);  // there is room for one
  EXPECT_NE(small.compile(one), first);
  EXPECT_EQ(small.load().compiled, 3U);
  EXPECT_LT(small.load().cache_bytes, both);
}

TEST(Grammar, IsMadeAndUsedByManyThreads) {
  NEEDS_GRAMMARS();
  GrammarCompiler shared(tokenizer(), tokenizer().vocab_size());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&shared, t] {
      for (int i = 0; i < 3; ++i) {
        const auto grammar = shared.compile({GrammarKind::regex, "[0-9]{3}"});
        Matcher matcher({.grammar = grammar}, {end_token()});
        for (const int token : tokenizer().encode(std::to_string(100 + t), false)) EXPECT_TRUE(matcher.accept(token));
        EXPECT_EQ(tokens_of(matcher), std::set<int>({end_token()}));
      }
    });
}

}  // namespace
}  // namespace megalith::grammar
