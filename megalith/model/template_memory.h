// How many bytes the values of one rendering hold. A template comes with a model and may keep as many large values as
// it has names for, so a bound on each value is not enough. Texts, lists, dictionaries and objects count themselves
// while they live; what was made before the rendering (messages, tools) is bounded by its own size.
#pragma once

#include <cstddef>

namespace megalith {

/// Counts the values that are made on this thread while it lives. They must go before it does.
class TemplateMemory {
 public:
  TemplateMemory();
  ~TemplateMemory();
  TemplateMemory(const TemplateMemory&) = delete;
  TemplateMemory& operator=(const TemplateMemory&) = delete;

  size_t held() const { return held_; }

 private:
  friend class TemplateHeld;
  TemplateMemory* outer_;
  size_t held_ = 0;
};

/// The bytes of one value, counted from its making to its end.
class TemplateHeld {
 public:
  /// UserError if the rendering would hold too much.
  explicit TemplateHeld(size_t bytes);
  ~TemplateHeld();
  TemplateHeld(const TemplateHeld&) = delete;
  TemplateHeld& operator=(const TemplateHeld&) = delete;

 private:
  TemplateMemory* memory_;
  size_t bytes_;
};

}  // namespace megalith
