#include "megalith/model/template_object.h"

#include <algorithm>

#include "megalith/model/template_call.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

class Callable : public TemplateObject {
 public:
  Callable(std::string name, std::function<TemplateValue(const TemplateCall&)> function, int levels)
      : name_(std::move(name)), function_(std::move(function)), levels_(levels) {}
  std::string kind_name() const override { return fmt::format("the method \"{}\"", name_); }
  bool is_callable() const override { return true; }
  TemplateValue call(const TemplateCall& call) override { return function_(call.of("the method", name_)); }
  int levels() const override { return levels_; }

 private:
  std::string name_;
  std::function<TemplateValue(const TemplateCall&)> function_;
  int levels_;
};

class Generator : public TemplateObject {
 public:
  Generator(std::function<std::optional<TemplateValue>()> next, int levels) : next_(std::move(next)), levels_(levels) {}
  std::string kind_name() const override { return "a generator"; }
  int levels() const override { return levels_; }
  std::unique_ptr<TemplateIterator> iterate() override {
    return std::make_unique<Rest>(std::static_pointer_cast<Generator>(shared_from_this()));
  }

 private:
  struct Rest : TemplateIterator {
    explicit Rest(std::shared_ptr<Generator> from) : generator(std::move(from)) {}
    std::optional<TemplateValue> next() override {
      if (!generator->next_) return std::nullopt;
      std::optional<TemplateValue> value = generator->next_();
      if (!value) generator->next_ = nullptr;
      return value;
    }
    std::shared_ptr<Generator> generator;
  };

  std::function<std::optional<TemplateValue>()> next_;  // empty: it has come to its end
  int levels_;
};

// Values one after the other, out of something that `value` keeps alive.
struct Places : TemplateIterator {
  Places(TemplateValue from, size_t places, TemplateValue (*element)(const TemplateValue&, size_t))
      : value(std::move(from)), count(places), at_place(element) {}
  std::optional<TemplateValue> next() override {
    return at < count ? std::optional(at_place(value, at++)) : std::nullopt;
  }
  TemplateValue value;
  size_t at = 0, count;
  TemplateValue (*at_place)(const TemplateValue&, size_t);
};

struct Characters : TemplateIterator {
  explicit Characters(TemplateValue from) : value(std::move(from)) {}
  std::optional<TemplateValue> next() override {
    const MarkedView text = value.string().view();
    if (at == text.text.size()) return std::nullopt;
    const size_t begin = std::exchange(at, at + static_cast<size_t>(utf8_next(text.text.substr(at))));
    return template_part(text, begin, at);
  }
  TemplateValue value;
  size_t at = 0;
};

class View : public TemplateObject {
 public:
  View(TemplateValue dict, TemplateViewKind kind) : dict_(std::move(dict)), kind_(kind) {}
  std::string kind_name() const override { return std::string("the ") + name() + " of a dictionary"; }
  bool truth() override { return !members().empty(); }
  std::optional<int64_t> length() override { return std::ssize(members()); }
  std::unique_ptr<TemplateIterator> iterate() override {
    return std::make_unique<Places>(TemplateValue::of(shared_from_this()), members().size(),
                                    [](const TemplateValue& view, size_t at) { return view.as<View>()->element(at); });
  }
  std::optional<bool> contains(const TemplateValue& value) override {
    if (kind_ == TemplateViewKind::values) return std::nullopt;
    return has(value);
  }
  std::optional<TemplateValue> attribute(std::string_view name) override;
  bool is_hashable() const override { return kind_ == TemplateViewKind::values; }
  int levels() const override { return dict_.levels(); }
  int64_t weight() const override { return dict_.weight(); }
  MarkedText repr() override {
    TemplateTextBuilder text;
    text.append(std::string("dict_") + name() + "([");
    for (size_t i = 0; i < members().size(); ++i) {
      if (i) text.append(", ");
      text.append(element(i).to_repr().view());
    }
    text.append("])");
    return text.take();
  }
  bool equals(const TemplateObject& other) const override {
    const auto* view = comparable(other);
    return view ? members().size() == view->members().size() && all_in(*view) : this == &other;
  }
  std::optional<bool> within(const TemplateObject& other, bool or_equal) const override {
    const auto* view = comparable(other);
    if (!view) return std::nullopt;
    return (or_equal || members().size() < view->members().size()) && all_in(*view);
  }

 private:
  const TemplateValue::Members& members() const { return dict_.dict().members; }
  const char* name() const {
    return kind_ == TemplateViewKind::keys ? "keys" : kind_ == TemplateViewKind::values ? "values" : "items";
  }
  TemplateValue element(size_t at) const {
    const auto& [key, value] = members()[at];
    if (kind_ == TemplateViewKind::items) return TemplateValue::tuple({key, value});
    return kind_ == TemplateViewKind::keys ? key : value;
  }
  bool has(const TemplateValue& value) const {
    if (kind_ == TemplateViewKind::keys) return dict_.dict().find(value) != nullptr;
    if (!value.is(Kind::tuple) || value.list().elements.size() != 2) return false;
    const TemplateValue* found = dict_.dict().find(value.list().elements[0]);
    return found && *found == value.list().elements[1];
  }
  // Keys and items compare as sets.
  const View* comparable(const TemplateObject& other) const {
    const auto* view = dynamic_cast<const View*>(&other);
    return kind_ != TemplateViewKind::values && view && view->kind_ != TemplateViewKind::values ? view : nullptr;
  }
  bool all_in(const View& other) const {
    for (size_t i = 0; i < members().size(); ++i)
      if (!other.has(element(i))) return false;
    return true;
  }

  TemplateValue dict_;
  TemplateViewKind kind_;
};

std::optional<TemplateValue> View::attribute(std::string_view name) {
  if (name == "mapping") throw UserError("the attribute \"mapping\" of a view of a dictionary is not supported");
  if (name != "isdisjoint" || kind_ == TemplateViewKind::values) return std::nullopt;
  return template_callable(
      "isdisjoint",
      [self = std::static_pointer_cast<View>(shared_from_this())](const TemplateCall& call) {
        call.check(1);
        const auto other = template_iterate(call.context(), call.at(0));
        while (const std::optional<TemplateValue> value = other->next()) {
          call.context().charge_walk(*value);
          if (self->has(*value)) return false;
        }
        return true;
      },
      levels());
}

class Range : public TemplateObject {
 public:
  Range(mpz_class begin, mpz_class end, mpz_class step)
      : begin_(std::move(begin)), end_(std::move(end)), step_(std::move(step)) {
    const mpz_class distance = step_ > 0 ? mpz_class(end_ - begin_) : mpz_class(begin_ - end_), size = abs(step_);
    mpz_class count;
    mpz_cdiv_q(count.get_mpz_t(), distance.get_mpz_t(), size.get_mpz_t());
    MEGALITH_CHECK(count <= kMaxRange, "range() makes more than {} numbers", kMaxRange);
    count_ = std::max<int64_t>(count.get_si(), 0);
    is_small_ = begin_.fits_sint_p() && end_.fits_sint_p() && step_.fits_sint_p();
  }
  std::string kind_name() const override { return "a range"; }
  bool truth() override { return count_ > 0; }
  std::optional<int64_t> length() override { return count_; }
  std::unique_ptr<TemplateIterator> iterate() override {
    return std::make_unique<Places>(
        TemplateValue::of(shared_from_this()), static_cast<size_t>(count_),
        [](const TemplateValue& range, size_t at) { return range.as<Range>()->element(static_cast<int64_t>(at)); });
  }
  std::optional<bool> contains(const TemplateValue& value) override {
    if (!value.is_integer()) return std::nullopt;
    return place(value).has_value();
  }
  std::optional<TemplateValue> item(const TemplateValue& key) override {
    if (!key.is_integer() || key.is_big()) return std::nullopt;
    const int64_t at = key.integer() < 0 ? key.integer() + count_ : key.integer();
    if (at < 0 || at >= count_) return std::nullopt;
    return element(at);
  }
  std::optional<TemplateValue> attribute(std::string_view name) override {
    if (name == "start") return begin_;
    if (name == "stop") return end_;
    if (name == "step") return step_;
    if (name != "count" && name != "index") return std::nullopt;
    return template_callable(std::string(name),
                             [self = std::static_pointer_cast<Range>(shared_from_this()),
                              count = name == "count"](const TemplateCall& call) -> TemplateValue {
                               call.check(1);
                               std::optional<int64_t> found;
                               if (call.at(0).is_number())
                                 for (int64_t i = 0; i < self->count_ && !found; ++i)
                                   if (self->element(i) == call.at(0)) found = i;
                               call.context().charge(self->count_);
                               if (count) return found ? 1 : 0;
                               if (!found)
                                 call.fail(fmt::format("looks for {}, which is not there", call.at(0).describe()));
                               return *found;
                             });
  }
  MarkedText repr() override {
    std::string text = fmt::format("range({}, {}", begin_.get_str(), end_.get_str());
    if (step_ != 1) text += ", " + step_.get_str();
    return {text + ")"};
  }
  bool equals(const TemplateObject& other) const override {
    const auto* range = dynamic_cast<const Range*>(&other);
    if (!range || count_ != range->count_) return false;
    return count_ == 0 || (begin_ == range->begin_ && (count_ == 1 || step_ == range->step_));
  }
  std::string index_key() const override {
    if (count_ == 0) return "range";
    return fmt::format("range {} {} {}", count_, begin_.get_str(62), count_ == 1 ? "" : step_.get_str(62));
  }
  TemplateValue slice(int64_t begin, int64_t end, int64_t step) const {
    return template_range(number(begin), number(end), step_ * mpz_class(static_cast<long>(step)));
  }

 private:
  // As Jinja's sandbox has it.
  static constexpr int64_t kMaxRange = 100'000;

  mpz_class number(int64_t at) const { return begin_ + step_ * mpz_class(static_cast<long>(at)); }
  TemplateValue element(int64_t at) const {
    if (is_small_) return begin_.get_si() + step_.get_si() * at;
    return number(at);
  }
  std::optional<int64_t> place(const TemplateValue& value) const {
    const mpz_class distance = template_to_mpz(value) - begin_;
    if (!mpz_divisible_p(distance.get_mpz_t(), step_.get_mpz_t())) return std::nullopt;
    const mpz_class at = distance / step_;
    return at >= 0 && at < count_ ? std::optional<int64_t>(at.get_si()) : std::nullopt;
  }

  mpz_class begin_, end_, step_;
  int64_t count_;
  bool is_small_;  // so that no element needs more than 64 bits
};

// Charges each step.
struct Charged : TemplateIterator {
  Charged(TemplateContext& rendering, std::unique_ptr<TemplateIterator> iterator)
      : context(rendering), inner(std::move(iterator)) {}
  std::optional<TemplateValue> next() override {
    context.charge(1);
    return inner->next();
  }
  TemplateContext& context;
  std::unique_ptr<TemplateIterator> inner;
};

struct Nothing : TemplateIterator {
  std::optional<TemplateValue> next() override { return std::nullopt; }
};

std::unique_ptr<TemplateIterator> iterate(const TemplateValue& value) {
  switch (value.kind()) {
    case Kind::undefined: return std::make_unique<Nothing>();
    case Kind::string: return std::make_unique<Characters>(value);
    case Kind::list:
    case Kind::tuple:
      return std::make_unique<Places>(value, value.list().elements.size(),
                                      [](const TemplateValue& list, size_t at) { return list.list().elements[at]; });
    case Kind::dict:
      return std::make_unique<Places>(value, value.dict().members.size(), [](const TemplateValue& dict, size_t at) {
        return dict.dict().members[at].first;
      });
    case Kind::object: return value.object().iterate();
    default: return nullptr;
  }
}

}  // namespace

TemplateValue TemplateObject::call(const TemplateCall& call) { call.context().fail(kind_name() + " is called"); }

std::string TemplateObject::index_key() const { return fmt::format("o{}", static_cast<const void*>(this)); }

TemplateValue template_callable(std::string name, std::function<TemplateValue(const TemplateCall&)> function,
                                int levels) {
  return TemplateValue::of(
      std::make_shared<Callable>(std::move(name), std::move(function), template_levels_above(levels)));
}

TemplateValue template_generator(std::function<std::optional<TemplateValue>()> next, int levels) {
  return TemplateValue::of(std::make_shared<Generator>(std::move(next), template_levels_above(levels)));
}

TemplateValue template_range(const mpz_class& begin, const mpz_class& end, const mpz_class& step) {
  return TemplateValue::of(std::make_shared<Range>(begin, end, step));
}

TemplateValue template_view(TemplateValue dict, TemplateViewKind kind) {
  return TemplateValue::of(std::make_shared<View>(std::move(dict), kind));
}

std::unique_ptr<TemplateIterator> template_iterate(TemplateContext& context, const TemplateValue& value) {
  std::unique_ptr<TemplateIterator> iterator = iterate(value);
  if (!iterator) context.fail(fmt::format("{} cannot be gone through", value.describe()));
  return std::make_unique<Charged>(context, std::move(iterator));
}

std::vector<TemplateValue> template_elements(TemplateContext& context, const TemplateValue& value) {
  if (value.is_sequence()) {
    context.charge(std::ssize(value.list().elements));
    return value.list().elements;
  }
  constexpr size_t kMaxElements = 4'000'000;
  std::vector<TemplateValue> elements;
  const auto iterator = template_iterate(context, value);
  while (std::optional<TemplateValue> element = iterator->next()) {
    if (elements.size() == kMaxElements) context.fail(fmt::format("a value has more than {} parts", kMaxElements));
    elements.push_back(std::move(*element));
  }
  return elements;
}

std::vector<TemplateValue> template_reversed(TemplateContext& context, const TemplateValue& value) {
  if (value.as<Generator>()) context.fail(fmt::format("{} cannot be gone through backwards", value.describe()));
  std::vector<TemplateValue> elements = template_elements(context, value);
  std::reverse(elements.begin(), elements.end());
  return elements;
}

std::optional<int64_t> template_length_of(const TemplateValue& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return value.string_object().length;
    case Kind::list:
    case Kind::tuple: return std::ssize(value.list().elements);
    case Kind::dict: return std::ssize(value.dict().members);
    case Kind::object: return value.object().length();
    default: return std::nullopt;
  }
}

std::optional<TemplateValue> template_range_slice(const TemplateValue& value, int64_t begin, int64_t end,
                                                  int64_t step) {
  const auto range = value.as<Range>();
  return range ? std::optional(range->slice(begin, end, step)) : std::nullopt;
}

}  // namespace megalith
