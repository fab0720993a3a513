// Filters that go through values: map, select, sort, groupby, join and the like.
#include <algorithm>
#include <deque>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/template_filter.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_operator.h"
#include "megalith/model/template_text.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

int levels_of(const TemplateValue& value, const TemplateCall& call) {
  int levels = value.levels();
  for (const TemplateValue& argument : call.positional()) levels = std::max(levels, argument.levels());
  for (const auto& [name, argument] : call.named()) levels = std::max(levels, argument.levels());
  return levels;
}

// What becomes of each element; null: it is left out.
using Each = std::function<std::optional<TemplateValue>(TemplateValue)>;

// A generator over `value`. Nothing is looked at before it is gone through, and nothing of what is not true: so None
// has no elements, rather than none that could be gone through.
TemplateValue lazily(const TemplateValue& value, const TemplateCall& call, Each (*prepare)(const TemplateCall&),
                     bool only_if_true = true) {
  struct State {
    TemplateValue value;
    TemplateCall call;
    std::unique_ptr<TemplateIterator> elements = nullptr;
    Each each = nullptr;
  };
  auto state = std::make_shared<State>(State{value, call});
  auto next = [state, prepare, only_if_true]() -> std::optional<TemplateValue> {
    if (!state->elements) {
      if (only_if_true && !state->value.truth()) return std::nullopt;
      state->each = prepare(state->call);
      state->elements = template_iterate(state->call.context(), state->value);
    }
    while (std::optional<TemplateValue> element = state->elements->next())
      if (std::optional<TemplateValue> made = state->each(std::move(*element))) return made;
    return std::nullopt;
  };
  return template_generator(std::move(next), levels_of(value, call));
}

// What comparing without regard to case looks at.
TemplateValue without_case(TemplateContext& context, TemplateValue key, bool case_sensitive) {
  if (case_sensitive || !key.is(Kind::string)) return key;
  context.charge_characters(key.text());
  return template_case(key.string().view(), TemplateCase::lower);
}

using Keyed = std::vector<std::pair<TemplateValue, TemplateValue>>;

std::vector<TemplateValue> sorted(TemplateContext& context, Keyed keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    context.charge(1 + std::min(a.first.weight(), b.first.weight()));
    return reverse ? b.first.less(a.first) : a.first.less(b.first);
  });
  std::vector<TemplateValue> result;
  result.reserve(keyed.size());
  for (auto& [key, element] : keyed) result.push_back(std::move(element));
  return result;
}

template <bool largest>
TemplateValue extreme(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"case_sensitive", "attribute"});
  TemplateContext& context = call.context();
  const bool case_sensitive = call.flag(0, "case_sensitive", false);
  const TemplatePath path(context, call.find(1, "attribute"));
  std::optional<std::pair<TemplateValue, TemplateValue>> best;
  const auto elements = template_iterate(context, value);
  while (std::optional<TemplateValue> element = elements->next()) {
    TemplateValue key = without_case(context, path.of(context, *element), case_sensitive);
    if (best) {
      context.charge(std::min(best->first.weight(), key.weight()));
      if (!(largest ? best->first.less(key) : key.less(best->first))) continue;
    }
    best = {std::move(key), std::move(*element)};
  }
  return best ? best->second : TemplateValue::missing("an element of nothing");
}

// select, reject, selectattr and rejectattr.
template <bool keep, bool by_attribute>
TemplateValue selected(const TemplateValue& value, const TemplateCall& call) {
  return lazily(value, call, [](const TemplateCall& arguments) -> Each {
    size_t first = by_attribute ? 1 : 0;
    const TemplatePath path(arguments.context(), by_attribute ? &arguments.at(0) : nullptr);
    std::optional<TemplateCall> test;
    if (arguments.positional().size() > first) {
      std::string name = arguments.string(first).text;
      const auto rest = arguments.positional().begin() + static_cast<std::ptrdiff_t>(first) + 1;
      test.emplace(arguments.context(), "the test", std::move(name),
                   std::vector<TemplateValue>(rest, arguments.positional().end()), arguments.named());
    }
    return [path, test, context = &arguments.context()](TemplateValue element) -> std::optional<TemplateValue> {
      const TemplateValue looked_at = path.of(*context, element);
      const bool passes = test ? template_test(test->name(), looked_at, *test) : looked_at.truth();
      return passes == keep ? std::optional(std::move(element)) : std::nullopt;
    };
  });
}

TemplateValue map(const TemplateValue& value, const TemplateCall& call) {
  return lazily(value, call, [](const TemplateCall& arguments) -> Each {
    TemplateContext* context = &arguments.context();
    if (arguments.positional().empty() && arguments.find(0, "attribute")) {
      arguments.check(0, {"attribute", "default"});
      const TemplateValue* absent = arguments.find_some(1, "default");
      return [path = TemplatePath(*context, arguments.find(0, "attribute")), context,
              absent = absent ? std::optional(*absent) : std::nullopt](TemplateValue element) {
        return std::optional(path.of(*context, std::move(element), absent ? &*absent : nullptr));
      };
    }
    if (arguments.positional().empty()) arguments.fail("got neither a filter nor an attribute");
    const TemplateCall inner(*context, "the filter", arguments.string(0).text,
                             {arguments.positional().begin() + 1, arguments.positional().end()}, arguments.named());
    return
        [inner](const TemplateValue& element) { return std::optional(template_filter(inner.name(), element, inner)); };
  });
}

TemplateValue first(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  std::optional<TemplateValue> element = template_iterate(call.context(), value)->next();
  return element ? std::move(*element) : TemplateValue::missing("the first of nothing");
}

TemplateValue last(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  const std::vector<TemplateValue> all = template_reversed(call.context(), value);
  return all.empty() ? TemplateValue::missing("the last of nothing") : all.front();
}

TemplateValue join(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"d", "attribute"});
  TemplateContext& context = call.context();
  const TemplateValue* separator = call.find(0, "d");
  const TemplateTextOf between(context, separator ? *separator : TemplateValue(""));
  const TemplatePath path(context, call.find(1, "attribute"));
  TemplateTextBuilder result;
  bool is_first = true;
  const auto elements = template_iterate(context, value);
  while (std::optional<TemplateValue> element = elements->next()) {
    if (!std::exchange(is_first, false)) {
      context.charge_text(between.text().size());
      result.append(between);
    }
    result.append(TemplateTextOf(context, path.of(context, std::move(*element))));
  }
  return result.take();
}

TemplateValue sort(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"reverse", "case_sensitive", "attribute"});
  TemplateContext& context = call.context();
  const TemplateValue* attribute = call.find(2, "attribute");
  std::vector<TemplatePath> paths;  // several, with commas between them
  if (attribute && attribute->is(Kind::string)) {
    const MarkedView all = attribute->string().view();
    for (const TextRange& range : template_split(all.text, ",", -1, false)) {
      const TemplateValue one = template_part(all, range.begin, range.end);
      paths.emplace_back(context, &one);
    }
  } else {
    paths.emplace_back(context, attribute);
  }
  const bool case_sensitive = call.flag(1, "case_sensitive", false);
  Keyed keyed;
  for (TemplateValue& element : template_elements(context, value)) {
    std::vector<TemplateValue> keys;
    for (const TemplatePath& path : paths)
      keys.push_back(without_case(context, path.of(context, element), case_sensitive));
    keyed.emplace_back(TemplateValue::list(std::move(keys)), std::move(element));
  }
  return TemplateValue::list(sorted(context, std::move(keyed), call.flag(0, "reverse", false)));
}

TemplateValue dictsort(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"case_sensitive", "by", "reverse"});
  const bool by_value = call.find(1, "by") && call.string(1, "by").text == "value";
  if (call.find(1, "by") && !by_value && call.string(1, "by").text != "key")
    call.fail(fmt::format("got by={}, want \"key\" or \"value\"", call.at(1, "by").describe()));
  if (!value.is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", value.describe()));
  Keyed keyed;
  for (const auto& [key, member] : value.dict().members)
    keyed.emplace_back(without_case(call.context(), by_value ? member : key, call.flag(0, "case_sensitive", false)),
                       TemplateValue::tuple({key, member}));
  return TemplateValue::list(sorted(call.context(), std::move(keyed), call.flag(2, "reverse", false)));
}

TemplateValue groupby(const TemplateValue& value, const TemplateCall& call) {
  call.check(3, {"attribute", "default", "case_sensitive"});
  TemplateContext& context = call.context();
  const TemplatePath path(context, &call.at(0, "attribute"));
  const TemplateValue* absent = call.find_some(1, "default");
  auto key_of = [&](const TemplateValue& element) {
    return without_case(context, path.of(context, element, absent), call.flag(2, "case_sensitive", false));
  };
  Keyed keyed;
  for (TemplateValue& element : template_elements(context, value)) {
    TemplateValue key = key_of(element);
    keyed.emplace_back(std::move(key), std::move(element));
  }
  std::vector<TemplateValue> groups, members;
  auto finish = [&] {
    // The key as the first of them has it, in its own case.
    const TemplateValue grouper = path.of(context, members.front(), absent);
    groups.push_back(TemplateValue::group(grouper, TemplateValue::list(std::exchange(members, {}))));
  };
  TemplateValue current;
  for (TemplateValue& element : sorted(context, std::move(keyed), false)) {
    TemplateValue key = key_of(element);
    context.charge(std::min(key.weight(), current.weight()));
    if (!members.empty() && !(key == current)) finish();
    current = std::move(key);
    members.push_back(std::move(element));
  }
  if (!members.empty()) finish();
  return TemplateValue::list(std::move(groups));
}

TemplateValue unique(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"case_sensitive", "attribute"});
  return lazily(
      value, call,
      [](const TemplateCall& arguments) -> Each {
        struct Seen {
          std::set<std::string> keys = {};
          std::deque<TemplateHeld> held = {};
        };
        return
            [seen = std::make_shared<Seen>(), path = TemplatePath(arguments.context(), arguments.find(1, "attribute")),
             context = &arguments.context(), case_sensitive = arguments.flag(0, "case_sensitive", false)](
                TemplateValue element) -> std::optional<TemplateValue> {
              const TemplateValue key = without_case(*context, path.of(*context, element), case_sensitive);
              context->charge(4 + key.weight());
              const auto [entry, is_new] = seen->keys.insert(TemplateDict::index_key(key));
              if (!is_new) return std::nullopt;
              seen->held.emplace_back(sizeof(std::string) + 64 + entry->size());
              return element;
            };
      },
      false);
}

TemplateValue sum(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"attribute", "start"});
  const TemplatePath path(call.context(), call.find(0, "attribute"));
  const TemplateValue* start = call.find(1, "start");
  TemplateValue total = start ? *start : TemplateValue(0);
  if (total.is(Kind::string)) call.fail("begins with a string: use join to put strings together");
  const auto elements = template_iterate(call.context(), value);
  while (std::optional<TemplateValue> element = elements->next())
    total = template_binary(call.context(), "+", total, path.of(call.context(), std::move(*element)));
  return total;
}

TemplateValue items(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  return template_generator(
      [value, call, elements = std::shared_ptr<TemplateIterator>()]() mutable -> std::optional<TemplateValue> {
        if (value.is(Kind::undefined)) return std::nullopt;
        if (!value.is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", value.describe()));
        if (!elements) elements = template_iterate(call.context(), template_view(value, TemplateViewKind::items));
        return elements->next();
      },
      value.levels());
}

TemplateValue batch(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"linecount", "fill_with"});
  call.at(0, "linecount");
  const int64_t count = call.integer(0, "linecount", 0);
  return template_generator(
      [value, call, count, elements = std::shared_ptr<TemplateIterator>(),
       waiting = std::optional<TemplateValue>()]() mutable -> std::optional<TemplateValue> {
        if (!elements) {
          elements = template_iterate(call.context(), value);
          waiting = elements->next();
          if (waiting && count == 0) return TemplateValue::list({});
        }
        if (!waiting) return std::nullopt;
        std::vector<TemplateValue> row;
        while (waiting && (count <= 0 || std::ssize(row) < count)) {
          row.push_back(std::move(*waiting));
          waiting = elements->next();
        }
        const TemplateValue* fill = call.find_some(1, "fill_with");
        for (; fill && std::ssize(row) < count; row.push_back(*fill)) call.context().charge(1);
        return TemplateValue::list(std::move(row));
      },
      levels_of(value, call));
}

TemplateValue slice(const TemplateValue& value, const TemplateCall& call) {
  call.check(2, {"slices", "fill_with"});
  call.at(0, "slices");
  const int64_t slices = call.integer(0, "slices", 0);
  struct State {
    std::optional<TemplateValue> all = {};  // a list
    int64_t number = 0;
    std::ptrdiff_t at = 0;
  };
  auto state = std::make_shared<State>();
  return template_generator(
      [value, call, slices, state]() -> std::optional<TemplateValue> {
        if (!state->all) state->all = TemplateValue::list(template_elements(call.context(), value));
        if (slices == 0) call.fail("got 0 slices");
        if (state->number >= slices) return std::nullopt;
        const std::vector<TemplateValue>& all = state->all->list().elements;
        const int64_t length = std::ssize(all);
        const bool is_longer = state->number++ < length % slices;
        const int64_t count = length / slices + is_longer;
        call.context().charge(count);
        const auto begin = all.begin() + state->at;
        state->at += count;
        std::vector<TemplateValue> row(begin, begin + count);
        const TemplateValue* fill = call.find_some(1, "fill_with");
        if (fill && !is_longer) row.push_back(*fill);
        return TemplateValue::list(std::move(row));
      },
      levels_of(value, call));
}

TemplateValue reverse(const TemplateValue& value, const TemplateCall& call) {
  call.check(0);
  if (value.is(Kind::string)) {
    const TemplateValue back = -1;
    return template_slice_of(call.context(), value, nullptr, nullptr, &back);
  }
  std::vector<TemplateValue> all = template_elements(call.context(), value);
  std::reverse(all.begin(), all.end());
  TemplateValue list = TemplateValue::list(std::move(all));
  if (value.is(Kind::object) && !template_length_of(value)) return list;  // what Python cannot go through backwards
  const int levels = list.levels();
  std::shared_ptr<TemplateIterator> elements = template_iterate(call.context(), list);
  return template_generator([elements] { return elements->next(); }, levels);
}

constexpr TemplateFilterRow kListFilters[] = {
    {"batch", batch},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"list",
     [](const TemplateValue& value, const TemplateCall& call) {
       call.check(0);
       return TemplateValue::list(template_elements(call.context(), value));
     }},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"random",
     [](const TemplateValue&, const TemplateCall& call) -> TemplateValue {
       call.fail("is not supported: the same messages would make another prompt each time");
     }},
    {"reject", selected<false, false>},
    {"rejectattr", selected<false, true>},
    {"reverse", reverse},
    {"select", selected<true, false>},
    {"selectattr", selected<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const TemplateFilterRow> template_list_filters() { return kListFilters; }

}  // namespace megalith
