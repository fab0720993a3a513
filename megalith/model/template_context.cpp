#include "megalith/model/template_context.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/model/template_lex.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_text.h"

namespace megalith {

namespace {

// Bytes that are gone through, character by character, in about the time of a step.
constexpr size_t kBytesPerStep = 32;

}  // namespace

TemplateContext::~TemplateContext() {
  for (const auto& object : kept_) object->clear();
}

void TemplateContext::fail(const std::string& message) const { template_fail(template_name_, line_, message); }

void TemplateContext::charge(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) fail(fmt::format("rendering takes more than {} steps: the template may run away", kMaxSteps));
}

void TemplateContext::charge_text(size_t bytes) { charge(1 + static_cast<int64_t>(bytes / kBytesPerStep)); }

void TemplateContext::charge_characters(std::string_view text) {
  size_t beyond_ascii = 0;  // each of these bytes takes several times as long
  for (const char c : text) beyond_ascii += static_cast<signed char>(c) < 0;
  charge_text(text.size() + beyond_ascii * 15);
}

void TemplateContext::charge_search(std::string_view text, std::string_view what) {
  // The C library compares up to 256 bytes at each place before it turns to a linear search.
  const auto places = static_cast<int64_t>(text.size() / kBytesPerStep);
  charge(1 + places * (1 + static_cast<int64_t>(std::min<size_t>(what.size(), 256) / 32)));
}

}  // namespace megalith
