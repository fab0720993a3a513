// Reasoning and calls of tools in what models write. However a text is cut while it comes, the same pieces are found.
#include "megalith/serve/answer_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "megalith/model/json.h"

namespace megalith::serve {
namespace {

using Kind = AnswerPiece::Kind;

const std::vector<CallableTool> kParsedTools = {
    {"weather", {{"city", "string"}, {"days", "integer"}, {"where", "object"}, {"any", ""}}}, {"now", {}}};
const AnswerSyntax kThinks = {.think_begin = "<think>", .think_end = "</think>"};

class Parsed {
 public:
  Parsed(CallFormat format, AnswerSyntax syntax = {}, bool begins_in_reasoning = false)
      : parser_(syntax, make_call_parser(format, kParsedTools), begins_in_reasoning) {}

  void push(std::string_view text) { add(parser_.push(text)); }
  std::string finish() {
    add(parser_.finish());
    return text();
  }
  // weather({"city": "Rome"}) is a call; "~" stands behind one that has no end; "[...]" is reasoning.
  std::string text() const {
    std::string shown;
    bool is_open = false;
    for (const AnswerPiece& piece : all_.all) {
      if (is_open && piece.kind != Kind::arguments && piece.kind != Kind::call_end) shown += "~";
      if (piece.kind == Kind::reasoning)
        shown += "[" + piece.text + "]";
      else if (piece.kind == Kind::call)
        shown += "{{" + piece.text + "}}(";
      else if (piece.kind == Kind::call_end)
        shown += ")";
      else
        shown += piece.text;
      is_open = piece.kind == Kind::call || piece.kind == Kind::arguments;
    }
    return is_open ? shown + "~" : shown;
  }

 private:
  void add(const AnswerPieces& pieces) {
    for (const AnswerPiece& piece : pieces.all) all_.add(piece.kind, piece.text);
  }
  AnswerParser parser_;
  AnswerPieces all_ = {};
};

struct Case {
  CallFormat format;
  std::string text, pieces;
};

void expect(const Case& one, const AnswerSyntax& syntax = {}, bool begins_in_reasoning = false) {
  SCOPED_TRACE(one.text);
  const auto parsed = [&] { return Parsed(one.format, syntax, begins_in_reasoning); };
  Parsed whole = parsed();
  whole.push(one.text);
  ASSERT_EQ(whole.finish(), one.pieces);
  Parsed bytes = parsed();
  for (const char& byte : one.text) bytes.push({&byte, 1});
  ASSERT_EQ(bytes.finish(), one.pieces) << "byte by byte";
  for (size_t at = 1; at < one.text.size(); ++at) {
    Parsed two = parsed();
    two.push(std::string_view(one.text).substr(0, at));
    two.push(std::string_view(one.text).substr(at));
    ASSERT_EQ(two.finish(), one.pieces) << "cut at " << at;
  }
}

const CallFormat kHermes = CallFormat::hermes, kLlama = CallFormat::llama3_json, kMistral = CallFormat::mistral,
                 kXml = CallFormat::qwen3_xml;

TEST(AnswerParser, FindsHermesCalls) {
  for (const Case& one : std::vector<Case>{
           {kHermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
            "{{weather}}({\"city\": \"Rome\"})"},
           {kHermes, "Let me see.\n\n<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>\n",
            "Let me see.{{now}}({})"},
           {kHermes,
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", "
            "\"arguments\": {\"days\": [1, -2.5e+3, {\"a\": null}], \"x\": true}}\n</tool_call>",
            "{{now}}({}){{weather}}({\"days\": [1, -2.5e+3, {\"a\": null}], \"x\": true})"},
           {kHermes, "<tool_call>{\"name\": \"now\"}</tool_call>", "{{now}}({})"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>", "{{now}}({})"},
           {kHermes, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"now\"}</tool_call>", "{{now}}({\"a\": 1})"},
           {kHermes, "<tool_call>{\"id\": 7, \"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
            "{{now}}({\"a\": 1})"},
           // What looks like a marker in a string is none.
           {kHermes,
            "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"</tool_call> } \\\" \\u00e9é\"}}</tool_call>",
            "{{now}}({\"a\": \"</tool_call> } \\\" \\u00e9é\"})"},
           // Braces too few, too many, no end, calls in a row.
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}</tool_call>ok", "{{now}}({\"a\": 1})ok"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}}\n</tool_call>ok",
            "{{now}}({\"a\": 1})ok"},
           {kHermes, "<tool_call>{\"name\": \"now\"}\n<tool_call>{\"name\": \"weather\"}",
            "{{now}}({}){{weather}}({})"},
           {kHermes, "<tool_call>{\"name\": \"now\"}\n{\"name\": \"weather\"}</tool_call>",
            "{{now}}({}){{weather}}({})"},
           {kHermes, "<tool_call>{\"name\": \"now\"}</tool_call>\n\nDone. </tool_call>",
            "{{now}}({})Done. </tool_call>"},
           {kHermes, "<tool_call>{\"name\": \"now\"} so </tool_call> it is", "{{now}}({})so it is"},
           // A line's end in a string is escaped, as the JSON that it should be.
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"1\n2\t\x01\"}}</tool_call>",
            "{{now}}({\"a\": \"1\\n2\\t\\u0001\"})"}})
    expect(one);
}

TEST(AnswerParser, WhatIsNoHermesCallIsContent) {
  for (const Case& one : std::vector<Case>{
           {kHermes, "", ""},
           {kHermes, " \n", " \n"},
           {kHermes, "1 < 2, <tool>, <<tool_cal", "1 < 2, <tool>, <<tool_cal"},
           {kHermes, "a </tool_call> b", "a </tool_call> b"},
           {kHermes, "Use <tool_call> tags.", "Use <tool_call> tags."},
           {kHermes, "<tool_call>{\"name\": }</tool_call>", "<tool_call>{\"name\": }</tool_call>"},
           {kHermes, "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>"},
           {kHermes, "<tool_call>{\"name\": \"a b\"}</tool_call>", "<tool_call>{\"name\": \"a b\"}</tool_call>"},
           {kHermes, "<tool_call>{\"name\": \"\"}", "<tool_call>{\"name\": \"\"}"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": [1]}",
            "<tool_call>{\"name\": \"now\", \"arguments\": [1]}"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": \"[1]\"}",
            "<tool_call>{\"name\": \"now\", \"arguments\": \"[1]\"}"},
           {kHermes, "<tool_call>{}", "<tool_call>{}"},
           {kHermes, "<tool_call>{'name': 'now'}</tool_call>", "<tool_call>{'name': 'now'}</tool_call>"},
           {kHermes, "\n<tool_call>\n<tool_call>\n{\"name\": \"now\"}", "\n<tool_call>\n{{now}}({})"},
           {kHermes, "<tool_call>{\"name\": \"no</tool_call> <tool_call>{\"name\": \"now\"}",
            "<tool_call>{\"name\": \"no</tool_call>{{now}}({})"}})
    expect(one);
}

TEST(AnswerParser, ACallThatBreaksKeepsWhatItHad) {
  for (const Case& one : std::vector<Case>{
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": tru}}</tool_call> Sorry.",
            "{{now}}({\"a\": ~}} Sorry."},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1,}}</tool_call>", "{{now}}({\"a\": 1,~}}"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 01}}", "{{now}}({\"a\": ~}}"},
           {kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"\\x\"}}", "{{now}}({\"a\": \"\\~x\"}}"}})
    expect(one);
}

TEST(AnswerParser, FindsLlamaCalls) {
  for (const Case& one : std::vector<Case>{
           {kLlama, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}",
            "{{weather}}({\"city\": \"Rome\"})"},
           {kLlama, "\n<|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "{{other}}({})"},
           {kLlama, "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", "{{now}}({})"},
           {kLlama, "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 2}}",
            "{{now}}({}){{weather}}({\"days\": 2})"},
           {kLlama, "Well <|python_tag|>{\"name\": \"now\", \"arguments\": {}}\n", "Well{{now}}({})"},
           // JSON that is an answer.
           {kLlama, "{\"city\": \"Rome\"}", "{\"city\": \"Rome\"}"},
           {kLlama, " {\"name\": \"Bob\", \"parameters\": {}}", " {\"name\": \"Bob\", \"parameters\": {}}"},
           {kLlama, "{\"name\": \"now\"}", "{\"name\": \"now\"}"},
           {kLlama, "{\"name\": \"now\", \"age\": 3}", "{\"name\": \"now\", \"age\": 3}"},
           {kLlama, "So: {\"name\": \"now\", \"parameters\": {}}", "So: {\"name\": \"now\", \"parameters\": {}}"},
           {kLlama, "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
           {kLlama, "{\"name\": \"now\", \"parameters\": {}} is it.", "{{now}}({})is it."},
           {kLlama, "{\"name\": \"now\", \"parameters\": {}}; {\"name\": 1}", "{{now}}({}){\"name\": 1}"}})
    expect(one);
}

TEST(AnswerParser, FindsMistralCalls) {
  for (const Case& one : std::vector<Case>{
           {kMistral, "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]",
            "{{weather}}({\"city\": \"Rome\"})"},
           {kMistral,
            "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {\"days\": "
            "[1]}, "
            "\"id\": \"abcdefghi\"}]",
            "{{now}}({}){{weather}}({\"days\": [1]})"},
           {kMistral, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\"}", "{{weather}}({\"city\": \"Rome\"})"},
           {kMistral, "Ok.[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]weather{\"days\": 1}",
            "Ok.{{now}}({}){{weather}}({\"days\": 1})"},
           {kMistral, "[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}}", "{{now}}({})"},
           {kMistral, "[TOOL_CALLS] []", ""},
           // What is none.
           {kMistral, "[TOOL_CALLS] [1]", "[TOOL_CALLS] [1]"},
           {kMistral, "[TOOL_CALLS]now[ARGS]", "[TOOL_CALLS]now[ARGS]"},
           {kMistral, "[TOOL_CALLS]now[ARGS][1]{}", "[TOOL_CALLS]now[ARGS][1]{}"},
           {kMistral, "[TOOL_CALLS]a b{}", "[TOOL_CALLS]a b{}"},
           {kMistral, "[TOOL_CALLS]now, then", "[TOOL_CALLS]now, then"},
           {kMistral, "[TOOL] [1, 2] [", "[TOOL] [1, 2] ["},
           {kMistral, "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, 5] ", "{{now}}({}) 5] "},
           {kMistral, "[TOOL_CALLS]" + std::string(600, 'a') + "{}", "[TOOL_CALLS]" + std::string(600, 'a') + "{}"}})
    expect(one);
}

TEST(AnswerParser, FindsCallsInXml) {
  const std::string call = "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n";
  for (const Case& one : std::vector<Case>{
           {kXml, call + "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            "{{weather}}({\"city\": \"Rome\", \"days\": 3})"},
           {kXml, "I look.\n" + call + "</function>\n</tool_call>\n" + call + "</function>\n</tool_call>\nDone",
            "I look.{{weather}}({\"city\": \"Rome\"}){{weather}}({\"city\": \"Rome\"})Done"},
           {kXml, "<tool_call>\n<function=now>\n</function>\n</tool_call>", "{{now}}({})"},
           {kXml, "<function=now>\n</function>\n</tool_call>", "{{now}}({})"},
           {kXml, call + "</tool_call>", "{{weather}}({\"city\": \"Rome\"})"},
           // Strings keep their own lines; other values are JSON if they are, and Python's if they must.
           {kXml, "<tool_call><function=weather><parameter=city>\n a\n\"b\\\"<é\n\n</parameter></function></tool_call>",
            "{{weather}}({\"city\": \" a\\n\\\"b\\\\\\\"<é\\n\"})"},
           {kXml,
            "<tool_call><function=weather><parameter=days>True</parameter><parameter=where>{\"a\": [1]}</parameter>"
            "<parameter=any>x y</parameter><parameter=new>7</parameter></function></tool_call>",
            "{{weather}}({\"days\": true, \"where\": {\"a\": [1]}, \"any\": \"x y\", \"new\": \"7\"})"},
           {kXml, "<tool_call><function=weather><parameter=city></parameter></function>",
            "{{weather}}({\"city\": \"\"})"},
           // What is none, or breaks.
           {kXml, "a <tool_call> b <function=>", "a <tool_call> b <function=>"},
           {kXml, "<tool_call>\n<function=no way>", "<tool_call>\n<function=no way>"},
           {kXml, "</tool_call> <func", "</tool_call> <func"},
           {kXml, "<tool_call>\n<tool_call><function=now></function>", "<tool_call>{{now}}({})"},
           {kXml, "<tool_call><function=now>so<parameter=a>", "{{now}}(~so<parameter=a>"},
           {kXml, call, "{{weather}}({\"city\": \"Rome\"~"}})
    expect(one);
}

TEST(AnswerParser, SplitsReasoning) {
  for (const Case& one : std::vector<Case>{
           {CallFormat::none, "<think>\nLet me see.\n\nYes.\n</think>\n\nIt is.", "[Let me see.\n\nYes.]It is."},
           {CallFormat::none, "\n<think></think>It is. <think>x</think>", "It is. <think>x</think>"},
           {CallFormat::none, " It is.", " It is."},
           {CallFormat::none, "<thi", "<thi"},
           {CallFormat::none, "\n", "\n"},
           {CallFormat::none, "<<think>", "<<think>"},
           {CallFormat::none, "<think>\nI </th", "[I </th]"},
           {CallFormat::none, "<think>a</think>", "[a]"},
           {kHermes, "<think>\nCall <tool_call>?\n</think>\n\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
            "[Call <tool_call>?]{{now}}({})"},
           {kLlama, "<think>a</think>\n{\"name\": \"now\", \"parameters\": {}}", "[a]{{now}}({})"}})
    expect(one, kThinks);
}

TEST(AnswerParser, AnswersMayBeginInReasoning) {
  for (const Case& one : std::vector<Case>{{CallFormat::none, "\nhm\n</think>\nIt is.", "[hm]It is."},
                                           {CallFormat::none, "<think>hm</think>It is.", "[hm]It is."},
                                           {CallFormat::none, "</think>It is.", "It is."},
                                           {CallFormat::none, "hm <think> hm", "[hm <think> hm]"},
                                           {CallFormat::none, " \n", ""}})
    expect(one, kThinks, true);
  expect({CallFormat::none, "<think>a</think>", "<think>a</think>"}, {}, true);
}

// Wherever an answer is cut, nothing of markup is content, and what was announced is the beginning of the whole.
TEST(AnswerParser, ACutCallIsNeverContent) {
  const std::string calls[] = {
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>",
      "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}",
      "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"days\": 3}",
      "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
      "</function>\n</tool_call>"};
  const CallFormat formats[] = {kHermes, kLlama, kMistral, kXml};
  for (size_t i = 0; i < std::size(calls); ++i) {
    const std::string& call = calls[i];
    const std::string whole = "{{weather}}({\"city\": \"Rome\", \"days\": 3})";
    for (size_t end = 0; end <= call.size(); ++end) {
      SCOPED_TRACE(call.substr(0, end));
      Parsed parsed(formats[i]);
      parsed.push(std::string_view(call).substr(0, end));
      std::string before = parsed.text();
      if (before.ends_with('~')) before.pop_back();
      EXPECT_TRUE(whole.starts_with(before)) << before;
      const std::string at_end = parsed.finish();
      // What was not announced is shown as it stands, once it is certain that nothing more comes.
      EXPECT_EQ(at_end, before.empty()                       ? call.substr(0, end)
                        : before == whole || at_end == whole ? whole
                                                             : before + "~");
    }
  }
}

TEST(AnswerParser, BottomlessJsonIsNoCall) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ";
    for (int i = 0; i < 100000; ++i) deep += open;
    Parsed parsed(kHermes);
    parsed.push(deep);
    const std::string text = parsed.finish();
    EXPECT_TRUE(text.starts_with("{{now}}({\"a\": "));
    EXPECT_NE(text.find('~'), std::string::npos);
    EXPECT_LT(text.find('~'), 500U);  // 64 levels
    EXPECT_EQ(text.size() + std::string_view("<tool_call>{\"name\": \"now\", \"arguments\": ").size(),
              deep.size() + std::string_view("{{now}}(~").size());
  }
}

// All arguments that are complete are JSON that the server itself reads, and of cut ones there is nothing that is none.
TEST(AnswerParser, CompleteArgumentsAreJson) {
  for (const char* json : {"{}", "{\"a\": -0}", "{\"a\": 1e5, \"b\": [[], {}, \"\\ud83d\\ude42\"]}", "{\"a\": 0.5E-3}",
                           "{\"\": null, \"b\": [true, false]}", " {\n}"}) {
    Parsed parsed(kHermes);
    parsed.push(fmt::format("<tool_call>{{\"name\": \"f\", \"arguments\":{}}}</tool_call>", json));
    const std::string text = parsed.finish();
    ASSERT_TRUE(text.starts_with("{{f}}(") && text.ends_with(")")) << text;
    EXPECT_TRUE(JsonFile::parse(text.substr(6, text.size() - 7), "arguments").root().is_object());
  }
  for (const char* json : {"{\"a\": 1.}", "{\"a\": .5}", "{\"a\": +1}", "{\"a\": 1e}", "{\"a\": NaN}", "{\"a\": -}",
                           "{\"a\" 1}", "{a: 1}", "{\"a\": 1 2}", "{\"a\": [1,]}", "{,}", "{\"a\": \"\\u12g4\"}"}) {
    Parsed parsed(kHermes);
    parsed.push(fmt::format("<tool_call>{{\"name\": \"f\", \"arguments\":{}}}</tool_call>", json));
    EXPECT_NE(parsed.finish().find('~'), std::string::npos) << json;
  }
}

TEST(AnswerSyntax, IsFoundInTheChatTemplate) {
  const auto found = [](std::string_view source) {
    return answer_syntax(source, std::nullopt, ReasoningFormat::automatic);
  };
  EXPECT_EQ(found("{% for tool in tools %} <tool_call> ").calls, CallFormat::hermes);
  EXPECT_EQ(found("{% if tools %} <tool_call>\n<function=x> ").calls, CallFormat::qwen3_xml);
  EXPECT_EQ(found("{% if tools %} [TOOL_CALLS] ").calls, CallFormat::mistral);
  EXPECT_EQ(found("{% if tools %} <|start_header_id|> '{\"name\": ' \"parameters\": ").calls, CallFormat::llama3_json);
  EXPECT_EQ(found("<|start_header_id|> {% if tools %}").calls, CallFormat::none);
  EXPECT_EQ(found("<tool_call>").calls, CallFormat::none);
  EXPECT_EQ(answer_syntax("{% if tools %} <tool_call>", CallFormat::mistral, ReasoningFormat::none).calls, kMistral);
  EXPECT_EQ(found("a </think> b").think_begin, "<think>");
  EXPECT_EQ(found("a [THINK] b [/THINK]").think_end, "[/THINK]");
  EXPECT_FALSE(found("a").splits_reasoning());
  EXPECT_FALSE(answer_syntax("</think>", std::nullopt, ReasoningFormat::none).splits_reasoning());
  EXPECT_EQ(answer_syntax("", std::nullopt, ReasoningFormat::deepseek).think_end, "</think>");
}

TEST(AnswerSyntax, FormatsHaveNames) {
  EXPECT_EQ(call_format_names(), (std::vector<std::string>{"hermes", "llama3_json", "mistral", "qwen3_xml"}));
  for (const std::string& name : call_format_names()) EXPECT_TRUE(call_format(name));
  EXPECT_EQ(call_format("hermes"), CallFormat::hermes);
  EXPECT_FALSE(call_format("xml"));
  EXPECT_EQ(reasoning_format("none"), ReasoningFormat::none);
  EXPECT_EQ(reasoning_format("deepseek"), ReasoningFormat::deepseek);
  EXPECT_EQ(reasoning_format("auto"), ReasoningFormat::automatic);
  EXPECT_FALSE(reasoning_format("qwen3"));
}

}  // namespace
}  // namespace megalith::serve
