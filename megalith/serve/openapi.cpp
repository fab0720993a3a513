#include "megalith/serve/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "megalith/base/json_quote.h"
#include "megalith/serve/answer_schemas.h"
#include "megalith/serve/member_schemas.h"

namespace megalith::serve {

namespace {

std::string list_of(const std::vector<std::string>& all) { return fmt::format("{}", fmt::join(all, ",")); }

// null is the same as nothing, which a member that has to be there must not be.
std::string member_json(const MemberFact& fact, const std::vector<std::string>& models) {
  std::string schema = fact.schema;
  const auto known = std::ranges::find(member_schemas(), fact.key, &MemberSchema::key);
  if (fact.key == "model" && !models.empty()) {
    schema = R"({"enum":[null)";
    for (const std::string& name : models) schema += "," + json_quote(name);
    schema += "]}";
  } else if (schema.empty() && known != member_schemas().end()) {
    schema = fmt::format(R"({{"anyOf":[{},{{"type":"null"}}]}})", known->schema);
  }
  if (fact.is_required) schema = fmt::format(R"({{"allOf":[{}],"not":{{"type":"null"}}}})", schema);
  return fmt::format("{}:{}", json_quote(fact.key), schema);
}

// Members that it does not name are ignored, as JSON schemas have it anyway.
std::string body_json(const MemberFacts& facts, const std::vector<std::string>& models) {
  std::vector<std::string> members, required;
  for (const MemberFact& fact : facts) {
    members.push_back(member_json(fact, models));
    if (fact.is_required) required.push_back(json_quote(fact.key));
  }
  const std::string needed = required.empty() ? "" : fmt::format(R"("required":[{}],)", list_of(required));
  return fmt::format(R"({{"required":true,"content":{{"application/json":{{"schema":{{"type":"object",{}"properties":)"
                     R"({{{}}}}}}}}}}})",
                     needed, list_of(members));
}

std::string content_json(const RouteFacts& route) {
  const std::string_view answer = route.answer;
  if (answer.find('/') != std::string_view::npos)
    return fmt::format(R"({}:{{"schema":{{"type":"string"}}}})", json_quote(answer));
  const std::string events = route.streams ? R"(,"text/event-stream":{})" : "";
  return fmt::format(R"("application/json":{{"schema":{{"$ref":"#/components/schemas/{}"}}}}{})", answer, events);
}

std::string parameters_json(const RouteFacts& route) {
  std::vector<std::string> all;
  if (std::string_view(route.path).ends_with("{id}"))
    all.emplace_back(R"({"name":"id","in":"path","required":true,"schema":{"type":"string"}})");
  if (route.flag)
    all.push_back(fmt::format(R"({{"name":{},"in":"query","schema":{{"type":"string"}}}})", json_quote(route.flag)));
  return all.empty() ? "" : fmt::format(R"("parameters":[{}],)", list_of(all));
}

std::string route_json(const RouteFacts& route, const std::vector<std::string>& models, bool needs_key) {
  std::string method = route.method;
  std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
  const std::string body = route.members ? fmt::format(R"("requestBody":{},)", body_json(route.members(), models)) : "";
  return fmt::format(R"("{}":{{"summary":{},{}{}{}"responses":{{"200":{{"description":"The answer","content":{{{}}}}},)"
                     R"("default":{{"description":"An error","content":{{"application/json":{{"schema":)"
                     R"({{"$ref":"#/components/schemas/Error"}}}}}}}}}}}})",
                     method, json_quote(route.summary), needs_key && route.is_open ? R"("security":[],)" : "",
                     parameters_json(route), body, content_json(route));
}

}  // namespace

std::string openapi_json(const std::vector<RouteFacts>& routes, const std::vector<std::string>& models,
                         bool needs_key) {
  std::vector<std::string> paths, schemas;
  for (const RouteFacts& route : routes)
    paths.push_back(fmt::format("{}:{{{}}}", json_quote(route.path), route_json(route, models, needs_key)));
  for (const AnswerSchema& one : answer_schemas()) schemas.push_back(fmt::format("\"{}\":{}", one.name, one.schema));
  const std::string keys = needs_key ? R"("security":[{"key":[]}],)" : "";
  const std::string schemes = needs_key ? R"("securitySchemes":{"key":{"type":"http","scheme":"bearer"}},)" : "";
  return fmt::format(R"({{"openapi":"3.1.0","info":{{"title":"Megalith","version":"{}"}},{}"paths":{{{}}},)"
                     R"("components":{{{}"schemas":{{{}}}}}}})",
                     MEGALITH_VERSION, keys, list_of(paths), schemes, list_of(schemas));
}

}  // namespace megalith::serve
