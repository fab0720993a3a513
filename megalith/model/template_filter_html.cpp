// Filters that write HTML and URLs, or read them.
#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

TemplateValue escape(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  const TemplateValue result = template_escaped_value(value);
  call.context().charge_escaped(result.text());
  return result;
}

TemplateValue forceescape(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  MarkedText result = template_escape(TemplateTextOf(call.context(), value));
  call.context().charge_escaped(result.text);
  return TemplateValue(std::move(result), true);
}

TemplateValue safe(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  return TemplateValue(template_part(text, 0, text.text().size()), true);
}

TemplateValue striptags(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const TemplateTextOf text(call.context(), value);
  call.context().charge(static_cast<int64_t>(text.text().size()));
  return template_striptags(text);
}

// One or more of a word's characters, "." "+" or "-" in front of ":", "://" or ":/".
bool is_scheme(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos || (text.substr(colon) != ":" && text.substr(colon) != ":/" && text.substr(colon) != "://"))
    return false;
  int count = 0;
  bool all = true;
  template_each_character(text.substr(0, colon), [&](size_t, size_t, char32_t c) {
    all &= c == '_' || c == '.' || c == '+' || c == '-' || unicode_is_alpha(c) || unicode_is_numeric(c);
    ++count;
  });
  return all && count >= 2;
}

TemplateValue urlize(const TemplateValue& value, const TemplateCall& call) {
  call.check(5, {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"});
  TemplateContext& context = call.context();
  TemplateLinks links;
  if (call.find_some(0, "trim_url_limit")) links.trim_limit = call.integer(0, "trim_url_limit", 0);
  if (call.find_some(2, "target")) links.target = call.string(2, "target");
  std::set<std::string> rel = {"noopener"};
  MarkedText given;
  if (call.find_some(3, "rel")) given = call.string(3, "rel");
  for (const TextRange& word : template_split(given.text, std::nullopt, -1, false))
    rel.insert(given.text.substr(word.begin, word.end - word.begin));
  if (call.flag(1, "nofollow", false)) rel.insert("nofollow");
  TemplateTextBuilder rel_text;
  const bool is_users = given.marks.find('\1') != std::string::npos;
  rel_text.append_for(is_users, fmt::format("{}", fmt::join(rel, " ")));
  links.rel = rel_text.take();
  if (const TemplateValue* schemes = call.find_some(4, "extra_schemes")) {
    for (const TemplateValue& scheme : template_elements(context, *schemes)) {
      if (!scheme.is(Kind::string) || !is_scheme(scheme.text()))
        call.fail(fmt::format("got the scheme {}, want one like \"tel:\"", scheme.describe()));
      links.extra_schemes.push_back(scheme.string());
    }
  }
  const TemplateValue escaped = escape(value, TemplateCall(context, "the filter", "urlize"));
  context.charge(static_cast<int64_t>(escaped.text().size()));
  context.charge(std::ssize(links.extra_schemes) * template_count(escaped.text(), " "));
  const MarkedText result = template_urlize(escaped.string().view(), links);
  context.charge_text(result.text.size());
  return result;
}

TemplateValue urlencode(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  TemplateContext& context = call.context();
  auto quoted = [&](const TemplateValue& part, bool in_query) {
    MarkedText text = template_url_quote(TemplateTextOf(context, part), in_query);
    context.charge(static_cast<int64_t>(text.text.size() / 2));
    return text;
  };
  const bool is_iterable = value.is(Kind::undefined) || value.is_sequence() || value.is(Kind::dict) ||
                           (value.is(Kind::object) && value.object().iterate());
  if (!is_iterable) return quoted(value, false);
  const TemplateValue pairs = value.is(Kind::dict) ? template_view(value, TemplateViewKind::items) : value;
  TemplateTextBuilder result;
  const auto elements = template_iterate(context, pairs);
  while (const std::optional<TemplateValue> pair = elements->next()) {
    const std::vector<TemplateValue> both = template_elements(context, *pair);
    if (both.size() != 2) call.fail(fmt::format("got {} values, want a name and a value", both.size()));
    if (result.size() > 0) result.append("&");
    result.append(quoted(both[0], true).view());
    result.append("=");
    result.append(quoted(both[1], true).view());
  }
  return result.take();
}

TemplateValue xmlattr(const TemplateValue& value, const TemplateCall& call) {
  call.check(1, {"autospace"});
  if (!value.is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", value.describe()));
  TemplateContext& context = call.context();
  TemplateTextBuilder result;
  bool any = false;
  for (const auto& [key, member] : value.dict().members) {
    if (member.is(Kind::none) || member.is(Kind::undefined)) continue;
    if (!key.is(Kind::string)) call.fail(fmt::format("got the attribute {}, want a string", key.describe()));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      call.fail(fmt::format("got the attribute {}, which has white space, \"/\", \">\" or \"=\"", key.describe()));
    if (std::exchange(any, true) || call.flag(0, "autospace", true)) result.append(" ");
    for (const TemplateValue* part : {&key, &member}) {
      const TemplateTextOf text(context, *part);
      if (part == &member) result.append("=\"");
      result.append(template_escaped_value(*part).string().view());
    }
    result.append("\"");
  }
  context.charge_text(result.size());
  return result.take();
}

constexpr TemplateFilterRow kHtmlFilters[] = {
    {"e", escape},      {"escape", escape},       {"forceescape", forceescape},
    {"safe", safe},     {"striptags", striptags}, {"urlencode", urlencode},
    {"urlize", urlize}, {"xmlattr", xmlattr},
};

}  // namespace

std::span<const TemplateFilterRow> template_html_filters() { return kHtmlFilters; }

}  // namespace megalith
