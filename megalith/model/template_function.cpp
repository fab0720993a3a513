#include "megalith/model/template_function.h"

#include <time.h>

#include <algorithm>
#include <ctime>

#include "megalith/base/error.h"
#include "megalith/model/template_call.h"
#include "megalith/model/template_method.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

using Body = TemplateValue (*)(const TemplateCall& call);

class Function : public TemplateObject {
 public:
  Function(std::string name, Body body) : name_(std::move(name)), body_(body) {}
  std::string kind_name() const override { return "a function"; }
  bool is_callable() const override { return true; }
  TemplateValue call(const TemplateCall& call) override { return body_(call.of("", name_)); }

 private:
  std::string name_;
  Body body_;
};

TemplateValue range(const TemplateCall& call) {
  call.check(3);
  auto bound = [&](size_t position) -> mpz_class {
    const TemplateValue& value = call.at(position);
    if (!value.is_integer()) call.fail(fmt::format("got {}, want an integer", value.describe()));
    return template_to_mpz(value);
  };
  const size_t count = call.positional().size();
  if (count == 0) call.fail("got no arguments, want 1 to 3");
  const mpz_class step = count > 2 ? bound(2) : 1;
  if (step == 0) call.fail("got the step 0");
  return count > 1 ? template_range(bound(0), bound(1), step) : template_range(0, bound(0), step);
}

// dict(...): of a dictionary or of pairs, and of names.
TemplateValue make_dict(const TemplateCall& call) {
  if (call.positional().size() > 1)
    call.fail(fmt::format("got {} arguments, want at most 1", call.positional().size()));
  TemplateContext& context = call.context();
  TemplateValue::Members members;
  if (!call.positional().empty()) {
    const TemplateValue& from = call.at(0);
    if (from.is(Kind::dict)) {
      members = from.dict().members;
    } else {
      const auto pairs = template_iterate(context, from);
      while (const std::optional<TemplateValue> pair = pairs->next()) {
        std::vector<TemplateValue> both = template_elements(context, *pair);
        if (both.size() != 2) call.fail(fmt::format("got {} values, want a key and its value", both.size()));
        members.emplace_back(std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : call.named()) members.emplace_back(name, value);
  for (const auto& [key, value] : members) context.charge_walk(key);
  return TemplateValue::dict(std::move(members));
}

class DictFunction : public Function {
 public:
  DictFunction() : Function("dict", make_dict) {}
  std::optional<TemplateValue> attribute(std::string_view name) override {
    if (name != "fromkeys") return std::nullopt;
    return template_callable("fromkeys", template_dict_from_keys);
  }
};

TemplateValue make_namespace(const TemplateCall& call) {
  auto space = std::make_shared<TemplateNamespace>(make_dict(call));
  call.context().keep(space);
  return TemplateValue::of(std::move(space));
}

class Cycler : public TemplateObject {
 public:
  explicit Cycler(std::vector<TemplateValue> items)
      : items_(TemplateValue::tuple(std::move(items))), levels_(template_levels_above(items_.levels())) {}
  std::string kind_name() const override { return "a cycler"; }
  int levels() const override { return levels_; }
  std::optional<TemplateValue> attribute(std::string_view name) override {
    if (name == "items") return items_;
    if (name == "pos") return static_cast<int64_t>(at_);
    if (name == "current") return current();
    const auto self = std::static_pointer_cast<Cycler>(shared_from_this());
    if (name == "next")
      return template_callable(
          "next",
          [self](const TemplateCall& call) {
            call.check(0);
            TemplateValue value = self->current();
            self->at_ = (self->at_ + 1) % self->items_.list().elements.size();
            return value;
          },
          levels_);
    if (name == "reset")
      return template_callable(
          "reset",
          [self](const TemplateCall& call) {
            call.check(0);
            self->at_ = 0;
            return TemplateValue::none();
          },
          levels_);
    return std::nullopt;
  }

 private:
  const TemplateValue& current() const { return items_.list().elements[at_]; }

  TemplateValue items_;
  size_t at_ = 0;
  int levels_;
};

TemplateValue make_cycler(const TemplateCall& call) {
  call.check(call.positional().size());
  if (call.positional().empty()) call.fail("got nothing to choose from");
  return TemplateValue::of(std::make_shared<Cycler>(call.positional()));
}

class Joiner : public TemplateObject {
 public:
  explicit Joiner(TemplateValue separator)
      : separator_(std::move(separator)), levels_(template_levels_above(separator_.levels())) {}
  std::string kind_name() const override { return "a joiner"; }
  bool is_callable() const override { return true; }
  int levels() const override { return levels_; }
  TemplateValue call(const TemplateCall& call) override {
    call.of("", "joiner").check(0);
    return std::exchange(used_, true) ? separator_ : TemplateValue("");
  }
  std::optional<TemplateValue> attribute(std::string_view name) override {
    if (name == "sep") return separator_;
    if (name == "used") return used_;
    return std::nullopt;
  }

 private:
  TemplateValue separator_;
  int levels_;
  bool used_ = false;
};

TemplateValue make_joiner(const TemplateCall& call) {
  call.check(1, {"sep"});
  const TemplateValue* separator = call.find(0, "sep");
  return TemplateValue::of(std::make_shared<Joiner>(separator ? *separator : TemplateValue(", ")));
}

TemplateValue lipsum(const TemplateCall& call) {
  call.fail("is not supported: the same messages would make another prompt each time");
}

TemplateValue raise_exception(const TemplateCall& call) {
  call.check(1, {"message"});
  call.context().fail(fmt::format("the template refuses these messages: {}", call.at(0, "message").to_text().text));
}

// Python's datetime.now().strftime(): of a time without a zone, and with microseconds.
TemplateValue strftime_now(const TemplateCall& call) {
  call.check(1, {"format"});
  const MarkedText& given = call.string(0, "format");
  timespec now{};
  if (call.context().now())
    now.tv_sec = *call.context().now();
  else
    clock_gettime(CLOCK_REALTIME, &now);
  std::string format;
  for (size_t i = 0; i < given.text.size(); ++i) {
    const char kind = given.text[i] == '%' && i + 1 < given.text.size() ? given.text[i + 1] : '\0';
    if (kind == 'f') format += fmt::format("{:06}", now.tv_nsec / 1000);
    if (kind == '%' || (kind && kind != 'f' && kind != 'z' && kind != 'Z'))
      format += given.text.substr(i, 2);
    else if (!kind)
      format += given.text[i];
    i += kind != '\0';
  }
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  constexpr size_t kMaxFormat = 1 << 16;
  if (format.size() > kMaxFormat)
    call.fail(fmt::format("got a format of {} bytes, want at most {}", format.size(), kMaxFormat));
  call.context().charge(std::ssize(format));
  // A space in front: an empty text and one too long look the same otherwise.
  std::string text(2 * format.size() + 4096, '\0');
  const size_t length = std::strftime(text.data(), text.size(), (" " + format).c_str(), &parts);
  if (length == 0) call.fail("got a format that makes too long a text");
  call.context().charge_text(text.size());
  TemplateTextBuilder result;
  result.append_for(given.marks.find('\1') != std::string::npos, text.substr(1, length - 1));
  return result.take();
}

}  // namespace

TemplateNamespace::TemplateNamespace(const TemplateValue& dict) : held_members_(dict.dict().members.size() * 192) {
  for (const auto& [key, value] : dict.dict().members) {
    if (!key.is(Kind::string)) {
      members_.emplace_back(key, value);
      continue;
    }
    check(key.text());
    index_[key.string().text] = members_.size();
    members_.emplace_back(key, value);
  }
}

void TemplateNamespace::check(std::string_view name) {
  MEGALITH_CHECK(!name.starts_with('_'), "a namespace has no \"{}\": names of its attributes begin with no underscore",
                 name);
}

void TemplateNamespace::set(const std::string& name, TemplateValue value) {
  check(name);
  const auto [entry, is_new] = index_.emplace(name, members_.size());
  if (is_new)
    members_.emplace_back(name, std::move(value));
  else
    members_[entry->second].second = std::move(value);
}

std::optional<TemplateValue> TemplateNamespace::attribute(std::string_view name) {
  const auto entry = index_.find(name);
  return entry == index_.end() ? std::nullopt : std::optional(members_[entry->second].second);
}

MarkedText TemplateNamespace::repr() {
  // It may hold itself, or one that holds another, and so on.
  constexpr int kMaxLevels = 100;
  thread_local int levels = 0;
  struct Deeper {
    Deeper() { ++levels; }
    ~Deeper() { --levels; }
  } deeper;
  MEGALITH_CHECK(levels <= kMaxLevels, "a namespace nests deeper than {} levels and cannot be printed", kMaxLevels);
  TemplateTextBuilder text;
  text.append("<Namespace {");
  for (size_t i = 0; i < members_.size(); ++i) {
    if (i) text.append(", ");
    text.append(members_[i].first.to_repr().view());
    text.append(": ");
    text.append(members_[i].second.to_repr().view());
  }
  text.append("}>");
  return text.take();
}

std::vector<std::pair<std::string, TemplateValue>> template_globals() {
  std::vector<std::pair<std::string, TemplateValue>> globals = {
      {"dict", TemplateValue::of(std::make_shared<DictFunction>())}};
  for (const auto& [name, body] : {std::pair<const char*, Body>("range", range),
                                   {"namespace", make_namespace},
                                   {"cycler", make_cycler},
                                   {"joiner", make_joiner},
                                   {"lipsum", lipsum},
                                   {"raise_exception", raise_exception},
                                   {"strftime_now", strftime_now}})
    globals.emplace_back(name, TemplateValue::of(std::make_shared<Function>(name, body)));
  return globals;
}

}  // namespace megalith
