#include "megalith/serve/grammar_fields.h"

#include <fmt/format.h>

#include <utility>

#include "megalith/base/json_quote.h"
#include "megalith/model/json.h"
#include "megalith/serve/json_text.h"

namespace megalith::serve {

using grammar::GrammarKind;
using grammar::GrammarSource;

namespace {

constexpr size_t kMaxChoices = 4096;
constexpr const char* kFormats = "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"";

// As an object, true or false, or as the text of one, which vLLM takes, too.
GrammarSource schema_of(const JsonValue& value) {
  if (!value.is_object() && !value.is_string() && !value.is_boolean())
    value.fail(fmt::format("is {}, want a JSON schema, which is an object", value.excerpt()));
  return {GrammarKind::json_schema, value.is_string() ? value.string() : json_text(value)};
}

GrammarSource choice_of(const JsonValue& value) {
  const std::vector<JsonValue> all = value.elements();
  if (all.empty() || all.size() > kMaxChoices)
    value.fail(fmt::format("has {} choices, want 1 to {}", all.size(), kMaxChoices));
  std::vector<std::string> choices;
  for (const JsonValue& one : all) choices.push_back(one.string());
  return grammar::choice_of(choices);
}

GrammarSource rules_of(const JsonValue& value) { return {GrammarKind::ebnf, value.string()}; }
GrammarSource regex_of(const JsonValue& value) { return {GrammarKind::regex, value.string()}; }

// Text in which parts are of given forms, as an object or the text of one, as vLLM takes it: {"format": ...} in xgrammar's words
// (https://xgrammar.mlc.ai/docs/), or the older {"triggers": [...], "structures": [{"begin", "schema", "end"}]}, where JSON of a schema stands
// between `begin` and `end` wherever a sequence says a trigger, with which `begin` starts.
GrammarSource tag_of(const JsonValue& value) {
  if (value.is_string()) return tag_of(JsonFile::parse(value.string(), "the structural tag", true).root());
  std::string format;
  if (const auto whole = value.find("format")) {
    format = json_text(*whole);
  } else {
    for (const JsonValue& one : value.at("structures").elements())
      format +=
          fmt::format(R"({}{{"type":"tag","begin":{},"content":{{"type":"json_schema","json_schema":{}}},"end":{}}})",
                      format.empty() ? "" : ",", json_quote(one.at("begin").string()), json_text(one.at("schema")),
                      json_quote(one.at("end").string()));
    format = fmt::format(R"({{"type":"triggered_tags","triggers":{},"tags":[{}]}})", json_text(value.at("triggers")),
                         format);
  }
  return {GrammarKind::tag, R"({"type":"structural_tag","format":)" + format + "}"};
}

// {"type": ..., "json_schema": {"schema": ...}}, or with the schema's members beside the type, as in /v1/responses.
std::optional<GrammarSource> format_of(const JsonValue& value, bool is_flat) {
  const std::string& type = value.at("type").string();
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    const auto schema = value.find("schema");  // of llama-server
    return schema && !is_flat ? schema_of(*schema) : GrammarSource{GrammarKind::json};
  }
  if (type == "structural_tag") return tag_of(value);
  if (type != "json_schema") value.at("type").fail(fmt::format("is \"{}\", want {}", type, kFormats));
  return schema_of(is_flat ? value.at("schema") : value.at("json_schema").at("schema"));
}

std::optional<GrammarSource> structured_of(const JsonValue& value) {
  struct Form {
    const char* key;
    GrammarSource (*read)(const JsonValue&);
  };
  constexpr Form kForms[] = {{"json", schema_of},
                             {"regex", regex_of},
                             {"choice", choice_of},
                             {"grammar", rules_of},
                             {"structural_tag", tag_of}};
  std::optional<GrammarSource> found;
  const auto take = [&](GrammarSource source) {
    if (found)
      value.fail(
          "has several forms of an answer, want one of json, regex, choice, grammar, structural_tag and json_object");
    found = std::move(source);
  };
  for (const Form& form : kForms)
    if (const auto one = value.find(form.key)) take(form.read(*one));
  if (const auto any = value.find("json_object"); any && any->boolean()) take({GrammarKind::json});
  return found;
}

}  // namespace

void read_answer_grammar(const Fields& fields, GenerationRequest& request) {
  const auto take = [&](const char* key, std::optional<GrammarSource> source) {
    if (!source) return;
    if (request.grammar)
      throw ApiError::invalid(fmt::format("\"{}\" and \"{}\" both say of which form the answer is: want one of them",
                                          request.grammar->member, key),
                              key);
    request.grammar = {std::move(*source), key};
  };
  const auto read = [&](const char* key, auto source_of) {
    if (const auto value = fields.find(key))
      take(key, Fields::read(key, *value,
                             [&](const JsonValue& one) -> std::optional<GrammarSource> { return source_of(one); }));
  };
  read("response_format", [](const JsonValue& value) { return format_of(value, false); });
  if (request.api == Api::responses)
    read("text", [](const JsonValue& value) -> std::optional<GrammarSource> {
      const auto format = value.find("format");
      return format ? format_of(*format, true) : std::nullopt;
    });
  read("structured_outputs", structured_of);
  read("guided_json", schema_of);
  read("guided_regex", regex_of);
  read("guided_choice", choice_of);
  read("guided_grammar", rules_of);
  read("json_schema", schema_of);
  // "" is llama-server's default.
  read("grammar", [](const JsonValue& value) -> std::optional<GrammarSource> {
    return value.string().empty() ? std::nullopt : std::optional(rules_of(value));
  });
}

}  // namespace megalith::serve
