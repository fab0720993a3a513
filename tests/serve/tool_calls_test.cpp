// Calls of tools and reasoning from a request to its answer: the prompt, as transformers lays it out, and what clients read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/base/file.h"
#include "megalith/serve/answer.h"
#include "megalith/serve/api_error.h"
#include "serve/storyteller.h"

namespace megalith::serve {
namespace {

using engine::RequestEnd;
using OrderedJson = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

// The bundled tokenizer, with markers as special tokens.
const Tokenizer& marked_tokenizer() {
  static const Tokenizer tokenizer = [] {
    OrderedJson json = OrderedJson::parse(file_read(MEGALITH_SOURCE_DIR "/models/storyteller/tokenizer.json"));
    int id = 4096;
    for (const char* marker : {"<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>"}) {
      OrderedJson token = json["added_tokens"][0];
      token["id"] = id++;
      token["content"] = marker;
      json["added_tokens"].push_back(token);
    }
    return Tokenizer::parse(json.dump(), "marked");
  }();
  return tokenizer;
}

ServedModel caller(AnswerSyntax syntax, const std::string& source = "{{ messages[-1].content }}") {
  ServedModel model = test::storyteller();
  model.vocab_size = 4101;
  model.max_seq_len = 4096;
  model.tokenizer = &marked_tokenizer();
  model.chat_template = ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  model.syntax = std::move(syntax);
  return model;
}

const AnswerSyntax kHermesSyntax = {CallFormat::hermes, "<think>", "</think>"};
const std::string kWeatherTool =
    R"({"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}})";
const std::string kToldCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";

class Told {
 public:
  explicit Told(const std::string& members, Api api = Api::chat, ServedModel model = caller(kHermesSyntax))
      : model_(std::move(model)), answer_(model_, prepare(model_, request(api, members)), "id-1", 1000) {}

  /// The model writes it; what a client is streamed.
  std::string tell(const std::string& text, RequestEnd end = RequestEnd::stop) {
    std::string chunks;
    for (const int token : marked_tokenizer().encode(text, false)) chunks += take({.token = token, .logprob = -1});
    chunks +=
        take(end == RequestEnd::stop ? engine::RequestEvent{.token = 0, .end = end} : engine::RequestEvent{.end = end});
    return answer_.is_complete() ? chunks + answer_.last_chunks() : chunks;
  }
  OrderedJson whole(const std::string& text, RequestEnd end = RequestEnd::stop) {
    tell(text, end);
    return OrderedJson::parse(answer_.body());
  }
  Answer* operator->() { return &answer_; }
  int aborts() const { return aborts_; }

 private:
  static GenerationRequest request(Api api, const std::string& members) {
    const char* prompt = api == Api::chat ? R"({"messages":[{"role":"user","content":"Hi"}],)" : R"({"input":"Hi",)";
    return read_generation_request(api, prompt + members + "}");
  }
  std::string take(const engine::RequestEvent& event) {
    const AnswerStep step = answer_.take(0, event);
    aborts_ += step.wants_abort;
    return step.chunks;
  }

  ServedModel model_;
  Answer answer_;
  int aborts_ = 0;
};

const std::string kAskedTools = "\"tools\":[" + kWeatherTool + "]";

// The deltas of a stream, and its finish_reason.
std::pair<std::vector<OrderedJson>, std::string> deltas_of(std::string chunks) {
  std::vector<OrderedJson> deltas;
  std::string finish;
  while (!chunks.empty()) {
    const size_t end = chunks.find("\n\n");
    const std::string data = chunks.substr(6, end - 6);
    chunks.erase(0, end + 2);
    if (data == "[DONE]") continue;
    const OrderedJson choice = OrderedJson::parse(data)["choices"][0];
    deltas.push_back(choice["delta"]);
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  return {deltas, finish};
}

TEST(ToolCalls, AreStreamedNameFirst) {
  Told told(kAskedTools + R"(,"stream":true)");
  auto [deltas, finish] = deltas_of(told.tell("I look.\n" + kToldCall));
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(deltas[0], OrderedJson::parse(R"({"role":"assistant","content":""})"));
  std::string content, arguments, id;
  int begun = 0;
  for (size_t i = 1; i < deltas.size(); ++i) {
    content += deltas[i].value("content", "");
    if (!deltas[i].contains("tool_calls")) continue;
    ASSERT_EQ(deltas[i]["tool_calls"].size(), 1U);
    const OrderedJson& call = deltas[i]["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    if (call.contains("id")) {
      ++begun;
      id = call["id"];
      EXPECT_EQ(call["type"], "function");
      EXPECT_EQ(call["function"], OrderedJson::parse(R"({"name":"weather","arguments":""})"));
      EXPECT_EQ(arguments, "");
    } else {
      EXPECT_EQ(call.size(), 2U);
      EXPECT_EQ(call["function"].size(), 1U);
      arguments += call["function"]["arguments"];
    }
  }
  EXPECT_EQ(begun, 1);
  EXPECT_TRUE(id.starts_with("call_") && id.size() == 29) << id;
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(arguments, R"({"city": "Rome"})");
  EXPECT_EQ(deltas.back(), OrderedJson::object());
}

TEST(ToolCalls, StandInTheMessage) {
  Told told(kAskedTools);
  const OrderedJson choice = told.whole(kToldCall + "\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>")["choices"][0];
  OrderedJson message = choice["message"];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  for (OrderedJson& call : message["tool_calls"]) call.erase("id");
  EXPECT_EQ(message, OrderedJson::parse(
                         R"({"role":"assistant","content":null,"tool_calls":[)"
                         R"({"type":"function","function":{"name":"weather","arguments":"{\"city\": \"Rome\"}"}},)"
                         R"({"type":"function","function":{"name":"now","arguments":"{}"}}]})"));
}

TEST(ToolCalls, WithoutArgumentsStreamAnEmptyObject) {
  for (const char* call :
       {"{\"name\": \"now\"}", "{\"name\": \"now\", \"arguments\": {}}", "{\"name\": \"now\", \"arguments\": null}"}) {
    Told told(kAskedTools + R"(,"stream":true)");
    std::string arguments;
    for (const OrderedJson& delta : deltas_of(told.tell(fmt::format("<tool_call>{}</tool_call>", call))).first)
      if (delta.contains("tool_calls")) arguments += delta["tool_calls"][0]["function"]["arguments"];
    EXPECT_EQ(arguments, "{}") << call;
  }
}

// However far an answer comes, what is streamed is what the whole one says.
TEST(ToolCalls, AStreamIsTheWholeInParts) {
  const std::string text = "<think>\nhm\n</think>\n\nI look.\n" + kToldCall + "\n" + kToldCall + " So é🙂.";
  const size_t count = marked_tokenizer().encode(text, false).size();
  for (size_t tokens = 0; tokens <= count; ++tokens) {
    const auto all = marked_tokenizer().encode(text, false);
    const std::string cut =
        marked_tokenizer().decode(std::vector<int>(all.begin(), all.begin() + static_cast<long>(tokens)), false);
    Told whole(kAskedTools), stream(kAskedTools + R"(,"stream":true)");
    const OrderedJson choice = whole.whole(cut, RequestEnd::length)["choices"][0];
    OrderedJson message = choice["message"], joined = {{"role", "assistant"}, {"content", ""}};
    const auto [deltas, finish] = deltas_of(stream.tell(cut, RequestEnd::length));
    for (const OrderedJson& delta : deltas) {
      for (const char* key : {"content", "reasoning_content", "reasoning"})
        if (delta.contains(key)) joined[key] = joined.value(key, "") + delta[key].get<std::string>();
      if (!delta.contains("tool_calls")) continue;
      const OrderedJson& part = delta["tool_calls"][0];
      const size_t index = part["index"];
      if (part.contains("id"))
        joined["tool_calls"][index] = {{"type", "function"}, {"function", part["function"]}};
      else
        joined["tool_calls"][index]["function"]["arguments"] =
            joined["tool_calls"][index]["function"]["arguments"].get<std::string>() +
            part["function"]["arguments"].get<std::string>();
    }
    if (message.contains("tool_calls"))
      for (OrderedJson& call : message["tool_calls"]) call.erase("id");
    if (message["content"].is_null()) message["content"] = "";
    for (const char* key : {"content", "reasoning_content", "reasoning", "tool_calls"})
      EXPECT_EQ(message.value(key, OrderedJson()), joined.value(key, OrderedJson())) << cut;
    // A call that is cut is not reported as one to act on.
    EXPECT_EQ(finish, "length");
    EXPECT_EQ(choice["finish_reason"], "length");
  }
}

TEST(ToolCalls, OneThatBreaksOffIsNoReasonToCall) {
  Told told(kAskedTools);
  const OrderedJson choice =
      told.whole(kToldCall + "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ")["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 2U);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(ToolCalls, OneIsEnoughIfNoMoreAreWanted) {
  Told told(kAskedTools + R"(,"parallel_tool_calls":false)");
  const OrderedJson choice = told.whole(kToldCall + kToldCall + kToldCall)["choices"][0];
  EXPECT_EQ(told.aborts(), 1);
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST(ToolCalls, WithoutToolsNothingIsACall) {
  for (const std::string& members : {std::string("\"n\":1"), kAskedTools + R"(,"tool_choice":"none")"}) {
    Told told(members);
    const OrderedJson choice = told.whole("a <tool_call>{\"name\": \"now\"}")["choices"][0];
    // As special tokens the markers are not shown then.
    EXPECT_EQ(choice["message"]["content"], "a {\"name\": \"now\"}");
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST(ToolCalls, LogprobsAreOfAllTokens) {
  for (const bool stream : {false, true}) {
    Told told(kAskedTools + R"(,"logprobs":true,"stream":)" + (stream ? "true" : "false"));
    const std::string text = "<think>a</think>Ok." + kToldCall;
    const std::string chunks = told.tell(text);
    std::string all;
    const auto add = [&](const OrderedJson& choice) {
      if (!choice["logprobs"].is_null())
        for (const OrderedJson& one : choice["logprobs"]["content"]) all += one["token"];
    };
    if (stream)
      for (size_t at = 0; (at = chunks.find("data: {", at)) != std::string::npos; ++at)
        add(OrderedJson::parse(chunks.substr(at + 6, chunks.find("\n\n", at) - at - 6))["choices"][0]);
    else
      add(OrderedJson::parse(told->body())["choices"][0]);
    EXPECT_EQ(all, text);
  }
}

TEST(ToolCalls, MistralsNamesHaveNineCharacters) {
  const std::string source =
      "{% for m in messages %}{% for c in m.tool_calls %}<{{ c.id }}>{% endfor %}({{ m.tool_call_id }}){% endfor %}";
  const ServedModel model = caller({.calls = CallFormat::mistral}, source);
  Told told(kAskedTools, Api::chat, caller({.calls = CallFormat::mistral}));
  const std::string id = told.whole("[TOOL_CALLS]now[ARGS]{}")["choices"][0]["message"]["tool_calls"][0]["id"];
  EXPECT_EQ(id.size(), 9U);
  const GenerationRequest request = read_generation_request(
      Api::chat, R"({"messages":[{"role":"assistant","tool_calls":[{"id":"call_0123456789","function":{"name":"f"}}]},)"
                 R"({"role":"tool","tool_call_id":"call_0123456789","content":""}]})");
  EXPECT_EQ(model.decode(model.encode(request).tokens), "<123456789>()(123456789)");
}

TEST(Reasoning, IsNoContent) {
  Told told("\"n\":1");
  const OrderedJson body = told.whole("<think>\nLet me see.\n</think>\n\nIt rains.");
  EXPECT_EQ(
      body["choices"][0]["message"],
      OrderedJson::parse(
          R"({"role":"assistant","content":"It rains.","reasoning_content":"Let me see.","reasoning":"Let me see."})"));
  const int64_t reasoning = body["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_EQ(reasoning, static_cast<int64_t>(marked_tokenizer().encode("<think>\nLet me see.\n</think>", false).size()));
  Told hidden("\"include_reasoning\":false");
  EXPECT_EQ(hidden.whole("<think>\nLet me see.\n</think>\n\nIt rains.")["choices"][0]["message"],
            OrderedJson::parse(R"({"role":"assistant","content":"It rains."})"));
}

TEST(Reasoning, BeginsWhereTheTemplateBeginsIt) {
  const auto message = [](const std::string& source, const std::string& content) {
    ServedModel model = caller(kHermesSyntax, source);
    const PreparedRequest prepared = prepare(
        model, read_generation_request(Api::chat, R"({"messages":[{"role":"user","content":")" + content + R"("}]})"));
    return prepared.begins_reasoning;
  };
  EXPECT_TRUE(message("{{ messages[-1].content }}<think>\n", "a"));
  EXPECT_FALSE(message("{{ messages[-1].content }}<think>\n\n</think>\n\n", "a"));
  EXPECT_FALSE(message("{{ messages[-1].content }}", "a <think>"));  // what a user writes begins nothing
  Told told("\"n\":1", Api::chat, caller(kHermesSyntax, "{{ messages[-1].content }}<think>\n"));
  const OrderedJson choice = told.whole("hm\n</think>\n\nYes.")["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Yes.");
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
}

TEST(Responses, HaveItemsForCallsAndReasoning) {
  const std::string flat = R"("tools":[{"type":"function","name":"weather","parameters":{}}])";
  const std::string text = "<think>hm</think>I look. " + kToldCall;
  Told whole(flat, Api::responses);
  OrderedJson body = whole.whole(text);
  EXPECT_EQ(body["tool_choice"], "auto");
  EXPECT_EQ(body["parallel_tool_calls"], true);
  OrderedJson output = body["output"];
  ASSERT_EQ(output.size(), 3U);
  output[2].erase("call_id");
  EXPECT_EQ(output,
            OrderedJson::parse(R"([{"type":"reasoning","id":"rs_id-1","status":"completed","summary":[],)"
                               R"("content":[{"type":"reasoning_text","text":"hm"}]},)"
                               R"({"type":"message","id":"msg_id-1_1","status":"completed","role":"assistant",)"
                               R"("content":[{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}]},)"
                               R"({"type":"function_call","id":"fc_id-1_2","status":"completed","name":"weather",)"
                               R"("arguments":"{\"city\": \"Rome\"}"}])"));
  EXPECT_GT(body["usage"]["output_tokens_details"]["reasoning_tokens"], 0);

  Told stream(flat + R"(,"stream":true)", Api::responses);
  std::string chunks = stream.tell(text), arguments;
  std::vector<std::string> names;
  OrderedJson last;
  for (int64_t number = 0; !chunks.empty(); ++number) {
    const size_t line = chunks.find('\n'), end = chunks.find("\n\n");
    const std::string name = chunks.substr(7, line - 7);
    last = OrderedJson::parse(chunks.substr(line + 7, end - line - 7));
    EXPECT_EQ(last["sequence_number"], number);
    if (name == "response.function_call_arguments.delta") arguments += last["delta"];
    if (name.ends_with(".done") || name.ends_with(".delta"))
      if (last.contains("item_id")) { EXPECT_EQ(last["item_id"], output[last["output_index"].get<size_t>()]["id"]); }
    if (names.empty() || names.back() != name) names.push_back(name);
    chunks.erase(0, end + 2);
  }
  EXPECT_EQ(arguments, R"({"city": "Rome"})");
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "response.created", "response.in_progress", "response.output_item.added",
                         "response.reasoning_text.delta", "response.reasoning_text.done", "response.output_item.done",
                         "response.output_item.added", "response.content_part.added", "response.output_text.delta",
                         "response.output_text.done", "response.content_part.done", "response.output_item.done",
                         "response.output_item.added", "response.function_call_arguments.delta",
                         "response.function_call_arguments.done", "response.output_item.done", "response.completed"));
  OrderedJson streamed = last["response"]["output"];
  streamed[2].erase("call_id");
  EXPECT_EQ(streamed, output);
}

TEST(Prepare, TellsWhereToolsCannotBeCalled) {
  const auto refusal = [](ServedModel model) {
    try {
      prepare(model, read_generation_request(Api::chat,
                                             R"({"messages":[{"role":"user","content":"Hi"}],)" + kAskedTools + "}"));
    } catch (const ApiError& error) { return error.param() + ": " + error.what(); }
    return std::string();
  };
  EXPECT_EQ(refusal(test::storyteller()),
            "tools: \"tools\" are given, but the chat template of this model shows no calls in a form that this server "
            "knows: leave them out, or start the server with --tool-call-parser, which is one of hermes, llama3_json, "
            "mistral, qwen3_xml");
  ServedModel plain = caller(kHermesSyntax);
  plain.chat_template.reset();
  EXPECT_EQ(refusal(std::move(plain)), "tools: this model has no chat template that could tell it of tools");
}

// What a tool found on some page must not look like the end of its result.
TEST(Prepare, NoResultOfAToolBecomesAMarker) {
  ServedModel model = caller({.calls = CallFormat::hermes}, "<tool_response>{{ messages[-1].content }}");
  model.markers = marker_tokens(marked_tokenizer(), call_markers(model.syntax));
  EXPECT_THAT(model.markers, ::testing::ElementsAre(4096, 4097, 4098));
  const auto tokens =
      model.encode(read_generation_request(Api::chat, R"({"messages":[{"role":"tool","content":"a <tool_call> b"}]})"))
          .tokens;
  EXPECT_EQ(std::ranges::count(tokens, 4098), 1);
  EXPECT_EQ(std::ranges::count(tokens, 4096), 0);
}

// The goldens are of messages with arguments as objects; clients send them as text.
TEST(Prepare, PromptsWithToolsAreThoseOfTransformers) {
  const OrderedJson golden = OrderedJson::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/chat.json"));
  int compared = 0;
  for (const OrderedJson& row : golden["cases"]) {
    if (row["messages"] != "call" || !golden["templates"].contains(row["template"].get<std::string>())) continue;
    const std::string name = row["template"];
    SCOPED_TRACE(name);
    OrderedJson body = {{"messages", golden["messages"]["call"]}, {"add_generation_prompt", row["generate"]}};
    for (OrderedJson& message : body["messages"])
      if (message.contains("tool_calls"))
        for (OrderedJson& call : message["tool_calls"])
          call["function"]["arguments"] = call["function"]["arguments"].dump();
    if (row.contains("tools")) body["tools"] = golden["tools"];
    body["chat_template_kwargs"] = row.value("variables", OrderedJson::object());
    body["chat_template_kwargs"]["date"] = "09 Mar 2025";  // of the goldens' clock
    const ServedModel model = caller(kHermesSyntax, golden["templates"][name]);
    try {
      const auto tokens = model.encode(read_generation_request(Api::chat, body.dump())).tokens;
      ASSERT_FALSE(row.contains("error")) << row["error"];
      EXPECT_EQ(model.decode(tokens), row["text"].get<std::string>());
      ++compared;
    } catch (const ApiError& error) { EXPECT_TRUE(row.contains("error")) << error.what(); }
  }
  EXPECT_GE(compared, 24);
}

}  // namespace
}  // namespace megalith::serve
