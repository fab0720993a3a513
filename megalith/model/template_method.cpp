#include "megalith/model/template_method.h"

#include <algorithm>
#include <cmath>

#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;
using Row = TemplateMethodRow;

namespace {

TemplateValue same(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  return object.is(Kind::boolean) ? TemplateValue(object.integer()) : object;
}

TemplateValue integer_ratio(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  if (object.is_integer()) return TemplateValue::tuple({template_to_mpz(object), 1});
  if (!std::isfinite(object.number())) call.fail(fmt::format("is asked of {}", object.describe()));
  mpq_class ratio(object.number());
  return TemplateValue::tuple({mpz_class(ratio.get_num()), mpz_class(ratio.get_den())});
}

TemplateValue hex(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  const double value = object.number();
  if (!std::isfinite(value)) return template_number(value);
  const char* sign = std::signbit(value) ? "-" : "";
  if (value == 0) return fmt::format("{}0x0.0p+0", sign);
  constexpr int kLeast = -1022;  // the exponent of the smallest number with a leading one
  int exponent = std::max(std::ilogb(value), kLeast);
  const auto digits = static_cast<uint64_t>(std::ldexp(std::abs(value), 52 - exponent));
  return fmt::format("{}0x{}.{:013x}p{:+}", sign, digits >> 52, digits & ((uint64_t{1} << 52) - 1), exponent);
}

constexpr Row kIntegerMethods[] = {
    {"as_integer_ratio", Row::Access::method, integer_ratio},
    {"bit_count", Row::Access::method,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return static_cast<int64_t>(mpz_popcount(mpz_class(abs(template_to_mpz(object))).get_mpz_t()));
     }},
    {"bit_length", Row::Access::method,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return template_bits(object);
     }},
    {"conjugate", Row::Access::method, same},
    {"denominator", Row::Access::property,
     [](const TemplateValue&, const TemplateCall&) -> TemplateValue { return 1; }},
    {"from_bytes", Row::Access::unsupported},
    {"imag", Row::Access::property, [](const TemplateValue&, const TemplateCall&) -> TemplateValue { return 0; }},
    {"is_integer", Row::Access::method,
     [](const TemplateValue&, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return true;
     }},
    {"numerator", Row::Access::property, same},
    {"real", Row::Access::property, same},
    {"to_bytes", Row::Access::unsupported},
};

constexpr Row kNumberMethods[] = {
    {"as_integer_ratio", Row::Access::method, integer_ratio},
    {"conjugate", Row::Access::method, same},
    {"fromhex", Row::Access::unsupported},
    {"hex", Row::Access::method, hex},
    {"imag", Row::Access::property, [](const TemplateValue&, const TemplateCall&) -> TemplateValue { return 0.0; }},
    {"is_integer", Row::Access::method,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(0);
       return std::isfinite(object.number()) && object.number() == std::floor(object.number());
     }},
    {"real", Row::Access::property, same},
};

TemplateValue list_count(const TemplateValue& object, const TemplateCall& call) {
  call.check(1);
  const auto& all = object.list().elements;
  call.context().charge_walk(object);
  return static_cast<int64_t>(std::count(all.begin(), all.end(), call.at(0)));
}

TemplateValue list_index(const TemplateValue& object, const TemplateCall& call) {
  call.check(3);
  const auto& all = object.list().elements;
  const auto length = std::ssize(all);
  auto bound = [&](size_t position, int64_t absent) {
    const int64_t value = call.integer(position, "", absent);
    return std::clamp<int64_t>(value < 0 ? value + length : value, 0, length);
  };
  call.context().charge_walk(object);
  for (int64_t i = bound(1, 0), end = bound(2, length); i < end; ++i)
    if (all[static_cast<size_t>(i)] == call.at(0)) return i;
  call.fail(fmt::format("looks for {}, which is not there", call.at(0).describe()));
}

constexpr Row kListMethods[] = {
    {"append", Row::Access::changes},    {"clear", Row::Access::changes},
    {"copy", Row::Access::method, same}, {"count", Row::Access::method, list_count},
    {"extend", Row::Access::changes},    {"index", Row::Access::method, list_index},
    {"insert", Row::Access::changes},    {"pop", Row::Access::changes},
    {"remove", Row::Access::changes},    {"reverse", Row::Access::changes},
    {"sort", Row::Access::changes},
};

template <size_t place>
TemplateValue group_element(const TemplateValue& object, const TemplateCall&) {
  return object.list().elements[place];
}

constexpr Row kTupleMethods[] = {
    {"count", Row::Access::method, list_count},
    {"index", Row::Access::method, list_index},
};

constexpr Row kGroupMethods[] = {
    {"count", Row::Access::method, list_count},
    {"grouper", Row::Access::property, group_element<0>},
    {"index", Row::Access::method, list_index},
    {"list", Row::Access::property, group_element<1>},
};

template <TemplateViewKind kind>
TemplateValue view(const TemplateValue& object, const TemplateCall& call) {
  call.check(0);
  return template_view(object, kind);
}

constexpr Row kDictMethods[] = {
    {"clear", Row::Access::changes},
    {"copy", Row::Access::method, same},
    {"fromkeys", Row::Access::method,
     [](const TemplateValue&, const TemplateCall& call) { return template_dict_from_keys(call); }},
    {"get", Row::Access::method,
     [](const TemplateValue& object, const TemplateCall& call) -> TemplateValue {
       call.check(2);
       call.context().charge_walk(call.at(0));
       if (const TemplateValue* value = object.dict().find(call.at(0))) return *value;
       const TemplateValue* absent = call.find(1);
       return absent ? *absent : TemplateValue::none();
     }},
    {"items", Row::Access::method, view<TemplateViewKind::items>},
    {"keys", Row::Access::method, view<TemplateViewKind::keys>},
    {"pop", Row::Access::changes},
    {"popitem", Row::Access::changes},
    {"setdefault", Row::Access::changes},
    {"update", Row::Access::changes},
    {"values", Row::Access::method, view<TemplateViewKind::values>},
};

std::span<const Row> rows_of(const TemplateValue& object) {
  switch (object.kind()) {
    case Kind::boolean:
    case Kind::integer: return kIntegerMethods;
    case Kind::number: return kNumberMethods;
    case Kind::string: return template_text_methods();
    case Kind::list: return kListMethods;
    case Kind::tuple: return object.list().is_group ? std::span<const Row>(kGroupMethods) : kTupleMethods;
    case Kind::dict: return kDictMethods;
    default: return {};
  }
}

const Row* find_row(std::span<const Row> rows, std::string_view name) {
  const auto entry = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return entry == rows.end() ? nullptr : &*entry;
}

TemplateValue as_markup(const TemplateValue& value) {
  if (value.is(Kind::string)) return TemplateValue(value.string(), true);
  if (!value.is_sequence()) return value;
  std::vector<TemplateValue> elements;
  for (const TemplateValue& element : value.list().elements) elements.push_back(as_markup(element));
  return value.is(Kind::tuple) ? TemplateValue::tuple(std::move(elements)) : TemplateValue::list(std::move(elements));
}

// A method that was named, but not called yet.
class Method : public TemplateObject {
 public:
  Method(TemplateValue object, const Row& row)
      : object_(std::move(object)), row_(row), levels_(template_levels_above(object_.levels())) {}
  std::string kind_name() const override {
    return fmt::format("the method \"{}\" of {}", row_.name, object_.kind_name());
  }
  bool is_callable() const override { return true; }
  int levels() const override { return levels_; }
  int64_t weight() const override { return object_.weight(); }
  bool equals(const TemplateObject& other) const override {
    const auto* method = dynamic_cast<const Method*>(&other);
    return method && &method->row_ == &row_ && method->object_.is_same(object_);
  }
  TemplateValue call(const TemplateCall& call) override {
    if (row_.access == Row::Access::unsupported) call.context().fail(kind_name() + " is not supported");
    if (object_.is(Kind::string)) call.context().charge_characters(object_.text());
    TemplateValue result = row_.method(object_, call.of("the method", std::string(row_.name)));
    return row_.access == Row::Access::markup && object_.is_markup() ? as_markup(result) : result;
  }

 private:
  TemplateValue object_;
  const Row& row_;
  int levels_;
};

}  // namespace

std::optional<TemplateValue> template_own_attribute(TemplateContext& context, const TemplateValue& object,
                                                    std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) {
    // Every object has some of these, and templates may use none.
    static constexpr std::string_view kHidden[] = {
        "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",          "__format__",
        "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",        "__init_subclass__",
        "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",      "__reduce_ex__",
        "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__"};
    if (std::find(std::begin(kHidden), std::end(kHidden), name) != std::end(kHidden))
      return TemplateValue::unsafe(
          fmt::format("the attribute \"{}\" of {}, which templates may not use", name, object.kind_name()));
  }
  if (object.is(Kind::object)) return object.object().attribute(name);
  const Row* found = find_row(rows_of(object), name);
  if (!found && object.is_markup()) found = find_row(template_markup_methods(), name);
  if (!found) return std::nullopt;
  if (found->access == Row::Access::changes)
    return TemplateValue::unsafe(fmt::format(
        "the method \"{}\" of {}, which templates may not use: it changes the object", name, object.kind_name()));
  if (found->access == Row::Access::property)
    return found->method(object, TemplateCall(context, "the attribute", std::string(name)));
  return TemplateValue::of(std::make_shared<Method>(object, *found));
}

TemplateValue template_dict_from_keys(const TemplateCall& call) {
  call.check(2);
  const TemplateValue* value = call.find(1);
  TemplateValue::Members members;
  for (TemplateValue& key : template_elements(call.context(), call.at(0))) {
    call.context().charge_walk(key);
    members.emplace_back(std::move(key), value ? *value : TemplateValue::none());
  }
  return TemplateValue::dict(std::move(members));
}

}  // namespace megalith
