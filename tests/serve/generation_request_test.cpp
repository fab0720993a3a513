// What is read of a request, and what is said of one that is not understood.
#include "megalith/serve/generation_request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/serve/api_error.h"

namespace megalith::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerationRequest chat(const std::string& members) {
  return read_generation_request(Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],)" + members + "}");
}
GenerationRequest completion(const std::string& members) {
  return read_generation_request(Api::completion, R"({"prompt":"Once",)" + members + "}");
}

TEST(GenerationRequest, HasDefaults) {
  const GenerationRequest request = read_generation_request(Api::completion, R"({"prompt":"Once"})");
  EXPECT_THAT(request.prompts, ElementsAre(Prompt("Once")));
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.model || request.max_tokens || request.sampling.temperature || request.sampling.seed);
  EXPECT_FALSE(request.stream || request.include_usage || request.logprobs || request.echo || request.ignore_eos);
  EXPECT_TRUE(request.skip_special_tokens);
}

TEST(GenerationRequest, ReadsEveryMember) {
  const GenerationRequest request = chat(
      R"("model":"m","max_tokens":7,"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,"repetition_penalty":1.1,)"
      R"("presence_penalty":-2,"frequency_penalty":2,"seed":42,"stop":["a","b"],"stop_token_ids":[9,3],"n":3,)"
      R"("ignore_eos":true,"skip_special_tokens":false,"logprobs":true,"cache_salt":"s","priority":-3,"stream":true,)"
      R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},"add_generation_prompt":false)");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 2);
  EXPECT_EQ(request.sampling.seed, 42);
  EXPECT_THAT(request.stops, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_token_ids, ElementsAre(3, 9));
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.priority, -3);
  EXPECT_TRUE(request.ignore_eos && request.logprobs && request.stream);
  EXPECT_TRUE(request.include_usage && request.continuous_usage);
  EXPECT_FALSE(request.skip_special_tokens || request.add_generation_prompt);
}

TEST(GenerationRequest, NullIsAbsentAndUnknownIsIgnored) {
  const GenerationRequest request = chat(
      R"("max_tokens":null,"temperature":null,"stop":null,"seed":null,"n":null,"stream":null,"tools":null,"logprobs":null,)"
      R"("stream_options":null,"parallel_tool_calls":true,"user":"u","metadata":{"a":1},"store":true,"x_new":[1,{"y":2}])");
  EXPECT_FALSE(request.max_tokens || request.sampling.temperature || request.sampling.seed || request.stream);
  EXPECT_EQ(request.n, 1);
}

TEST(GenerationRequest, ValuesThatChangeNothingAreNoWishes) {
  chat(
      R"("tools":[],"tool_choice":"none","response_format":{"type":"text"},"logit_bias":{},"top_logprobs":0,"best_of":1,)"
      R"("min_tokens":0,"bad_words":[],"modalities":["text"],"include_stop_str_in_output":false,"grammar":"")");
  completion(R"("suffix":"","use_beam_search":false,"n_probs":0)");
}

TEST(GenerationRequest, TheNewNameOfMaxTokensCounts) {
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":9)").max_tokens, 9);
  EXPECT_EQ(completion(R"("n_predict":5)").max_tokens, 5);
  EXPECT_EQ(completion(R"("max_tokens":-1)").max_tokens, 1 << 24);
  EXPECT_EQ(completion(R"("max_tokens":9223372036854775807)").max_tokens, 1 << 24);
}

TEST(GenerationRequest, PromptsHaveFourForms) {
  const auto prompts = [](const std::string& json) {
    return read_generation_request(Api::completion, R"({"prompt":)" + json + "}").prompts;
  };
  using Ids = std::vector<int>;
  EXPECT_THAT(prompts(R"("a")"), ElementsAre(Prompt("a")));
  EXPECT_THAT(prompts(R"(["a","b"])"), ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1,2]"), ElementsAre(Prompt(Ids{1, 2})));
  EXPECT_THAT(prompts("[[1,2],[3]]"), ElementsAre(Prompt(Ids{1, 2}), Prompt(Ids{3})));
  EXPECT_THAT(prompts(R"([[1,2],"b"])"), ElementsAre(Prompt(Ids{1, 2}), Prompt("b")));
}

TEST(GenerationRequest, PartsOfAMessageAreJoined) {
  const GenerationRequest request = read_generation_request(
      Api::chat, R"({"messages":[{"role":"developer","content":"Be kind."},)"
                 R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},)"
                 R"({"role":"assistant","content":null,"reasoning":"hm"}]})");
  ASSERT_EQ(request.messages.size(), 3U);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[1].content, "a\nb");
  EXPECT_EQ(request.messages[1].name, "n");
  EXPECT_EQ(request.messages[2].content, "");
  EXPECT_EQ(request.messages[2].reasoning, "hm");
}

TEST(GenerationRequest, AResponseIsAChat) {
  const GenerationRequest request = read_generation_request(
      Api::responses, R"({"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},)"
                      R"({"role":"assistant","content":"b"}],"instructions":"Be kind.","max_output_tokens":7,)"
                      R"("text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},"store":true})");
  ASSERT_EQ(request.messages.size(), 3U);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[1].content, "a");
  EXPECT_EQ(request.messages[2].content, "b");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.variables.size(), 1U);
}

TEST(GenerationRequest, ReadsToolsAndCalls) {
  const GenerationRequest request = read_generation_request(
      Api::chat,
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"r"}]}],"parallel_tool_calls":false,)"
      R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"integer"},"b":{"anyOf":[]},"c":{"type":"string"}}}}}],"tool_choice":"auto"})");
  ASSERT_EQ(request.messages.size(), 3U);
  ASSERT_EQ(request.messages[1].tool_calls.size(), 2U);
  EXPECT_EQ(request.messages[1].tool_calls[0].id, "c1");
  EXPECT_EQ(request.messages[1].tool_calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(request.messages[1].tool_calls[1].name, "g");
  EXPECT_EQ(request.messages[1].tool_calls[1].arguments, "{}");
  EXPECT_EQ(request.messages[2].tool_call_id, "c1");
  EXPECT_EQ(request.messages[2].content, "r");
  ASSERT_EQ(request.tool_types.size(), 1U);
  EXPECT_EQ(request.tool_types[0].name, "f");
  EXPECT_THAT(request.tool_types[0].types,
              ElementsAre(std::pair("a", "integer"), std::pair("b", ""), std::pair("c", "string")));
  ASSERT_EQ(request.tools.size(), 1U);
  EXPECT_EQ(
      request.tools[0],
      TemplateValue::from_json(
          R"({"type":"function","function":{"name":"f","description":"d",)"
          R"("parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"anyOf":[]},"c":{"type":"string"}}}}})",
          "t"));
  EXPECT_FALSE(request.parallel_tool_calls);
}

TEST(GenerationRequest, WithoutAChoiceThereAreNoTools) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(chat(tools).tools.size(), 1U);
  EXPECT_TRUE(chat(tools).parallel_tool_calls);
  const GenerationRequest none = chat(tools + R"(,"tool_choice":"none")");
  EXPECT_TRUE(none.tools.empty() && none.tool_types.empty());
}

TEST(GenerationRequest, AResponsesItemsAreMessages) {
  const GenerationRequest request = read_generation_request(
      Api::responses, R"({"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"content":)"
                      R"([{"type":"reasoning_text","text":"hm"}]},{"role":"assistant","content":"b"},)"
                      R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},)"
                      R"({"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},)"
                      R"({"type":"function_call_output","call_id":"c1","output":"r"},)"
                      R"({"type":"function_call","call_id":"c3","name":"h","arguments":"{}"}],)"
                      R"("tools":[{"type":"function","name":"f","parameters":{},"strict":true}]})");
  ASSERT_EQ(request.messages.size(), 4U);
  EXPECT_EQ(request.messages[1].reasoning, "hm");
  EXPECT_EQ(request.messages[1].content, "b");
  ASSERT_EQ(request.messages[1].tool_calls.size(), 2U);
  EXPECT_EQ(request.messages[1].tool_calls[1].name, "g");
  EXPECT_EQ(request.messages[2].role, "tool");
  EXPECT_EQ(request.messages[2].tool_call_id, "c1");
  EXPECT_EQ(request.messages[2].content, "r");
  EXPECT_EQ(request.messages[3].tool_calls.size(), 1U);
  EXPECT_FALSE(request.messages[3].reasoning);
  ASSERT_EQ(request.tools.size(), 1U);
  EXPECT_EQ(request.tools[0], TemplateValue::from_json(
                                  R"({"type":"function","function":{"name":"f","parameters":{},"strict":true}})", "t"));
}

struct Bad {
  Api api;
  const char* body;
  const char* type;
  const char* param;
  const char* message;
};

class GenerationRequestRefuses : public ::testing::TestWithParam<Bad> {};

TEST_P(GenerationRequestRefuses, ByName) {
  const Bad& bad = GetParam();
  try {
    read_generation_request(bad.api, bad.body);
    FAIL() << bad.body;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400) << bad.body;
    EXPECT_EQ(error.type(), bad.type) << bad.body;
    EXPECT_EQ(error.param(), bad.param) << bad.body;
    EXPECT_THAT(error.what(), HasSubstr(bad.message)) << bad.body;
  }
}

constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kUnsupported = "not_supported_error";
INSTANTIATE_TEST_SUITE_P(
    Bodies, GenerationRequestRefuses,
    ::testing::Values(
        Bad{Api::chat, "", kInvalid, "", "the request's body is not JSON, near byte"},
        Bad{Api::chat, "{", kInvalid, "", "the request's body is not JSON, near byte"},
        Bad{Api::chat, "[]", kInvalid, "", "the request's body is an array of 0, want a JSON object"},
        Bad{Api::chat, "42", kInvalid, "", "is 42, want a JSON object"},
        Bad{Api::chat, "null", kInvalid, "", "is null, want a JSON object"},
        Bad{Api::chat, R"({"n":1,"n":2})", kInvalid, "", "stands twice"},
        Bad{Api::chat, "{}", kInvalid, "messages", "lacks \"messages\""},
        Bad{Api::chat, R"({"messages":[]})", kInvalid, "messages", "has 0 messages"},
        Bad{Api::chat, R"({"messages":"Hi"})", kInvalid, "messages", "\"messages\" is \"Hi\", want an array"},
        Bad{Api::chat, R"({"messages":["Hi"]})", kInvalid, "messages", "\"messages[0]\" is \"Hi\", want an object"},
        Bad{Api::chat, R"({"messages":[{"content":"Hi"}]})", kInvalid, "messages", "lacks \"role\""},
        Bad{Api::chat, R"({"messages":[{"role":"king","content":"Hi"}]})", kInvalid, "messages",
            "\"messages[0].role\" is \"king\", want one of system, developer, user, assistant"},
        Bad{Api::chat, R"({"messages":[{"role":"user"}]})", kInvalid, "messages", "lacks \"content\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":3}]})", kInvalid, "messages",
            "\"messages[0].content\" is 3, want a string or an array of parts"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", kUnsupported, "messages",
            "part of type \"image_url\""},
        Bad{Api::chat, R"({"messages":[{"role":"function","content":"3"}]})", kUnsupported, "messages",
            "use \"tool_calls\" and the role tool"},
        Bad{Api::chat, R"({"messages":[{"role":"tool"}]})", kInvalid, "messages", "lacks \"content\""},
        Bad{Api::chat, R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]})", kInvalid, "messages",
            "\"messages[0].tool_calls[0]\" lacks \"function\""},
        Bad{Api::chat, R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"a b"}}]}]})", kInvalid,
            "messages", "\"messages[0].tool_calls[0].function.name\" is \"a b\", want 1 to 256 letters"},
        Bad{Api::chat, R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":{}}}]}]})",
            kInvalid, "messages", "arguments\" is an object of 0, want a string"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}]})", kInvalid,
            "tools", "\"tools[0]\" lacks \"function\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tools":{}})", kInvalid, "tools",
            "want an array"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"web_search"}]})", kUnsupported,
            "tools", "of type \"web_search\", but this server takes only tools of type \"function\""},
        Bad{Api::chat,
            R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"a","parameters":1}}]})",
            kInvalid, "tools", "want a JSON schema"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tool_choice":"required"})", kInvalid,
            "tool_choice", "\"tool_choice\" forces a call, but there are no \"tools\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tool_choice":{"type":"function"}})", kInvalid,
            "tool_choice", "\"tool_choice\" lacks \"function\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tool_choice":{"type":"allowed_tools"}})",
            kUnsupported, "tool_choice", "is of type \"allowed_tools\""},
        Bad{Api::chat,
            R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"a"}}],)"
            R"("tool_choice":{"type":"function","function":{"name":"b"}}})",
            kInvalid, "tool_choice", "names the function \"b\", which is none of \"tools\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"tool_choice":"maybe"})", kInvalid,
            "tool_choice", "is \"maybe\", want \"auto\", \"none\", \"required\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"functions":[{"name":"a"}]})", kUnsupported,
            "functions", "functions beside \"tools\""},
        Bad{Api::completion, R"({"prompt":"a","tools":[{"type":"function"}]})", kUnsupported, "tools",
            "use /v1/chat/completions"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"xml"}})", kInvalid,
            "response_format", "is \"xml\", want \"text\", \"json_object\", \"json_schema\" or \"structural_tag\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_schema"}})",
            kInvalid, "response_format", "lacks \"json_schema\""},
        Bad{Api::completion, R"({"prompt":"a","response_format":{"type":"json_object"},"guided_regex":"a"})", kInvalid,
            "guided_regex", "\"response_format\" and \"guided_regex\" both say of which form the answer is"},
        Bad{Api::completion, R"({"prompt":"a","structured_outputs":{"regex":"a","json_object":true}})", kInvalid,
            "structured_outputs", "has several forms of an answer"},
        Bad{Api::completion, R"({"prompt":"a","structured_outputs":{"structural_tag":"{}"}})", kInvalid,
            "structured_outputs", "lacks \"structures\""},
        Bad{Api::completion, R"({"prompt":"a","structured_outputs":{"structural_tag":"{\"format\":"}})", kInvalid,
            "structured_outputs", "the structural tag"},
        Bad{Api::completion,
            R"({"prompt":"a","response_format":{"type":"structural_tag","triggers":[],"structures":[{"begin":"<a>","end":""}]}})",
            kInvalid, "response_format", "lacks \"schema\""},
        Bad{Api::completion, R"({"prompt":"a","guided_choice":[]})", kInvalid, "guided_choice", "want 1 to 4096"},
        Bad{Api::completion, R"({"prompt":"a","guided_json":7})", kInvalid, "guided_json", "want a JSON schema"},
        Bad{Api::responses, R"({"input":"a","text":{"format":{"type":"json_schema","name":"a"}}})", kInvalid, "text",
            "lacks \"schema\""},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"logit_bias":{"3":100.5}})", kInvalid,
            "logit_bias", "\"logit_bias.3\" is 100.5, want -100 to 100"},
        Bad{Api::responses, R"({"input":"a","logit_bias":{"x":1}})", kInvalid, "logit_bias",
            "\"logit_bias\" names \"x\", want token ids"},
        Bad{Api::completion, R"({"prompt":"a","logit_bias":{"-3":1}})", kInvalid, "logit_bias", "names \"-3\""},
        Bad{Api::completion, R"({"prompt":"a","logit_bias":{"3":1,"03":2}})", kInvalid, "logit_bias",
            "names the token 3 twice"},
        Bad{Api::completion, R"({"prompt":"a","logit_bias":{"3":"1"}})", kInvalid, "logit_bias", "want a number"},
        Bad{Api::completion, R"({"prompt":"a","logit_bias":[1]})", kInvalid, "logit_bias",
            "want an object of token ids"},
        Bad{Api::completion, R"({"prompt":"a","min_tokens":-1})", kInvalid, "min_tokens", "is -1, want 0 to"},
        Bad{Api::completion, R"({"prompt":"a","stop_token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]})", kInvalid,
            "stop_token_ids", "\"stop_token_ids\" has 17 ids, want at most 16"},
        Bad{Api::completion, R"({"prompt":"a","stop_token_ids":[-1]})", kInvalid, "stop_token_ids", "is -1, want 0 to"},
        Bad{Api::completion, R"({"prompt":"a","allowed_token_ids":7})", kInvalid, "allowed_token_ids", "want an array"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"top_logprobs":2})", kInvalid, "top_logprobs",
            "needs \"logprobs\": true"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":21})", kInvalid,
            "top_logprobs", "want 0 to 20"},
        Bad{Api::responses, R"({"input":"Hi","top_logprobs":2})", kUnsupported, "top_logprobs", "is a member of chats"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"chat_template":"{{x}}"})", kUnsupported,
            "chat_template", "programs"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"messages":1}})",
            kInvalid, "chat_template_kwargs", "names \"messages\""},
        Bad{Api::responses, "{}", kInvalid, "input", "lacks \"input\""},
        Bad{Api::responses, R"({"input":[]})", kInvalid, "input", "want a string or an array"},
        Bad{Api::responses, R"({"input":[{"type":"computer_call"}]})", kUnsupported, "input", "only messages"},
        Bad{Api::responses, R"({"input":[{"type":"function_call"}]})", kInvalid, "input", "lacks \"call_id\""},
        Bad{Api::responses, R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", kUnsupported, "input",
            "\"input_image\""},
        Bad{Api::responses, R"({"input":"a","previous_response_id":"resp_1"})", kUnsupported, "previous_response_id",
            "memory of earlier answers"},
        Bad{Api::completion, "{}", kInvalid, "prompt", "lacks \"prompt\""},
        Bad{Api::completion, R"({"prompt":[]})", kInvalid, "prompt", "is empty"},
        Bad{Api::completion, R"({"prompt":{}})", kInvalid, "prompt", "want a string, an array"},
        Bad{Api::completion, R"({"prompt":[1,"a"]})", kInvalid, "prompt", "mixes"},
        Bad{Api::completion, R"({"prompt":[-1]})", kInvalid, "prompt", "\"prompt[0]\" is -1, want 0 to"},
        Bad{Api::completion, R"({"prompt":[1.5]})", kInvalid, "prompt", "want a whole number"},
        Bad{Api::completion, R"({"prompt":"a","temperature":"hot"})", kInvalid, "temperature",
            "is \"hot\", want a number"},
        Bad{Api::completion, R"({"prompt":"a","temperature":-0.1})", kInvalid, "temperature", "want 0 to 99"},
        Bad{Api::completion, R"({"prompt":"a","temperature":NaN})", kInvalid, "temperature", "want 0 to 99"},
        Bad{Api::completion, R"({"prompt":"a","top_p":1.1})", kInvalid, "top_p", "want 0 to 1"},
        Bad{Api::completion, R"({"prompt":"a","n":0})", kInvalid, "n", "want 1 to 128"},
        Bad{Api::completion, R"({"prompt":"a","n":129})", kInvalid, "n", "want 1 to 128"},
        Bad{Api::completion, R"({"prompt":"a","max_tokens":0})", kInvalid, "max_tokens",
            "want at least 1; 0 is for completions with \"echo\""},
        Bad{Api::completion, R"({"prompt":"a","max_tokens":"9"})", kInvalid, "max_tokens", "want a whole number"},
        Bad{Api::completion, R"({"prompt":"a","seed":1e300})", kInvalid, "seed", "want"},
        Bad{Api::completion, R"({"prompt":"a","cache_salt":""})", kInvalid, "cache_salt",
            "has 0 bytes, want 1 to 1024"},
        Bad{Api::chat, R"({"messages":[{"role":"user","content":"Hi"}],"cache_salt":7})", kInvalid, "cache_salt",
            "is 7, want a string"},
        Bad{Api::completion, R"({"prompt":"a","stream":"yes"})", kInvalid, "stream", "want true or false"},
        Bad{Api::completion, R"({"prompt":"a","stream_options":{"include_usage":true}})", kInvalid, "stream_options",
            "\"stream\" is not true"},
        Bad{Api::completion, R"({"prompt":"a","stop":[1]})", kInvalid, "stop", "want a string"},
        Bad{Api::completion, R"({"prompt":"a","stop":7})", kInvalid, "stop", "want a string or an array"},
        Bad{Api::completion, R"({"prompt":"a","logprobs":21})", kInvalid, "logprobs", "want 0 to 20"},
        Bad{Api::completion, R"({"prompt":"a","bad_words":[7]})", kInvalid, "bad_words", "want a string"},
        Bad{Api::completion, R"({"prompt":"a","prompt_logprobs":-1})", kInvalid, "prompt_logprobs", "want 0 to 20"},
        Bad{Api::completion, R"({"prompt":"a","prompt_logprobs":1,"stream":true})", kUnsupported, "prompt_logprobs",
            "a stream has no place"},
        Bad{Api::responses, R"({"input":"a","prompt_logprobs":1})", kUnsupported, "prompt_logprobs", "no place"},
        Bad{Api::completion, R"({"prompt":"a","suffix":"b"})", kUnsupported, "suffix", "suffix"},
        Bad{Api::completion, R"({"prompt":"a","model":3})", kInvalid, "model", "want a string"}));

TEST(GenerationRequest, DeepAndWideBodiesAreRefusedWithoutHarm) {
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string deep = R"({"messages":)";
    for (int i = 0; i < 500'000; ++i) deep += bracket;
    EXPECT_THROW(read_generation_request(Api::chat, deep), ApiError);
  }
  std::string stops = R"({"prompt":"a","stop":["x")", prompts = R"({"prompt":["x")";
  for (int i = 0; i < 2000; ++i) stops += ",\"x\"", prompts += ",\"x\"";
  EXPECT_THROW(read_generation_request(Api::completion, stops + "]}"), ApiError);
  std::string biases = R"({"prompt":"a","logit_bias":{"0":1)", allowed = R"({"prompt":"a","allowed_token_ids":[0)";
  for (int i = 1; i < 300; ++i) {
    biases += fmt::format(R"(,"{}":1)", i);
    allowed += fmt::format(",{},0", i);
  }
  EXPECT_EQ(read_generation_request(Api::completion, biases + "}}").logit_bias.size(), 300U);
  EXPECT_EQ(read_generation_request(Api::completion, allowed + "]}").allowed_token_ids.size(), 300U);
  EXPECT_THROW(read_generation_request(Api::completion, biases + R"(,"300":1}})"), ApiError);
  EXPECT_THROW(read_generation_request(Api::completion, allowed + ",300]}"), ApiError);
  EXPECT_THROW(read_generation_request(Api::completion, prompts + "]}"), ApiError);
  EXPECT_THROW(completion(R"("stop":")" + std::string(2000, 'x') + "\""), ApiError);
}

TEST(ApiError, IsWhatClientsRead) {
  EXPECT_EQ(ApiError::invalid("a \"b\"\n", "p").json(),
            R"({"error":{"message":"a \"b\"\\n","type":"invalid_request_error","param":"p","code":400}})");
  const HttpReply reply = ApiError::of_status(429, "full").with("n", "3").retry_after(2).reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.body, R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":429,"n":3}})");
  EXPECT_THAT(reply.headers, ElementsAre(std::pair("Retry-After", "2")));
}

}  // namespace
}  // namespace megalith::serve
