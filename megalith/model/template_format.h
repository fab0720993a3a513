// The three ways in which Python puts values into texts: format(value, ".2f"), "%5d" % value and "{:>5}".format(value).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/model/template_call.h"
#include "megalith/model/template_value.h"

namespace megalith {

/// A float as Python writes it in format `type`: one of e, f, g in both cases, or r for its repr. `with_point`: never
/// looks like an integer.
std::string template_format_double(double value, char type, int64_t precision, bool alternate, bool with_point);

/// format(value, spec)
MarkedText template_format_value(TemplateContext& context, const TemplateValue& value, const MarkedView& spec);

/// format % values; of Markup, escapes what it puts in.
MarkedText template_format_percent(TemplateContext& context, const MarkedView& format, const TemplateValue& values,
                                   bool is_markup);

/// format.format(...), or with `mapping` format.format_map(mapping).
MarkedText template_format_fields(const MarkedView& format, const TemplateCall& call, const TemplateValue* mapping,
                                  bool is_markup);

}  // namespace megalith
