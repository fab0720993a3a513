// HTML in texts, as MarkupSafe and Jinja's filters treat it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/marked_text.h"
#include "megalith/model/template_value.h"

namespace megalith {

/// &, <, >, ' and " as entities.
MarkedText template_escape(const MarkedView& text);
/// The same of any value's text, as Markup; Markup stays as it is.
TemplateValue template_escaped_value(const TemplateValue& value);
/// html.unescape(): entities as what they stand for.
MarkedText template_unescape(const MarkedView& text);
/// Without tags and comments, white space as single spaces, entities as what they stand for.
MarkedText template_striptags(const MarkedView& text);

struct TemplateLinks {
  std::optional<int64_t> trim_limit = {};  // what is shown of a URL, in characters
  MarkedText rel = {}, target = {};        // attributes; "": none
  std::vector<MarkedText> extra_schemes = {};
};
/// An escaped text with links around its URLs and mail addresses.
MarkedText template_urlize(const MarkedView& escaped, const TemplateLinks& links);

/// Percent-encoded for a URL; in a query "/" too, and spaces as "+".
MarkedText template_url_quote(const MarkedView& text, bool in_query);

}  // namespace megalith
