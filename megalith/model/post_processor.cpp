#include "megalith/model/post_processor.h"

#include "megalith/base/error.h"
#include "megalith/model/bpe.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

// Published templates add one or two tokens. Each text pays for all of them.
constexpr size_t kMaxTokens = 1024;

// "single": [{"SpecialToken": {"id": "<|begin_of_text|>", ...}}, {"Sequence": {"id": "A", ...}}]; names are looked up
// in "special_tokens". The template for pairs of sequences is for classifiers, and not read.
void add_template(PostProcessor& result, const JsonValue& value) {
  std::vector<int> before, after;
  int sequences = 0;
  value.at("single").each_element([&](const JsonValue& part) {
    if (part.find("Sequence")) {
      ++sequences;
      return;
    }
    const std::string& name = part.at("SpecialToken").at("id").string();
    value.at("special_tokens").at(name).at("ids").each_element([&](const JsonValue& id) {
      (sequences ? after : before).push_back(static_cast<int>(id.integer(0, kMaxTokenIds - 1)));
    });
  });
  if (sequences != 1) value.at("single").fail(fmt::format("holds the sequence {} times, want once", sequences));
  if (result.before.size() + before.size() + result.after.size() + after.size() > kMaxTokens)
    value.fail(fmt::format("puts more than {} tokens around a text", kMaxTokens));
  result.before.insert(result.before.begin(), before.begin(), before.end());
  result.after.insert(result.after.end(), after.begin(), after.end());
}

void add(PostProcessor& result, const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  if (name == "ByteLevel") return;
  if (name == "TemplateProcessing") return add_template(result, value);
  if (name == "Sequence") {
    value.at("processors").each_element([&](const JsonValue& part) { add(result, part); });
    return;
  }
  type.fail(fmt::format("is {}, supported are Sequence, ByteLevel, TemplateProcessing", type.excerpt()));
}

}  // namespace

PostProcessor PostProcessor::from_json(const JsonValue& value) {
  PostProcessor result;
  add(result, value);
  return result;
}

}  // namespace megalith
