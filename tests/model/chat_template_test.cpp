// Chat templates against transformers (tools/make_chat_goldens.py and random_templates.py wrote the goldens), and errors
// that say where.
#include "megalith/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/scratch.h"
#include "model/segments.h"

namespace megalith {
namespace {

using OrderedJson = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(ChatTemplateTest, Goldens) {
  const OrderedJson golden = OrderedJson::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/chat.json"));
  std::vector<std::pair<std::string, TemplateValue>> special;
  for (const auto& [name, value] : golden["special"].items()) special.emplace_back(name, value.get<std::string>());
  ASSERT_GE(golden["cases"].size(), 700u);
  for (const OrderedJson& row : golden["cases"]) {
    const std::string name = row["template"], source = golden["templates"].value(name, name);
    SCOPED_TRACE(name + " " + row["messages"].get<std::string>());
    ChatOptions options{.add_generation_prompt = row["generate"], .now = golden["now"].get<std::time_t>()};
    if (row.contains("tools")) options.tools = TemplateValue::from_json(golden["tools"].dump(), "tools");
    if (row.contains("variables"))
      for (const auto& [key, value] : row["variables"].items())
        options.variables.emplace_back(key, TemplateValue::from_json(value.dump(), key));
    const TemplateValue messages =
        TemplateValue::from_json(golden["messages"][row["messages"].get<std::string>()].dump(), "messages");
    std::string text;
    const std::string error =
        user_error([&] { text = joined(ChatTemplate::parse(source, "t", special).render(messages, options)); });
    if (row.contains("error")) {
      EXPECT_THAT(error, HasSubstr("t, line ")) << row["error"];
    } else {
      EXPECT_EQ(error, "");
      EXPECT_EQ(text, row["text"].get<std::string>());
    }
  }
}

// Templates put together at random; the first line is what they are given.
TEST(ChatTemplateTest, RandomGoldens) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/tests/golden/chat_random.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const OrderedJson given = OrderedJson::parse(line);
  const TemplateValue messages = TemplateValue::from_json(given["messages"].get<std::string>(), "messages");
  ChatOptions options;
  for (const auto& [key, value] : given["variables"].items())
    options.variables.emplace_back(key, TemplateValue::from_json(value.get<std::string>(), key));
  size_t count = 0;
  for (; std::getline(file, line); ++count) {
    const OrderedJson row = OrderedJson::parse(line);
    const std::string source = row[0];
    SCOPED_TRACE(source);
    std::string text;
    const std::string error = user_error([&] {
      text = joined(
          ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}).render(messages, options));
    });
    if (row[1].is_null()) {
      EXPECT_THAT(error, HasSubstr("t, line "));
    } else {
      EXPECT_EQ(error, "");
      EXPECT_EQ(text, row[1].get<std::string>());
    }
  }
  EXPECT_EQ(count, 500u);
}

TEST(ChatTemplateTest, ErrorsSayWhere) {
  auto error = [](const std::string& source) {
    return user_error([&] { ChatTemplate::parse(source, "t").render({{"user", "hi"}}); });
  };
  EXPECT_EQ(error("a\n{{ 1 + }}"), "t, line 2: found \"}}\", want an expression");
  EXPECT_EQ(error("{% if 1 %}\n\n{% endfor %}"), "t, line 3: found {% endfor %}, want {% endif %}");
  EXPECT_EQ(error("\n{% for m in messages %}"), "t, line 2: the template ends within this, want {% endfor %}");
  EXPECT_EQ(error("{% endif %}"), "t, line 1: found {% endif %}, which begins nothing and ends nothing");
  EXPECT_THAT(error("{% include 'x' %}"),
              HasSubstr("t, line 1: found the statement \"include\", supported are for, if"));
  EXPECT_EQ(error("{{ (1 }}"), "t, line 1: found \"}\", want \")\"");
  EXPECT_EQ(error("{{ 'abc }}"), "t, line 1: a string begins that has no closing '");
  EXPECT_EQ(error("{{ a ! b }}"), "t, line 1: found '!', which no expression has");
  EXPECT_EQ(error("{# a"), "t, line 1: a comment begins that has no #}");
  EXPECT_EQ(error("{{ a"), "t, line 1: a tag begins that has no }}");
  EXPECT_EQ(error("{% break %}"), "t, line 1: {% break %} stands outside of a loop");
  EXPECT_EQ(error("{{ 1" + std::string(5000, '0') + " }}"),
            "t, line 1: the number 1" + std::string(39, '0') + "... is too large");
  EXPECT_THAT(error("{{ 1 | nothing }}"),
              HasSubstr("t, line 1: found the filter \"nothing\", supported are abs, attr"));
  EXPECT_THAT(error("{{ 1 is nothing }}"), HasSubstr("t, line 1: found the test \"nothing\", supported are boolean"));
  EXPECT_EQ(error("{{ [].append(1) }}"),
            "t, line 1: the method \"append\" of a list, which templates may not use: it changes the object is called");
  EXPECT_EQ(error("{{ 'a'.encode() }}"), "t, line 1: the method \"encode\" of a string is not supported");
  EXPECT_EQ(error("{{ 'a'.nothing() }}"), "t, line 1: \"nothing\", which is undefined is called");
  EXPECT_EQ(error("a\n\n{{ x.y }}"), "t, line 3: the attribute \"y\" is asked of \"x\", which is undefined");
  EXPECT_EQ(error("{{ f() }}"), "t, line 1: \"f\", which is undefined is called");
  EXPECT_EQ(error("{{ 'a' + 1 }}"),
            "t, line 1: \"+\" has the string 'a' on its left and an integer 1 on its right, which do not go together");
  EXPECT_EQ(error("{{ 1 // 0 }}"), "t, line 1: 1 // 0 divides by zero");
  EXPECT_THAT(error("{{ 2 ** 200000 }}"), HasSubstr("t, line 1: the integer is too large: it would have 200000 bits"));
  EXPECT_THAT(error("{{ 10 ** 4300 }}"), HasSubstr("t, line 1: an integer has more than 4300 digits"));
  EXPECT_THAT(error("{{ (-8) ** 0.5 }}"), HasSubstr("is a complex number, which is not supported"));
  EXPECT_EQ(error("{% set messages.x = 1 %}"),
            "t, line 1: \"messages.x\" is assigned to, but \"messages\" is a list: only namespaces can be assigned to");
  EXPECT_EQ(error("{% for a, b in [[1]] %}{% endfor %}"), "t, line 1: 1 values are assigned to 2 names");
  EXPECT_EQ(error("{{ 'a' | indent(wide=2) }}"),
            "t, line 1: the filter \"indent\" got the argument \"wide\", which it does not have");
  EXPECT_EQ(error("{{ 'a' | int(1, 2, 3) }}"), "t, line 1: the filter \"int\" got 3 arguments, want at most 2");
  EXPECT_EQ(error("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}"),
            "t, line 1: the macro \"f\" got 2 arguments, want at most 1");
  EXPECT_EQ(error("{{ raise_exception('no ' ~ messages[0].role) }}"),
            "t, line 1: the template refuses these messages: no user");
  EXPECT_THAT(error("{{ f }}{{ range }}"),
              HasSubstr("t, line 1: a function cannot be printed: Python shows its address"));
  EXPECT_THAT(error("{{ [1] | map('string') }}"), HasSubstr("t, line 1: a generator cannot be printed"));
  EXPECT_THAT(error("{{ [1, 2] | random }}"), HasSubstr("the filter \"random\" is not supported: the same messages"));
  EXPECT_THAT(error("{{ lipsum() }}"), HasSubstr("lipsum() is not supported: the same messages"));
  EXPECT_THAT(error("{% autoescape true %}{% endautoescape %}"),
              HasSubstr("t, line 1: {% autoescape %} is not supported"));
  EXPECT_THAT(error("{% set ns = namespace() %}{% set ns._a = 1 %}"),
              HasSubstr("t, line 1: a namespace has no \"_a\""));
  EXPECT_EQ(error("{{ [3, 'a'] | sort }}"), "t, line 1: the string 'a' and an integer 3 have no order");
  EXPECT_EQ(error("{% if false %}{{ 1 | nothing }}{% endif %}"), "");
  EXPECT_THAT(error("\n{% for i in [] %}{{ 1 | nothing }}{% endfor %}"),
              HasSubstr("t, line 2: found the filter \"nothing\""));
  EXPECT_EQ(error("{{ x | tojson }}"), "t, line 1: \"x\", which is undefined cannot be written as JSON");
}

using ChatTemplateFolderTest = ScratchTest;

TEST_F(ChatTemplateFolderTest, Files) {
  auto render = [&](const ChatOptions& options = {}) {
    return joined(ChatTemplate::from_folder(folder()).render({{"user", "hi"}}, options));
  };
  EXPECT_FALSE(ChatTemplate::is_in_folder(folder()));
  EXPECT_THAT(user_error([&] { render(); }), HasSubstr("has no chat template: neither chat_template.jinja nor"));
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  EXPECT_FALSE(ChatTemplate::is_in_folder(folder()));
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null,
      "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}"})");
  EXPECT_TRUE(ChatTemplate::is_in_folder(folder()));
  EXPECT_EQ(render(), "<s>hi</s>False");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "usual"},
      {"name": "tool_use", "template": "{{ tools[0] }}"}, {"name": "rag", "template": "{{ unfinished"}]})");
  EXPECT_EQ(render(), "usual");
  EXPECT_EQ(render({.tools = TemplateValue::from_json("[5]", "tools")}), "5");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(user_error([&] { render(); }), HasSubstr("\"chat_template\" has no template named \"default\""));
  write("tokenizer_config.json", R"({"chat_template": "{{ 1", "bos_token": "B"})");
  EXPECT_THAT(user_error([&] { render(); }),
              HasSubstr("tokenizer_config.json: \"chat_template\", line 1: a tag begins"));
  write("chat_template.jinja", "{{ bos_token }} of its own\n");
  EXPECT_EQ(render(), "B of its own");
}

TEST(ChatTemplateTest, Storyteller) {
  const std::string folder = MEGALITH_SOURCE_DIR "/models/storyteller";
  const ChatTemplate chat = ChatTemplate::from_folder(folder);
  EXPECT_EQ(joined(chat.render({{"user", " Once upon a time "}, {"assistant", "there was"}, {"user", "a fox"}})),
            "Once upon a time\n\nthere was\n\na fox");
  EXPECT_THAT(user_error([&] {
                chat.render({{"tool", "x"}});
              }),
              HasSubstr("knows the roles system, user and assistant"));
}

}  // namespace
}  // namespace megalith
