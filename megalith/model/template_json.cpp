#include "megalith/model/template_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return template_number(value);
}

class Writer {
 public:
  explicit Writer(const TemplateJsonStyle& style) : style_(style) {}
  MarkedText take() { return out_.take(); }

  void value(const TemplateValue& value, int level) {
    switch (value.kind()) {
      case Kind::none: return out_.append("null");
      case Kind::boolean: return out_.append(value.truth() ? "true" : "false");
      case Kind::integer: return out_.append(template_digits(value));
      case Kind::number: return out_.append(json_number(value.number()));
      case Kind::string: return string(value.string().view());
      case Kind::list:
      case Kind::tuple: return list(value.list().elements, level);
      case Kind::dict: return dict(value.dict().members, level);
      default:
        throw UserError(fmt::format("{} cannot be written as JSON{}", value.describe(),
                                    value.is(Kind::object) ? ": make it a list first, if it can be gone through" : ""));
    }
  }

 private:
  void string(const MarkedView& text) { out_.append(template_json_quote(text, style_.ascii).view()); }

  void line(int level) {
    if (!style_.indent) return;
    out_.append("\n");
    out_.append(style_.indent->view(), level);
  }

  void list(const std::vector<TemplateValue>& elements, int level) {
    if (elements.empty()) return out_.append("[]");
    out_.append("[");
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i) out_.append(style_.item_separator.view());
      line(level + 1);
      value(elements[i], level + 1);
    }
    line(level);
    out_.append("]");
  }

  void dict(const TemplateValue::Members& all, int level) {
    if (all.empty()) return out_.append("{}");
    std::vector<const std::pair<TemplateValue, TemplateValue>*> members;
    for (const auto& member : all) members.push_back(&member);
    if (style_.sort_keys)
      std::stable_sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->first.less(b->first); });
    out_.append("{");
    for (size_t i = 0; i < members.size(); ++i) {
      if (i) out_.append(style_.item_separator.view());
      line(level + 1);
      key(members[i]->first);
      out_.append(style_.key_separator.view());
      value(members[i]->second, level + 1);
    }
    line(level);
    out_.append("}");
  }

  void key(const TemplateValue& key) {
    switch (key.kind()) {
      case Kind::string: return string(key.string().view());
      case Kind::none: return out_.append("\"null\"");
      case Kind::boolean: return out_.append(key.truth() ? "\"true\"" : "\"false\"");
      case Kind::integer: return out_.append(fmt::format("\"{}\"", template_digits(key)));
      case Kind::number: return out_.append(fmt::format("\"{}\"", json_number(key.number())));
      default: throw UserError(fmt::format("{} cannot be a key in JSON", key.describe()));
    }
  }

  const TemplateJsonStyle& style_;
  TemplateTextBuilder out_;
};

// Builds values while the document is read: nothing is built of what nests too deeply, and a number keeps its digits.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(const std::string& name, bool is_user_content) : name_(name), is_user_content_(is_user_content) {
    open_.emplace_back();
  }
  TemplateValue take() { return std::move(open_.front().values.front()); }

  bool null() override { return add(TemplateValue::none()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(mpz_class(static_cast<unsigned long>(value))); }
  bool number_float(double value, const std::string& digits) override {
    // An integer of more than 64 bits comes as a float, too.
    if (digits.find_first_of(".eE") != std::string::npos) return add(value);
    const std::optional<TemplateValue> integer = template_parse_integer(digits, 10);
    MEGALITH_CHECK(integer, "{} has an integer of {} digits, which are too many", name_, digits.size());
    return add(*integer);
  }
  bool string(std::string& value) override { return add(marked(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool key(std::string& value) override { return add(marked(value)); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return add(TemplateValue::list(close())); }
  bool end_object() override {
    std::vector<TemplateValue> all = close();
    TemplateValue::Members members;
    members.reserve(all.size() / 2);
    for (size_t i = 0; i + 1 < all.size(); i += 2) members.emplace_back(std::move(all[i]), std::move(all[i + 1]));
    return add(TemplateValue::dict(std::move(members)));
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw UserError(fmt::format("{} is not JSON: {}", name_, error.what()));
  }

 private:
  struct Open {
    std::vector<TemplateValue> values;  // of an object: keys and members in turn
  };

  bool add(TemplateValue value) {
    open_.back().values.push_back(std::move(value));
    return true;
  }
  bool open() {
    constexpr size_t kMaxLevels = 100;
    MEGALITH_CHECK(open_.size() < kMaxLevels, "{} nests deeper than {} levels", name_, kMaxLevels);
    open_.emplace_back();
    return true;
  }
  std::vector<TemplateValue> close() {
    std::vector<TemplateValue> values = std::move(open_.back().values);
    open_.pop_back();
    return values;
  }
  TemplateValue marked(std::string& text) const {
    MarkedText result{std::move(text), {}};
    if (is_user_content_) result.marks.assign(result.text.size(), '\1');
    return result;
  }

  const std::string& name_;
  bool is_user_content_;
  std::vector<Open> open_;
};

}  // namespace

MarkedText template_to_json(const TemplateValue& value, const TemplateJsonStyle& style) {
  Writer writer(style);
  writer.value(value, 0);
  return writer.take();
}

TemplateValue TemplateValue::from_json(std::string_view text, const std::string& name, bool is_user_content) {
  JsonReader reader(name, is_user_content);
  nlohmann::json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace megalith
