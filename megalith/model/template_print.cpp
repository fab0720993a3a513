// Template values as text: str(), repr() and json.dumps().
#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/template_text.h"
#include "megalith/model/template_value.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// What one value may grow to as text. Values are shared, so a short template can make one that would fill any memory.
constexpr size_t kMostText = 32 << 20;

void append_repr(MarkedText& out, const TemplateValue& value) {
  MEGALITH_CHECK(out.text.size() <= kMostText, "a value has more than {} bytes as text", kMostText);
  switch (value.kind()) {
    case Kind::string: return out.append(template_quote(value.string()).view());
    case Kind::list: {
      const TemplateList& list = value.list();
      out.append({list.is_tuple ? "(" : "["});
      for (size_t i = 0; i < list.elements.size(); ++i) {
        if (i) out.append({", "});
        append_repr(out, list.elements[i]);
      }
      return out.append({!list.is_tuple ? "]" : list.elements.size() == 1 ? ",)" : ")"});
    }
    case Kind::dict: {
      out.append({"{"});
      bool first = true;
      for (const auto& [key, member] : value.dict().members) {
        if (!std::exchange(first, false)) out.append({", "});
        append_repr(out, key);
        out.append({": "});
        append_repr(out, member);
      }
      return out.append({"}"});
    }
    default: return out.append(value.to_text().view());
  }
}

struct JsonStyle {
  int indent;
  bool sort_keys;
  std::string_view item_separator, key_separator;
};

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return template_number(value);
}

MarkedText json_key(const TemplateValue& key) {
  switch (key.kind()) {
    case Kind::string: return template_json_quote(key.string());
    case Kind::none: return {"\"null\""};
    case Kind::boolean: return {key.truth() ? "\"true\"" : "\"false\""};
    case Kind::integer: return {fmt::format("\"{}\"", key.integer())};
    case Kind::number: return {fmt::format("\"{}\"", json_number(key.number()))};
    default: throw UserError(fmt::format("{} cannot be a key in JSON", key.describe()));
  }
}

void append_json(MarkedText& out, const TemplateValue& value, const JsonStyle& style, int level) {
  MEGALITH_CHECK(out.text.size() <= kMostText, "a value has more than {} bytes as JSON", kMostText);
  auto line = [&](int at) {
    if (style.indent >= 0) out.append({"\n" + std::string(static_cast<size_t>(at) * style.indent, ' ')});
  };
  switch (value.kind()) {
    case Kind::none: return out.append({"null"});
    case Kind::boolean: return out.append({value.truth() ? "true" : "false"});
    case Kind::integer: return out.append({std::to_string(value.integer())});
    case Kind::number: return out.append({json_number(value.number())});
    case Kind::string: return out.append(template_json_quote(value.string()).view());
    case Kind::list: {
      const std::vector<TemplateValue>& elements = value.list().elements;
      MEGALITH_CHECK(!value.list().is_generator, "a generator cannot be written as JSON: make it a list first");
      if (elements.empty()) return out.append({"[]"});
      out.append({"["});
      for (size_t i = 0; i < elements.size(); ++i) {
        if (i) out.append({style.item_separator});
        line(level + 1);
        append_json(out, elements[i], style, level + 1);
      }
      line(level);
      return out.append({"]"});
    }
    case Kind::dict: {
      if (value.dict().members.empty()) return out.append({"{}"});
      std::vector<const std::pair<TemplateValue, TemplateValue>*> members;
      for (const auto& member : value.dict().members) members.push_back(&member);
      if (style.sort_keys)
        std::stable_sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->first.less(b->first); });
      out.append({"{"});
      for (size_t i = 0; i < members.size(); ++i) {
        if (i) out.append({style.item_separator});
        line(level + 1);
        out.append(json_key(members[i]->first).view());
        out.append({style.key_separator});
        append_json(out, members[i]->second, style, level + 1);
      }
      line(level);
      return out.append({"}"});
    }
    default: throw UserError(fmt::format("{} cannot be written as JSON", value.describe()));
  }
}

}  // namespace

MarkedText TemplateValue::to_text() const {
  switch (kind_) {
    case Kind::undefined: return {};
    case Kind::none: return {"None"};
    case Kind::boolean: return {integer_ ? "True" : "False"};
    case Kind::integer: return {std::to_string(integer_)};
    case Kind::number: return {template_number(number_)};
    case Kind::string: return string();
    case Kind::list:
    case Kind::dict: return to_repr();
    default: throw UserError(fmt::format("{} cannot be printed", kind_name()));
  }
}

MarkedText TemplateValue::to_repr() const {
  MarkedText out;
  append_repr(out, *this);
  return out;
}

MarkedText template_to_json(const TemplateValue& value, int indent, bool sort_keys, const std::string& item_separator,
                            const std::string& key_separator) {
  MarkedText out;
  append_json(out, value, {indent, sort_keys, item_separator, key_separator}, 0);
  return out;
}

}  // namespace megalith
