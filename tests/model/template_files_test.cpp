// Which chat templates a folder has, and which one is taken.
#include "megalith/model/template_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "megalith/model/chat_template.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TemplateFilesTest : public ScratchTest {
 protected:
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const TemplateFile& file : template_files(folder())) all.push_back(file.name + "=" + file.source);
    return all;
  }
  void additional(const std::string& name, const std::string& text) {
    ::mkdir((folder() + "/additional_chat_templates").c_str(), 0755);
    write("additional_chat_templates/" + name, text);
  }
  std::string rendered(const std::string& chosen = "", const ChatOptions& options = {}) {
    std::string text;
    for (const TextSegment& segment : ChatTemplate::from_folder(folder(), chosen).render({{"user", "hi"}}, options))
      text += segment.text;
    return text;
  }
};

TEST_F(TemplateFilesTest, OfAConfig) {
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_FALSE(ChatTemplate::is_in_folder(folder()));
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_THAT(names(), ElementsAre("default=one"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_THAT(names(), ElementsAre("default=d", "rag=r"));
  write("tokenizer_config.json", R"({"chat_template": {"default": "d", "rag": "r"}})");
  EXPECT_THAT(names(), ElementsAre("default=d", "rag=r"));
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TemplateFilesTest, FilesOfTheirOwnTakeItsPlace) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                                       {"name": "rag", "template": "r"}]})");
  additional("tool_use.jinja", "T{{ tools | length }}");
  additional("notes.txt", "no template");
  EXPECT_THAT(names(), ElementsAre("tool_use=T{{ tools | length }}"));
  write("chat_template.jinja", "J");
  EXPECT_THAT(names(), ElementsAre("default=J", "tool_use=T{{ tools | length }}"));
  EXPECT_EQ(rendered(), "J");
  EXPECT_EQ(rendered("tool_use", {.tools = TemplateValue::list({})}), "T0");
  EXPECT_EQ(rendered("", {.tools = TemplateValue::list({})}), "T0")
      << "the one for tools is taken where there are some";
  EXPECT_EQ(rendered("default", {.tools = TemplateValue::list({})}), "J") << "unless another one is asked for";
}

TEST_F(TemplateFilesTest, OneIsChosenByItsNameOrByAFile) {
  additional("a.jinja", "A");
  additional("b.jinja", "B");
  EXPECT_TRUE(ChatTemplate::is_in_folder(folder()));
  EXPECT_THAT(user_error([&] { rendered(); }),
              HasSubstr("\"chat_template\" has no template named \"default\", but \"a\", \"b\": choose one"));
  EXPECT_EQ(rendered("b"), "B");
  EXPECT_THAT(
      user_error([&] { rendered("c"); }),
      HasSubstr("\"c\" is neither a file nor one of the chat templates of " + folder() + ", which are \"a\", \"b\""));
  write("c.jinja", "{{ eos_token }}C");
  write("special_tokens_map.json", R"({"eos_token": "<e>"})");
  EXPECT_EQ(rendered(folder() + "/c.jinja"), "<e>C") << "special tokens are the folder's";
}

TEST_F(TemplateFilesTest, SpecialTokensComeFromEveryFileAndVariablesLieOverThem) {
  write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ pad_token }}");
  write("tokenizer_config.json", R"({"bos_token": "<b>", "extra_special_tokens": {"image_token": "<i>"}})");
  write("special_tokens_map.json", R"({"bos_token": "<m>", "eos_token": {"content": "<e>"}})");
  EXPECT_EQ(rendered(), "<m><e><i>");
  EXPECT_EQ(rendered("", {.variables = {{"bos_token", TemplateValue(std::string("mine"))}}}), "mine<e><i>");
}

TEST_F(TemplateFilesTest, AreBounded) {
  write("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(user_error([&] { names(); }), HasSubstr("chat_template.jinja has 1048577 bytes, want at most 1048576"));
  EXPECT_THAT(user_error([&] { rendered(); }), HasSubstr("want at most 1048576"));
  write("chat_template.jinja", "x");
  for (int i = 0; i < 64; ++i) additional(std::to_string(i) + ".jinja", "x");
  EXPECT_THAT(user_error([&] { names(); }), HasSubstr("has more than 64 chat templates"));
}

TEST_F(TemplateFilesTest, WhatCannotBeReadIsTold) {
  std::filesystem::create_symlink("gone", folder() + "/chat_template.jinja");
  EXPECT_THAT(
      [&] {
        try {
          names();
        } catch (const Error& error) { return std::string(error.what()); }
        return std::string();
      }(),
      HasSubstr("it is a link to gone, which is not there"));
}

}  // namespace
}  // namespace megalith
