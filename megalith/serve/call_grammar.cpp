#include "megalith/serve/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "megalith/base/json_quote.h"
#include "megalith/serve/api_error.h"

namespace megalith::serve {

using grammar::GrammarKind;
using grammar::GrammarSource;

namespace {

// As everywhere (grammar.cpp).
constexpr int kMaxWhitespace = 20;

// ---- pieces of a structural tag ----------------------------------------------------------------

std::string joined(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ",")); }
std::string text_tag(const std::string& text) {
  return fmt::format(R"({{"type":"const_string","value":{}}})", json_quote(text));
}
std::string sequence_tag(const std::vector<std::string>& parts) {
  return fmt::format(R"({{"type":"sequence","elements":[{}]}})", joined(parts));
}
std::string one_of_tag(const std::vector<std::string>& parts) {
  return parts.size() == 1 ? parts[0] : fmt::format(R"({{"type":"or","elements":[{}]}})", joined(parts));
}
std::string star_tag(const std::string& part) { return fmt::format(R"({{"type":"star","content":{}}})", part); }
std::string schema_tag(const std::string& schema, const char* style = "json") {
  return fmt::format(R"({{"type":"json_schema","json_schema":{},"style":"{}","max_whitespace_cnt":{}}})", schema, style,
                     kMaxWhitespace);
}

std::string tag_of(const GrammarSource& source) {
  switch (source.kind) {
    case GrammarKind::json: return schema_tag(R"({"type":"object","additionalProperties":true})");
    case GrammarKind::json_schema: return schema_tag(source.text);
    case GrammarKind::regex: return fmt::format(R"({{"type":"regex","pattern":{}}})", json_quote(source.text));
    case GrammarKind::ebnf: return fmt::format(R"({{"type":"grammar","grammar":{}}})", json_quote(source.text));
    case GrammarKind::tag: break;
  }
  const std::string_view begin = R"({"type":"structural_tag","format":)";
  return source.text.substr(begin.size(), source.text.size() - begin.size() - 1);
}

GrammarSource whole(const std::string& tag) {
  return {GrammarKind::tag, fmt::format(R"({{"type":"structural_tag","format":{}}})", tag)};
}

// ---- calls -------------------------------------------------------------------------------------

/// The calls of one request, in the form of its model.
class Calls {
 public:
  Calls(const ServedModel& model, const GenerationRequest& request, CallFormat format)
      : model_(model), request_(request), format_(format) {}

  /// One call or more of the tools that may be called.
  std::string some() const {
    const std::string call = one_of_tag(each([this](const ToolSchema& tool) { return one(tool); }));
    const bool is_one = !request_.named_tool.empty() || !request_.parallel_tool_calls;
    switch (format_) {
      case CallFormat::llama3_json: return call;  // it has no form for several
      case CallFormat::mistral:
        if (is_new_mistral()) return is_one ? call : sequence_tag({call, star_tag(call)});
        return sequence_tag({marker("[TOOL_CALLS]"), text_tag(" ["),
                             is_one ? call : sequence_tag({call, star_tag(sequence_tag({text_tag(", "), call}))}),
                             text_tag("]")});
      default: return is_one ? call : sequence_tag({call, star_tag(sequence_tag({text_tag("\n"), call}))});
    }
  }

  /// Text with calls in it, if the model wants to call; nothing where no marker says that one begins.
  std::optional<std::string> any() const {
    if (format_ != CallFormat::hermes && format_ != CallFormat::qwen3_xml) return std::nullopt;
    const std::string inside = one_of_tag(each([this](const ToolSchema& tool) { return body(tool); }));
    const char* once = request_.parallel_tool_calls ? "false" : "true";
    const std::optional<int> begin = token("<tool_call>");
    if (begin)
      return fmt::format(
          R"({{"type":"token_triggered_tags","trigger_tokens":[{}],"tags":[{{"type":"tag","begin":{},"content":{},)"
          R"("end":{}}}],"at_least_one":false,"stop_after_first":{}}})",
          *begin, marker("<tool_call>"), inside, end_marker(), once);
    return fmt::format(
        R"({{"type":"triggered_tags","triggers":["<tool_call>"],"tags":[{{"type":"tag","begin":"<tool_call>","content":{},)"
        R"("end":{}}}],"at_least_one":false,"stop_after_first":{}}})",
        inside, end_marker(), once);
  }

 private:
  template <class Make>
  std::vector<std::string> each(Make make) const {
    std::vector<std::string> all;
    for (const ToolSchema& tool : request_.tool_schemas)
      if (request_.named_tool.empty() || tool.name == request_.named_tool) all.push_back(make(tool));
    return all;
  }

  std::optional<int> token(const char* name) const {
    const auto id = model_.tokenizer ? model_.tokenizer->token_id(name) : std::nullopt;
    return id && model_.tokenizer->is_added(*id) ? id : std::nullopt;
  }
  std::string marker(const char* name) const {
    const auto id = token(name);
    return id ? fmt::format(R"({{"type":"token","token":{}}})", *id) : text_tag(name);
  }
  std::string end_marker() const { return token("</tool_call>") ? marker("</tool_call>") : R"("</tool_call>")"; }
  // Newer models name the tool in front of its arguments.
  bool is_new_mistral() const { return token("[ARGS]").has_value(); }

  std::string object(const ToolSchema& tool, const char* arguments) const {
    return sequence_tag({text_tag(fmt::format(R"({{"name": {}, "{}": )", json_quote(tool.name), arguments)),
                         schema_tag(tool.parameters), text_tag("}")});
  }
  // Between the markers of a call.
  std::string body(const ToolSchema& tool) const {
    if (format_ == CallFormat::hermes) return sequence_tag({text_tag("\n"), object(tool, "arguments"), text_tag("\n")});
    return sequence_tag({text_tag(fmt::format("\n<function={}>\n", tool.name)), schema_tag(tool.parameters, "qwen_xml"),
                         text_tag("\n</function>\n")});
  }
  std::string one(const ToolSchema& tool) const {
    switch (format_) {
      case CallFormat::hermes:
      case CallFormat::qwen3_xml: return sequence_tag({marker("<tool_call>"), body(tool), marker("</tool_call>")});
      case CallFormat::llama3_json: return object(tool, "parameters");
      case CallFormat::mistral:
        if (!is_new_mistral()) return object(tool, "arguments");
        return sequence_tag(
            {marker("[TOOL_CALLS]"), text_tag(tool.name), marker("[ARGS]"), schema_tag(tool.parameters)});
      case CallFormat::none: break;
    }
    throw InternalError("calls of no form");
  }

  const ServedModel& model_;
  const GenerationRequest& request_;
  const CallFormat format_;
};

}  // namespace

std::optional<GrammarSource> answer_grammar(const ServedModel& model, const GenerationRequest& request,
                                            const AnswerSyntax& syntax) {
  const bool is_forced = request.must_call;
  if (is_forced && request.grammar)
    throw ApiError::invalid(fmt::format("\"tool_choice\" forces a call, and \"{}\" says of which form the answer is: "
                                        "want one of them",
                                        request.grammar->member),
                            "tool_choice");
  const Calls calls(model, request, syntax.calls);
  if (is_forced) return whole(calls.some());
  const bool has_tools = !request.tool_schemas.empty();
  // Where there are tools, an answer of a form may be calls instead.
  if (request.grammar && has_tools) return whole(one_of_tag({calls.some(), tag_of(request.grammar->source)}));
  if (request.grammar) return request.grammar->source;
  const bool is_strict = std::ranges::any_of(request.tool_schemas, &ToolSchema::is_strict);
  const std::optional<std::string> text = has_tools && is_strict ? calls.any() : std::nullopt;
  return text ? std::optional(whole(*text)) : std::nullopt;
}

}  // namespace megalith::serve
