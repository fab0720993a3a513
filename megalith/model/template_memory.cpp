#include "megalith/model/template_memory.h"

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Prompts of a million tokens have some 4 MB, and their templates keep a few copies of them.
constexpr size_t kMaxHeldBytes = 256 << 20;

thread_local TemplateMemory* current = nullptr;

}  // namespace

TemplateMemory::TemplateMemory() : outer_(current) { current = this; }
TemplateMemory::~TemplateMemory() { current = outer_; }

TemplateHeld::TemplateHeld(size_t bytes) : memory_(current), bytes_(bytes) {
  if (!memory_) return;
  MEGALITH_CHECK(bytes <= kMaxHeldBytes - memory_->held_, "the values of a rendering hold more than {} bytes",
                 kMaxHeldBytes);
  memory_->held_ += bytes;
}

TemplateHeld::~TemplateHeld() {
  if (memory_ && memory_ == current) memory_->held_ -= bytes_;
}

}  // namespace megalith
