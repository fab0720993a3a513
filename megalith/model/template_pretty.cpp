// Python's pprint.pformat(): values over several lines where one of 80 characters does not hold them.
#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

constexpr int64_t kWidth = 80;

// Python's name of the type.
std::string_view type_name(const TemplateValue& value) {
  switch (value.kind()) {
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::number: return "float";
    case Kind::string: return "str";
    case Kind::tuple: return "tuple";
    default: return "object";
  }
}

using Pair = std::pair<TemplateValue, TemplateValue>;

class Pretty {
 public:
  explicit Pretty(TemplateContext& context) : context_(context) {}
  MarkedText take() { return out_.take(); }

  // As repr() has it, but for the order of keys. `allowance` is what must fit behind it.
  void value(const TemplateValue& value, int64_t indent, int64_t allowance, int level) {
    context_.charge_walk(value);
    TemplateTextBuilder flat_text;
    flat(flat_text, value);
    const MarkedText all = flat_text.take();
    context_.charge_escaped(all.text);
    context_.charge_walk(value);
    const bool fits = template_length(all.text) <= kWidth - indent - allowance;
    if (fits || value.is_markup()) return out_.append(all.view());
    switch (value.kind()) {
      case Kind::dict: return dict(value, indent, allowance + 1, level + 1);
      case Kind::string: return string(value.string().view(), indent, allowance, level + 1);
      case Kind::list:
        out_.append("[");
        elements(value, indent, allowance + 1, level + 1);
        return out_.append("]");
      case Kind::tuple:
        if (value.list().is_group) break;
        out_.append("(");
        elements(value, indent, allowance + (value.list().elements.size() == 1 ? 2 : 1), level + 1);
        return out_.append(value.list().elements.size() == 1 ? ",)" : ")");
      default: break;
    }
    out_.append(all.view());
  }

 private:
  // Keys of one kind in their order; those of several by the name of the type.
  bool key_before(const TemplateValue& a, const TemplateValue& b) {
    context_.charge(std::min(a.weight(), b.weight()));
    try {
      return a.less(b);
    } catch (const UserError&) {
      constexpr int64_t kThrown = 30;  // steps that an exception takes
      context_.charge(kThrown);
      return type_name(a) < type_name(b);
    }
  }

  std::vector<const Pair*> sorted(const TemplateValue& dict) {
    std::vector<const Pair*> members;
    for (const Pair& member : dict.dict().members) members.push_back(&member);
    std::stable_sort(members.begin(), members.end(),
                     [&](const Pair* a, const Pair* b) { return key_before(a->first, b->first); });
    return members;
  }

  void flat(TemplateTextBuilder& out, const TemplateValue& value) {
    if (value.is_sequence()) {
      const auto& all = value.list().elements;
      out.append(value.is(Kind::list) ? "[" : "(");
      for (size_t i = 0; i < all.size(); ++i) {
        if (i) out.append(", ");
        flat(out, all[i]);
      }
      out.append(value.is(Kind::list) ? "]" : all.size() == 1 ? ",)" : ")");
    } else if (value.is(Kind::dict)) {
      out.append("{");
      bool is_first = true;
      for (const Pair* member : sorted(value)) {
        if (!std::exchange(is_first, false)) out.append(", ");
        flat(out, member->first);
        out.append(": ");
        flat(out, member->second);
      }
      out.append("}");
    } else {
      out.append(value.to_repr().view());
    }
  }

  void line(int64_t indent) {
    out_.append("\n");
    out_.append({" "}, indent);
  }

  void dict(const TemplateValue& value, int64_t indent, int64_t allowance, int level) {
    out_.append("{");
    ++indent;
    const std::vector<const Pair*> members = sorted(value);
    for (size_t i = 0; i < members.size(); ++i) {
      if (i) {
        out_.append(",");
        line(indent);
      }
      TemplateTextBuilder key;
      flat(key, members[i]->first);
      const MarkedText name = key.take();
      out_.append(name.view());
      out_.append(": ");
      this->value(members[i]->second, indent + template_length(name.text) + 2, i + 1 == members.size() ? allowance : 1,
                  level);
    }
    out_.append("}");
  }

  void elements(const TemplateValue& value, int64_t indent, int64_t allowance, int level) {
    const auto& all = value.list().elements;
    ++indent;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i) {
        out_.append(",");
        line(indent);
      }
      this->value(all[i], indent, i + 1 == all.size() ? allowance : 1, level);
    }
  }

  // A long string as several, one behind the other, broken at line ends and behind white space.
  void string(const MarkedView& text, int64_t indent, int64_t allowance, int level) {
    if (level == 1) ++indent, ++allowance;
    const int64_t width = kWidth - indent;
    std::vector<MarkedText> chunks;
    MarkedText quoted;
    const std::vector<TextRange> lines = template_splitlines(text.text, true);
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool is_last = i + 1 == lines.size();
      quoted = template_quote(text.part(lines[i].begin, lines[i].end));
      if (template_length(quoted.text) <= width - (is_last ? allowance : 0)) {
        chunks.push_back(quoted);
        continue;
      }
      const std::vector<TextRange> words = parts(text.text, lines[i]);
      TextRange current{lines[i].begin, lines[i].begin};
      for (size_t j = 0; j < words.size(); ++j) {
        const int64_t most = width - (is_last && j + 1 == words.size() ? allowance : 0);
        const MarkedText candidate = template_quote(text.part(current.begin, words[j].end));
        context_.charge_escaped(candidate.text);
        if (template_length(candidate.text) > most) {
          if (current.begin < current.end) chunks.push_back(template_quote(text.part(current.begin, current.end)));
          current = words[j];
        } else {
          current.end = words[j].end;
        }
      }
      if (current.begin < current.end) chunks.push_back(template_quote(text.part(current.begin, current.end)));
    }
    if (chunks.size() == 1) return out_.append(quoted.view());
    if (level == 1) out_.append("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i) line(indent);
      out_.append(chunks[i].view());
    }
    if (level == 1) out_.append(")");
  }

  // Words with the white space behind them.
  static std::vector<TextRange> parts(std::string_view text, const TextRange& line) {
    std::vector<TextRange> all;
    bool in_space = false;
    size_t begin = line.begin;
    template_each_character(text.substr(line.begin, line.end - line.begin), [&](size_t at, size_t, char32_t c) {
      const bool is_space = unicode_is_python_space(c);
      if (in_space && !is_space) {
        all.push_back({begin, line.begin + at});
        begin = line.begin + at;
      }
      in_space = is_space;
    });
    if (begin < line.end) all.push_back({begin, line.end});
    return all;
  }

  TemplateContext& context_;
  TemplateTextBuilder out_;
};

}  // namespace

MarkedText template_pretty(TemplateContext& context, const TemplateValue& value) {
  Pretty pretty(context);
  pretty.value(value, 0, 0, 0);
  return pretty.take();
}

}  // namespace megalith
