// The variable "loop" of a loop, and the elements that the loop goes through: Jinja looks ahead only where a template
// asks for what comes, so that loops over generators end where it ends them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "megalith/model/template_call.h"
#include "megalith/model/template_object.h"

namespace megalith {

class TemplateLoop : public TemplateObject {
 public:
  using Again = std::function<TemplateValue(const TemplateValue& elements, int64_t depth)>;

  /// `length`: how many elements there are, if that is known. `again`: what loop(...) runs; empty: the loop is not
  /// recursive.
  TemplateLoop(TemplateContext& context, std::unique_ptr<TemplateIterator> elements, std::optional<int64_t> length,
               Again again, int64_t depth)
      : context_(context), elements_(std::move(elements)), length_(length), again_(std::move(again)), depth_(depth) {}

  /// The next element; null at the end.
  std::optional<TemplateValue> next();
  /// At the end of the loop: what it went through is let go of.
  void clear() override;

  std::string kind_name() const override { return "the variable \"loop\""; }
  bool truth() override { return count() > 0; }
  std::optional<int64_t> length() override { return count(); }
  bool is_callable() const override { return true; }
  TemplateValue call(const TemplateCall& call) override;
  std::optional<TemplateValue> attribute(std::string_view name) override;
  MarkedText repr() override {
    return {"<LoopContext " + std::to_string(index_) + "/" + std::to_string(count()) + ">"};
  }

 private:
  int64_t count();
  const std::optional<TemplateValue>& ahead();

  TemplateContext& context_;
  std::unique_ptr<TemplateIterator> elements_;
  std::optional<int64_t> length_;
  Again again_;
  int64_t depth_;      // 0 for the outermost
  int64_t index_ = 0;  // of the current element, from 1
  std::optional<TemplateValue> before_, current_, after_;
  bool has_looked_ahead_ = false;
  std::optional<TemplateValue> changed_;  // the arguments of the last loop.changed()
};

}  // namespace megalith
