// Answers of a given form, from the member of the request to the tokens that may come.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/json_quote.h"
#include "megalith/serve/api_error.h"
#include "megalith/serve/call_grammar.h"
#include "megalith/serve/prepare.h"
#include "serve/storyteller.h"

namespace megalith::serve {
namespace of_grammars {
namespace {

using ::testing::HasSubstr;

#define NEEDS_GRAMMARS() \
  if (!grammar::has_grammars()) GTEST_SKIP() << "[SKIP] this build has no grammars"

const std::string kMessages = R"("messages":[{"role":"user","content":"Hi"}],)";
const std::string kSchema =
    R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"boolean"}},"required":["b","a"],"additionalProperties":false})";
const std::string kGood = R"({"b": 7, "a": true})", kBad = R"({"a": true, "b": 7})";
const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":)"
    R"({"type":"string"}},"required":["city"],"additionalProperties":false}}},)"
    R"({"type":"function","function":{"name":"now"}}],)";

/// Whether an answer of the text and the model's end may come; nothing of a request without a grammar.
class Taker {
 public:
  Taker(ServedModel model, const std::string& members, Api api = Api::chat)
      : model_(std::move(model)),
        prepared_(prepare(model_, read_generation_request(api, "{" + prompt(api) + members + R"("seed":1})"))) {}

  bool has_grammar() const { return static_cast<bool>(use()); }
  bool takes(const std::string& text) const {
    grammar::Matcher matcher(use(), {0});
    for (const int token : model_.tokenizer->encode(text, false))
      if (!matcher.accept(token)) return false;
    return matcher.accept(0);
  }
  const grammar::GrammarUse& use() const { return prepared_.sequences.front().grammar; }

 private:
  static std::string prompt(Api api) {
    return api == Api::chat ? kMessages : api == Api::completion ? R"("prompt":"Hi",)" : R"("input":"Hi",)";
  }

  ServedModel model_;
  PreparedRequest prepared_;
};

ServedModel caller(CallFormat calls) {
  ServedModel model = test::storyteller();
  model.syntax.calls = calls;
  return model;
}

TEST(AnswerGrammar, EachMemberSaysTheSame) {
  NEEDS_GRAMMARS();
  const std::string quoted =
      R"("{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"type\":\"boolean\"}},)"
      R"(\"required\":[\"b\",\"a\"],\"additionalProperties\":false}")";
  const std::vector<std::pair<Api, std::string>> all = {
      {Api::chat, R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":)" +
                      kSchema + "}},"},
      {Api::completion, R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + kSchema + "}},"},
      {Api::responses, R"("text":{"format":{"type":"json_schema","name":"x","schema":)" + kSchema + "}},"},
      {Api::chat, R"("structured_outputs":{"json":)" + kSchema + "},"},
      {Api::chat, R"("structured_outputs":{"json":)" + quoted + "},"},
      {Api::completion, R"("guided_json":)" + kSchema + ","},
      {Api::completion, R"("json_schema":)" + kSchema + R"(,"grammar":"",)"},
  };
  for (const auto& [api, members] : all) {
    const Taker taker(test::storyteller(), members, api);
    ASSERT_TRUE(taker.has_grammar()) << members;
    EXPECT_TRUE(taker.takes(kGood)) << members;
    EXPECT_FALSE(taker.takes(kBad)) << members;
    EXPECT_FALSE(taker.takes("Once")) << members;
  }
  for (const char* members :
       {R"("response_format":{"type":"json_object"},)", R"("structured_outputs":{"json_object":true},)"}) {
    const Taker taker(test::storyteller(), members);
    EXPECT_TRUE(taker.takes(R"({"x": [1, "y"]})")) << members;
    EXPECT_FALSE(taker.takes("[1]")) << members;
  }
  for (const char* members :
       {R"("guided_regex":"a+b",)", R"("structured_outputs":{"regex":"a+b"},)", R"("guided_choice":["ab","aab"],)",
        R"("structured_outputs":{"choice":["ab","aab"]},)", R"("grammar":"root ::= \"a\"+ \"b\"",)",
        R"("guided_grammar":"root ::= \"a\" root | \"ab\"",)"}) {
    const Taker taker(test::storyteller(), members);
    EXPECT_TRUE(taker.takes("ab") && taker.takes("aab")) << members;
    EXPECT_FALSE(taker.takes("a") || taker.takes("abb")) << members;
  }
  for (const char* members : {R"("response_format":{"type":"text"},)", R"("response_format":null,)",
                              R"("structured_outputs":{},)", R"("grammar":"",)"})
    EXPECT_FALSE(Taker(test::storyteller(), members).has_grammar()) << members;
}

// In xgrammar's words and in the older form, as an object and as the text of one.
TEST(AnswerGrammar, OfAStructuralTagIsForPartsOfTheText) {
  NEEDS_GRAMMARS();
  const std::string format = R"({"type":"triggered_tags","triggers":["<f"],"tags":[{"type":"tag","begin":"<f>",)"
                             R"("content":{"type":"json_schema","json_schema":)" +
                             kSchema + R"(},"end":"</f>"}]})",
                    structures =
                        R"("triggers":["<f"],"structures":[{"begin":"<f>","schema":)" + kSchema + R"(,"end":"</f>"}])";
  const std::vector<std::pair<Api, std::string>> all = {
      {Api::chat, R"("response_format":{"type":"structural_tag","format":)" + format + "},"},
      {Api::completion, R"("response_format":{"type":"structural_tag",)" + structures + "},"},
      {Api::responses, R"("text":{"format":{"type":"structural_tag","format":)" + format + "}},"},
      {Api::chat, R"("structured_outputs":{"structural_tag":{)" + structures + "}},"},
      {Api::chat, R"("structured_outputs":{"structural_tag":)" + json_quote("{" + structures + "}") + "},"},
  };
  for (const auto& [api, members] : all) {
    const Taker taker(test::storyteller(), members, api);
    EXPECT_TRUE(taker.takes("Once <b> <f>" + kGood + "</f> and <f>" + kGood + "</f>.")) << members;
    EXPECT_TRUE(taker.takes("Once")) << members;
    EXPECT_FALSE(taker.takes("Once <f>" + kBad + "</f>")) << members;
    EXPECT_FALSE(taker.takes("Once <f>" + kGood)) << members;
  }
}

TEST(AnswerGrammar, ForcesACallInTheModelsForm) {
  NEEDS_GRAMMARS();
  const std::string required = kTools + R"("tool_choice":"required",)";
  const std::string one = required + R"("parallel_tool_calls":false,)";
  const std::string named = kTools + R"("tool_choice":{"type":"function","function":{"name":"now"}},)";
  struct Form {
    CallFormat format;
    std::string weather, now, wrong, between;
  };
  const std::vector<Form> forms = {
      {CallFormat::hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Rome\"}}\n</tool_call>", "\n"},
      {CallFormat::qwen3_xml,
       "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>", "",
       "<tool_call>\n<function=weather>\n<parameter=town>\nRome\n</parameter>\n</function>\n</tool_call>", "\n"},
      {CallFormat::llama3_json, R"({"name": "weather", "parameters": {"city": "Rome"}})",
       R"({"name": "now", "parameters": {}})", R"({"name": "weather", "parameters": {"city": 7}})", ""},
      {CallFormat::mistral, R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}])",
       R"([TOOL_CALLS] [{"name": "now", "arguments": {}}])",
       R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome", "x": 1}}])", ""},
  };
  for (const Form& form : forms) {
    const auto takes = [&](const std::string& members, const std::string& text) {
      return Taker(caller(form.format), members).takes(text);
    };
    EXPECT_TRUE(takes(required, form.weather)) << form.weather;
    EXPECT_FALSE(takes(required, form.wrong)) << form.wrong;
    EXPECT_FALSE(takes(required, "I will look."));
    EXPECT_FALSE(takes(named, form.weather)) << form.weather;
    EXPECT_TRUE(form.now.empty() || takes(named, form.now)) << form.now;
    if (form.between.empty()) continue;
    const std::string two = form.weather + form.between + form.weather;
    EXPECT_TRUE(takes(required, two));
    EXPECT_FALSE(takes(one, two));
  }
}

TEST(AnswerGrammar, StrictToolsLeaveTheChoiceToTheModel) {
  NEEDS_GRAMMARS();
  const std::string strict =
      R"("tools":[{"type":"function","function":{"name":"weather","strict":true,"parameters":{"type":)"
      R"("object","properties":{"city":{"type":"string"}},"required":["city"]}}}],)";
  const Taker taker(caller(CallFormat::hermes), strict);
  EXPECT_TRUE(taker.takes("It rains. <b>"));
  EXPECT_TRUE(
      taker.takes("I look. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"));
  EXPECT_FALSE(taker.takes("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Rome\"}}\n</tool_call>"));
  EXPECT_FALSE(Taker(caller(CallFormat::llama3_json), strict).has_grammar()) << "no marker says that a call begins";
  EXPECT_FALSE(Taker(caller(CallFormat::hermes), kTools).has_grammar());
}

TEST(AnswerGrammar, AnAnswerOfAFormMayBeCallsInstead) {
  NEEDS_GRAMMARS();
  const Taker taker(caller(CallFormat::hermes), kTools + R"("structured_outputs":{"choice":["yes","no"]},)");
  EXPECT_TRUE(taker.takes("yes"));
  EXPECT_TRUE(taker.takes("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(taker.takes("maybe"));
}

TEST(AnswerGrammar, BeginsBehindTheReasoning) {
  NEEDS_GRAMMARS();
  ServedModel model = test::storyteller();
  model.syntax.think_begin = "<think>", model.syntax.think_end = "</think>";
  model.chat_template = ChatTemplate::parse("{{ messages[-1].content }}<think>\n", "t", {});
  const Taker taker(std::move(model), R"("guided_choice":["yes"],)");
  EXPECT_TRUE(taker.takes("hm, so\n</think>\n\nyes"));
  EXPECT_FALSE(taker.takes("hm, so\n</think>\n\nno"));
  EXPECT_FALSE(taker.takes("yes")) << "it is in its reasoning";
}

TEST(AnswerGrammar, SaysWhatIsWrong) {
  NEEDS_GRAMMARS();
  const auto refusal = [](const std::string& members, ServedModel model = test::storyteller()) {
    try {
      const Taker taker(std::move(model), members);
    } catch (const ApiError& error) { return fmt::format("{} {} {}", error.status(), error.param(), error.what()); }
    return std::string("nothing");
  };
  EXPECT_THAT(refusal(R"("guided_regex":"(",)"),
              HasSubstr("400 guided_regex \"guided_regex\": the regular expression"));
  EXPECT_THAT(refusal(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"nothing"}}},)"),
              HasSubstr("400 response_format \"response_format\": the JSON schema"));
  EXPECT_THAT(refusal(R"("guided_regex":")" + std::string(3000, '(') + R"(",)"),
              HasSubstr("has 3000 brackets inside each other"));
  EXPECT_THAT(refusal(kTools + R"("tool_choice":"required","guided_regex":"a",)", caller(CallFormat::hermes)),
              HasSubstr("forces a call, and \"guided_regex\" says of which form the answer is"));
  ServedModel wordless = test::storyteller();
  wordless.grammars = nullptr;
  EXPECT_THAT(refusal(R"("guided_regex":"a",)", std::move(wordless)), HasSubstr("need a tokenizer"));
}

}  // namespace
}  // namespace of_grammars
}  // namespace megalith::serve
