// Template values as JSON, as Python's json.dumps writes them.
#pragma once

#include <optional>

#include "megalith/model/template_value.h"

namespace megalith {

struct TemplateJsonStyle {
  bool ascii = false;                        // everything else escaped
  std::optional<MarkedText> indent = {};     // what a level is indented by; null: all on one line
  MarkedText item_separator, key_separator;  // ", " and ": "
  bool sort_keys = false;
};

/// UserError for what has no JSON.
MarkedText template_to_json(const TemplateValue& value, const TemplateJsonStyle& style);

}  // namespace megalith
