#include "megalith/serve/member_schemas.h"

namespace megalith::serve {

namespace {

constexpr std::string_view kJsonSchema = R"({"type":["object","boolean","string"]})";
constexpr std::string_view kStrings = R"({"type":["string","array"],"items":{"type":"string"}})";

}  // namespace

const std::vector<MemberSchema>& member_schemas() {
  static const std::vector<MemberSchema> table = {
      {"messages", R"({"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}})"},
      {"prompt",
       R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":2147483647}},)"
       R"({"type":"array","minItems":1,"items":{"anyOf":[{"type":"string"},)"
       R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}}]}}]})"},
      {"input", R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","properties":)"
                R"({"type":{"enum":["message","function_call","function_call_output","reasoning"]}}}}]})"},
      {"chat_template_kwargs", R"({"type":"object"})"},
      {"reasoning_effort", R"({"type":"string"})"},
      {"reasoning", R"({"type":"object","properties":{"effort":{"type":["string","null"]}}})"},
      {"logprobs", R"({"type":["integer","boolean"],"minimum":0,"maximum":20})"},
      {"stop", kStrings},
      {"bad_words", kStrings},
      {"logit_bias",
       R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100},"maxProperties":300})"},
      {"stream_options", R"({"type":"object","properties":{"include_usage":{"type":["boolean","null"]},)"
                         R"("continuous_usage_stats":{"type":["boolean","null"]}}})"},
      {"tools", R"({"type":"array","items":{"type":"object","required":["type"],"properties":)"
                R"({"type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":)"
                R"({"name":{"type":"string"},"parameters":{"type":"object"}}}}}})"},
      {"tool_choice", R"({"anyOf":[{"enum":["auto","none","required"]},{"type":"object","required":["type"]}]})"},
      {"response_format", R"({"type":"object","required":["type"],"properties":)"
                          R"({"type":{"enum":["text","json_object","json_schema","structural_tag"]},)"
                          R"("json_schema":{"type":"object","required":["schema"]}}})"},
      {"text", R"({"type":"object","properties":{"format":{"type":["object","null"],"required":["type"]}}})"},
      {"structured_outputs",
       R"({"type":"object","properties":{"json":{"type":["object","boolean","string","null"]},)"
       R"("regex":{"type":["string","null"]},"choice":{"type":["array","null"],"items":{"type":"string"}},)"
       R"("grammar":{"type":["string","null"]},"structural_tag":{"type":["object","string","null"]},)"
       R"("json_object":{"type":["boolean","null"]}}})"},
      {"guided_json", kJsonSchema},
      {"guided_regex", R"({"type":"string"})"},
      {"guided_choice", R"({"type":"array","minItems":1,"items":{"type":"string"}})"},
      {"guided_grammar", R"({"type":"string"})"},
      {"json_schema", kJsonSchema},
      {"grammar", R"({"type":"string"})"},
  };
  return table;
}

}  // namespace megalith::serve
