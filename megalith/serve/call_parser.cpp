#include "megalith/serve/call_parser.h"

#include "megalith/serve/json_call_parser.h"
#include "megalith/serve/xml_call_parser.h"

namespace megalith::serve {

std::unique_ptr<CallParser> make_call_parser(CallFormat format, const std::vector<CallableTool>& tools) {
  constexpr JsonCallSyntax kHermes = {.begin = "<tool_call>", .end = "</tool_call>", .between = "}"};
  constexpr JsonCallSyntax kLlama = {.begin = "<|python_tag|>", .between = ";,", .may_be_bare = true};
  constexpr JsonCallSyntax kMistral = {.begin = "[TOOL_CALLS]", .has_lists = true, .has_headers = true};
  switch (format) {
    case CallFormat::none: return nullptr;
    case CallFormat::hermes: return std::make_unique<JsonCallParser>(kHermes, tools);
    case CallFormat::llama3_json: return std::make_unique<JsonCallParser>(kLlama, tools);
    case CallFormat::mistral: return std::make_unique<JsonCallParser>(kMistral, tools);
    case CallFormat::qwen3_xml: return std::make_unique<XmlCallParser>(tools);
  }
  return nullptr;
}

}  // namespace megalith::serve
