// Python's textwrap.wrap(): a paragraph as lines of at most so many characters, broken at white space and hyphens.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/model/marked_text.h"

namespace megalith {

struct TemplateWrap {
  int64_t width = 79;  // above 0
  bool break_long_words = true, break_on_hyphens = true;
};

std::vector<MarkedText> template_wrap(const MarkedView& paragraph, const TemplateWrap& how);

}  // namespace megalith
