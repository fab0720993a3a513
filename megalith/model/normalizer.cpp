#include "megalith/model/normalizer.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/json.h"
#include "megalith/model/text_find.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

constexpr size_t kMaxNormalizers = 64;

// A mark covers what its characters became. Where characters join across the border of a mark, a stranger's combining
// mark and the template's letter, nobody can say whose the result is; then all of it counts as the stranger's.
MarkedText run_form(UnicodeForm form, const MarkedView& text) {
  MarkedText whole{unicode_normalize(text.text, form), {}};
  if (text.marks.empty()) return whole;
  MarkedText parts;
  for (size_t begin = 0; begin < text.text.size();) {
    const size_t end = std::min(text.marks.find(text.marks[begin] ? '\0' : '\1', begin), text.text.size());
    parts.append_for(text, begin, end, unicode_normalize(text.text.substr(begin, end - begin), form));
    begin = end;
  }
  if (parts.text == whole.text) return parts;
  whole.marks.assign(whole.text.size(), '\1');
  return whole;
}

MarkedText run_lowercase(const MarkedView& text) {
  MarkedText result;
  for (size_t begin = 0; begin < text.text.size();) {
    const size_t end = begin + utf8_next(text.text.substr(begin));
    result.append_for(text, begin, end, unicode_lowercase(utf8_code_point(text.text.substr(begin))));
    begin = end;
  }
  return result;
}

}  // namespace

Normalizer Normalizer::from_json(const JsonValue& value) {
  Normalizer result;
  result.add_steps(value);
  return result;
}

void Normalizer::add_steps(const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    value.at("normalizers").each_element([&](const JsonValue& part) { add_steps(part); });
    return;
  }
  if (steps_.size() >= kMaxNormalizers) value.fail(fmt::format("is one of more than {} steps", kMaxNormalizers));
  if (name == "NFC") {
    steps_.push_back({.kind = Kind::form, .form = UnicodeForm::nfc});
  } else if (name == "NFD") {
    steps_.push_back({.kind = Kind::form, .form = UnicodeForm::nfd});
  } else if (name == "NFKC") {
    steps_.push_back({.kind = Kind::form, .form = UnicodeForm::nfkc});
  } else if (name == "NFKD") {
    steps_.push_back({.kind = Kind::form, .form = UnicodeForm::nfkd});
  } else if (name == "Lowercase") {
    steps_.push_back({.kind = Kind::lowercase});
  } else if (name == "Replace") {
    const JsonValue pattern = value.at("pattern");
    Step step{.kind = Kind::replace, .content = value.at("content").string()};
    if (auto regex = pattern.find("Regex"))
      step.pattern = Regex::from_json(*regex);
    else
      step.text = pattern.at("String").string();
    steps_.push_back(std::move(step));
  } else if (name == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .text = value.at("prepend").string()});
  } else if (name == "Strip") {
    steps_.push_back({.kind = Kind::strip,
                      .strip_left = value.at("strip_left").boolean(),
                      .strip_right = value.at("strip_right").boolean()});
  } else {
    type.fail(fmt::format("is {}, supported are NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, Sequence",
                          type.excerpt()));
  }
}

MarkedText Normalizer::apply(const MarkedView& text, EncodeBudget& budget) const {
  MarkedText result{std::string(text.text), std::string(text.marks)};
  for (const Step& step : steps_) {
    result = run(step, result.view(), budget);
    budget.check_bytes(result.text.size());
    budget.check_time();
  }
  return result;
}

MarkedText Normalizer::run(const Step& step, const MarkedView& text, EncodeBudget& budget) {
  MarkedText result;
  const std::string_view from = text.text;
  switch (step.kind) {
    case Kind::form: return run_form(step.form, text);
    case Kind::lowercase: return run_lowercase(text);
    case Kind::replace: {
      size_t done = 0;
      auto replace = [&](size_t begin, size_t end) {
        result.append(text, done, begin);
        result.append_for(text, begin, end, step.content);
        budget.check_bytes(result.text.size());
        done = end;
      };
      if (step.pattern) {
        step.pattern->each_match(from, budget, replace);
      } else if (!step.text.empty()) {
        for (size_t at; (at = text_find(from, step.text, done)) != std::string_view::npos;)
          replace(at, at + step.text.size());
      }
      result.append(text, done, from.size());
      return result;
    }
    case Kind::prepend:
      if (!from.empty()) result.append_for(text, 0, 0, step.text);
      result.append(text, 0, from.size());
      return result;
    case Kind::strip: {
      size_t begin = 0, end = from.size();
      while (step.strip_left && begin < end && unicode_is_space(utf8_code_point(from.substr(begin))))
        begin += utf8_next(from.substr(begin));
      for (size_t last; step.strip_right && begin < end; end = last) {
        last = utf8_last(from.substr(0, end));
        if (!unicode_is_space(utf8_code_point(from.substr(last)))) break;
      }
      result.append(text, begin, end);
      return result;
    }
  }
  return result;
}

}  // namespace megalith
