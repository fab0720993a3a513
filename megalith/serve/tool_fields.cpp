#include "megalith/serve/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/serve/call_object.h"
#include "megalith/serve/json_text.h"
#include "megalith/serve/user_value.h"

namespace megalith::serve {

namespace {

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxToolCalls = 1024;  // of a message

std::string tool_name(const JsonValue& function) {
  const JsonValue name = function.at("name");
  if (!is_tool_name(name.string()))
    name.fail(fmt::format("is {}, want 1 to 256 letters, digits, \"_\", \"-\", \".\", \":\" or \"/\"", name.excerpt()));
  return name.string();
}

// Of the parameters that a schema names; "" where it has no type, or several.
std::map<std::string, std::string> parameter_types(const JsonValue& function) {
  std::map<std::string, std::string> types;
  const auto parameters = function.find("parameters");
  if (!parameters) return types;
  if (!parameters->is_object())
    parameters->fail(fmt::format("is {}, want a JSON schema, which is an object", parameters->excerpt()));
  const auto properties = parameters->find("properties");
  if (!properties || !properties->is_object()) return types;
  properties->each_member([&](const std::string& name, const JsonValue& schema) {
    const auto type = schema.is_object() ? schema.find("type") : std::nullopt;
    types[name] = type && type->is_string() ? type->string() : "";
  });
  return types;
}

// In /v1/responses the function's members stand beside the type; templates know them one level below.
TemplateValue nested(const JsonValue& tool) {
  TemplateValue::Members function;
  tool.each_member([&](const std::string& key, const JsonValue& value) {
    if (key != "type") function.emplace_back(user_text(key), user_value(value));
  });
  return TemplateValue::dict({{"type", "function"}, {"function", TemplateValue::dict(std::move(function))}});
}

void read_tool(const JsonValue& tool, GenerationRequest& request) {
  const std::string& type = tool.at("type").string();
  if (type != "function")
    throw ApiError::unsupported(
        fmt::format("a tool is of type \"{}\", but this server takes only tools of type \"function\"", type), "tools");
  const bool is_nested = request.api != Api::responses;
  const JsonValue function = is_nested ? tool.at("function") : tool;
  request.tool_types.push_back({tool_name(function), parameter_types(function)});
  const auto parameters = function.find("parameters"), strict = function.find("strict");
  request.tool_schemas.push_back({request.tool_types.back().name,
                                  parameters ? json_text(*parameters) : R"({"type":"object","properties":{}})",
                                  strict && strict->boolean()});
  request.tools.push_back(is_nested ? user_value(tool) : nested(tool));
}

// Whether the model may call any, and must.
bool read_choice(const Fields& fields, GenerationRequest& request) {
  const auto choice = fields.find("tool_choice");
  if (!choice) return true;
  constexpr const char* kWanted = "\"auto\", \"none\", \"required\", or an object that names a function";
  if (choice->is_object()) {
    Fields::read("tool_choice", *choice, [&](const JsonValue& value) {
      if (const std::string& type = value.at("type").string(); type != "function")
        throw ApiError::unsupported(
            fmt::format("\"tool_choice\" is of type \"{}\", but this server has only \"function\"", type),
            "tool_choice");
      request.named_tool = tool_name(request.api == Api::responses ? value : value.at("function"));
    });
  } else if (!choice->is_string() ||
             (choice->string() != "auto" && choice->string() != "none" && choice->string() != "required")) {
    throw ApiError::invalid(fmt::format("\"tool_choice\" is {}, want {}", choice->excerpt(), kWanted), "tool_choice");
  }
  request.must_call = choice->is_object() || choice->string() == "required";
  return request.must_call || choice->string() == "auto";
}

// A forced call needs something to call.
void check_choice(const GenerationRequest& request) {
  if (!request.must_call) return;
  if (request.tools.empty())
    throw ApiError::invalid("\"tool_choice\" forces a call, but there are no \"tools\"", "tool_choice");
  const auto is_named = [&](const ToolSchema& tool) { return tool.name == request.named_tool; };
  if (!request.named_tool.empty() && std::ranges::none_of(request.tool_schemas, is_named))
    throw ApiError::invalid(
        fmt::format("\"tool_choice\" names the function \"{}\", which is none of \"tools\"", request.named_tool),
        "tool_choice");
}

}  // namespace

void read_tools(const Fields& fields, GenerationRequest& request) {
  const bool is_wanted = read_choice(fields, request);
  request.parallel_tool_calls = fields.flag("parallel_tool_calls", true);
  const auto tools = fields.find("tools");
  if (!tools) return check_choice(request);
  if (has_prompts(request.api) && !(tools->is_array() && tools->size() == 0))
    throw ApiError::unsupported(
        "\"tools\" are given, but a completion goes on from plain text: use /v1/chat/completions", "tools");
  Fields::read("tools", *tools, [&](const JsonValue& all) {
    if (all.is_array() && all.size() > kMaxTools)
      all.fail(fmt::format("has {} tools, want at most {}", all.size(), kMaxTools));
    all.each_element([&](const JsonValue& tool) { read_tool(tool, request); });
  });
  if (is_wanted) return check_choice(request);
  request.tools.clear();
  request.tool_types.clear();
  request.tool_schemas.clear();
}

ToolCall read_function_call(const JsonValue& item) {
  return {.id = item.at("call_id").string(), .name = tool_name(item), .arguments = item.at("arguments").string()};
}

std::vector<ToolCall> read_tool_calls(const JsonValue& message) {
  std::vector<ToolCall> calls;
  const auto all = message.find("tool_calls");
  if (!all) return calls;
  if (all->is_array() && all->size() > kMaxToolCalls)
    all->fail(fmt::format("has {} calls, want at most {}", all->size(), kMaxToolCalls));
  all->each_element([&](const JsonValue& call) {
    const JsonValue function = call.at("function");
    ToolCall one{.id = "", .name = tool_name(function), .arguments = "{}"};
    if (const auto id = call.find("id")) one.id = id->string();
    if (const auto arguments = function.find("arguments")) one.arguments = arguments->string();
    calls.push_back(std::move(one));
  });
  return calls;
}

}  // namespace megalith::serve
