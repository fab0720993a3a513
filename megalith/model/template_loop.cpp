#include "megalith/model/template_loop.h"

#include "megalith/base/error.h"

namespace megalith {

std::optional<TemplateValue> TemplateLoop::next() {
  std::optional<TemplateValue> element;
  if (has_looked_ahead_ && after_) {
    element = std::exchange(after_, std::nullopt);
    has_looked_ahead_ = false;
  } else if (!has_looked_ahead_) {
    element = elements_->next();
  }
  if (!element) return std::nullopt;
  ++index_;
  before_ = std::move(current_);
  current_ = element;
  return element;
}

void TemplateLoop::clear() {
  if (!length_) length_ = index_;
  elements_ = nullptr;
  again_ = nullptr;
  before_ = current_ = after_ = changed_ = std::nullopt;
  has_looked_ahead_ = true;
}

const std::optional<TemplateValue>& TemplateLoop::ahead() {
  if (!std::exchange(has_looked_ahead_, true)) after_ = elements_->next();
  return after_;
}

int64_t TemplateLoop::count() {
  if (length_) return *length_;
  // All that is left is gone through, to be counted, and kept.
  struct Kept : TemplateIterator {
    std::optional<TemplateValue> next() override {
      const auto& all = list.list().elements;
      return at < all.size() ? std::optional(all[at++]) : std::nullopt;
    }
    TemplateValue list;
    size_t at = 0;
  };
  std::vector<TemplateValue> rest;
  while (std::optional<TemplateValue> element = elements_->next()) rest.push_back(std::move(*element));
  length_ = std::ssize(rest) + index_ + (after_ ? 1 : 0);
  auto kept = std::make_unique<Kept>();
  kept->list = TemplateValue::list(std::move(rest));
  elements_ = std::move(kept);
  return *length_;
}

TemplateValue TemplateLoop::call(const TemplateCall& call) {
  const TemplateCall named = call.of("", "loop");
  named.check(1, {"iterable"});
  if (!again_) named.fail("is called in a loop that is not recursive: {% for ... recursive %}");
  return again_(named.at(0, "iterable"), depth_ + 1);
}

std::optional<TemplateValue> TemplateLoop::attribute(std::string_view name) {
  if (name == "index") return index_;
  if (name == "index0") return index_ - 1;
  if (name == "first") return index_ == 1;
  if (name == "last") return !ahead().has_value();
  if (name == "length") return count();
  if (name == "revindex") return count() - index_ + 1;
  if (name == "revindex0") return count() - index_;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem")
    return index_ > 1 && before_ ? *before_ : TemplateValue::missing("the element before the first");
  if (name == "nextitem") return ahead() ? *ahead() : TemplateValue::missing("the element behind the last");
  const auto self = std::static_pointer_cast<TemplateLoop>(shared_from_this());
  if (name == "cycle")
    return template_callable("cycle", [self](const TemplateCall& call) {
      const auto& choices = call.positional();
      call.check(choices.size());
      if (choices.empty()) call.fail("got nothing to choose from");
      return choices[static_cast<size_t>(self->index_ - 1) % choices.size()];
    });
  if (name == "changed")
    return template_callable("changed", [self](const TemplateCall& call) {
      call.check(call.positional().size());
      TemplateValue now = TemplateValue::tuple(call.positional());
      call.context().charge_walk(now);
      if (self->changed_ && *self->changed_ == now) return false;
      self->changed_ = std::move(now);
      return true;
    });
  return std::nullopt;
}

}  // namespace megalith
