#include "megalith/task/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/json_reason.h"

namespace megalith::task {

namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "megalith-task-graph";
constexpr int64_t kVersion = 1;

// ---- writing -------------------------------------------------------------------------------------------------------

std::string box_json(const loop::Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.lo.size(); ++d) text += fmt::format("{}[{}, {}]", d ? ", " : "", box.lo[d], box.hi[d]);
  return text + "]";
}

template <class Items, class Print>
std::string list_json(const Items& items, Print print) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ", ";
    text += print(item);
  }
  return text + "]";
}

// Items one a line, or [] if there are none.
template <class Items, class Print>
std::string lines_json(const Items& items, Print print) {
  std::string text = "[";
  for (const auto& item : items) {
    text += text.size() > 1 ? ",\n    " : "\n    ";
    text += print(item);
  }
  return text + (items.empty() ? "]" : "\n  ]");
}

std::string region_json(const Region& region) {
  return fmt::format(R"({{"buffer": {}, "box": {}}})", region.buffer, box_json(region.box));
}

std::string task_json(const Task& task) {
  return fmt::format(
      R"({{"name": {}, "node": {}, "tile": {}, "reads": {}, "writes": {}, "waits": {}, "signals": [{}], "worker": {}, )"
      R"("cost_ns": {}}})",
      json_quote(task.name), task.node,
      list_json(task.tile,
                [](const loop::Range& range) {
                  return fmt::format("[{}, {}, {}]", json_quote(range.iname), range.begin, range.end);
                }),
      list_json(task.reads, region_json), list_json(task.writes, region_json),
      list_json(task.waits,
                [](const Wait& wait) {
                  return fmt::format(R"({{"event": {}, "count": {}, "lag": {}}})", wait.event, wait.count, wait.lag);
                }),
      fmt::join(task.signals, ", "), task.worker, std::isfinite(task.cost_ns) ? task.cost_ns : 0.0);
}

std::string buffer_json(const Buffer& buffer) {
  return fmt::format(R"({{"name": {}, "dtype": "{}", "shape": [{}], "memory": "{}", "offset": {}, "bytes": {}}})",
                     json_quote(buffer.name), dtype_name(buffer.dtype), fmt::join(buffer.shape, ", "),
                     kMemoryNames[static_cast<size_t>(buffer.memory)], buffer.offset, buffer.bytes);
}

// ---- reading -------------------------------------------------------------------------------------------------------

// Where in the document a value stands. Lives on the stack beside the value; becomes text only in an error.
struct Place {
  const Place* parent = nullptr;
  const char* key = nullptr;  // of an object's member, or
  size_t index = 0;           // of an array's element

  std::string text() const {
    if (!parent) return "$";
    return parent->text() + (key ? fmt::format(".{}", key) : fmt::format("[{}]", index));
  }
};

std::string found(const Json& value) {
  constexpr size_t kMost = 60;
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

[[noreturn]] void fail(const Place& place, const std::string& found, const std::string& wanted) {
  throw UserError(fmt::format("[task graph] {} is {}, want {}", place.text(), found, wanted));
}

int64_t read_integer(const Json& value, const Place& place, int64_t lowest, int64_t highest) {
  const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max();
  if (!value.is_number_integer() || too_large || value.get<int64_t>() < lowest || value.get<int64_t>() > highest)
    fail(place, found(value), fmt::format("a whole number from {} to {}", lowest, highest));
  return value.get<int64_t>();
}

constexpr int64_t kMostIndex = std::numeric_limits<int>::max();
// Sizes in bytes stay far from the ends of 64 bits, so that sums of two need no thought.
constexpr int64_t kMostSize = int64_t{1} << 60;

int read_index(const Json& value, const Place& place) {
  return static_cast<int>(read_integer(value, place, 0, kMostIndex));
}
int64_t read_size(const Json& value, const Place& place) { return read_integer(value, place, 0, kMostSize); }

std::string read_string(const Json& value, const Place& place) {
  if (!value.is_string()) fail(place, found(value), "a string");
  return value.get<std::string>();
}

template <class Read>
void read_array(const Json& value, const Place& place, Read read) {
  if (!value.is_array()) fail(place, found(value), "an array");
  for (size_t i = 0; i < value.size(); ++i) read(value[i], Place{&place, nullptr, i});
}

template <class T, class Read>
std::vector<T> read_vector(const Json& value, const Place& place, Read read) {
  std::vector<T> result;
  read_array(value, place, [&](const Json& element, const Place& at) { result.push_back(read(element, at)); });
  return result;
}

void check_length(const Json& value, const Place& place, size_t length, const char* wanted) {
  if (!value.is_array() || value.size() != length) fail(place, found(value), wanted);
}

// An object whose keys are exactly these: a misspelt one is an error, not a default.
class Object {
 public:
  Object(const Json& value, const Place& place, std::initializer_list<const char*> keys)
      : value_(value), place_(place) {
    if (!value.is_object()) fail(place, found(value), "an object");
    for (const char* key : keys)
      if (!value.contains(key)) fail(place, found(value), fmt::format("one with the key \"{}\"", key));
    for (const auto& [key, member] : value.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail(place, fmt::format("an object with the unknown key {}", found(Json(key))),
             fmt::format("only {}", fmt::join(keys, ", ")));
  }
  template <class Read>
  auto operator()(const char* key, Read read) const {
    return read(value_[key], Place{&place_, key, 0});
  }

 private:
  const Json& value_;
  const Place& place_;
};

loop::Box read_box(const Json& value, const Place& place) {
  loop::Box box;
  read_array(value, place, [&](const Json& range, const Place& at) {
    check_length(range, at, 2, "[begin, end]");
    box.lo.push_back(read_size(range[0], Place{&at, nullptr, 0}));
    box.hi.push_back(read_size(range[1], Place{&at, nullptr, 1}));
  });
  return box;
}

loop::Range read_range(const Json& value, const Place& place) {
  check_length(value, place, 3, "[iname, begin, end]");
  return {read_string(value[0], Place{&place, nullptr, 0}), read_size(value[1], Place{&place, nullptr, 1}),
          read_size(value[2], Place{&place, nullptr, 2})};
}

Region read_region(const Json& value, const Place& place) {
  const Object object(value, place, {"buffer", "box"});
  return {object("buffer", read_index), object("box", read_box)};
}

Wait read_wait(const Json& value, const Place& place) {
  const Object object(value, place, {"event", "count", "lag"});
  return {object("event", read_index), object("count", read_size), object("lag", read_index)};
}

template <class T, T (*read)(const Json&, const Place&)>
std::vector<T> read_list(const Json& value, const Place& place) {
  return read_vector<T>(value, place, read);
}

double read_cost(const Json& value, const Place& place) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    fail(place, found(value), "a number from 0");
  return value.get<double>();
}

Task read_task(const Json& value, const Place& place) {
  const Object object(value, place,
                      {"name", "node", "tile", "reads", "writes", "waits", "signals", "worker", "cost_ns"});
  Task task;
  task.name = object("name", read_string);
  task.node = object("node", read_index);
  task.tile = object("tile", read_list<loop::Range, read_range>);
  task.reads = object("reads", read_list<Region, read_region>);
  task.writes = object("writes", read_list<Region, read_region>);
  task.waits = object("waits", read_list<Wait, read_wait>);
  task.signals = object("signals", read_list<int, read_index>);
  task.worker = object("worker", read_index);
  task.cost_ns = object("cost_ns", read_cost);
  return task;
}

Event read_event(const Json& value, const Place& place) {
  const Object object(value, place, {"name", "arrivals"});
  return {object("name", read_string), object("arrivals", read_size)};
}

DType read_dtype(const Json& value, const Place& place) {
  constexpr DType kAll[] = {DType::bf16, DType::f16, DType::f32, DType::i8, DType::i32, DType::i64};
  const std::string name = read_string(value, place);
  std::string known;
  for (DType dtype : kAll) {
    if (dtype_name(dtype) == name) return dtype;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", dtype_name(dtype));
  }
  fail(place, found(value), fmt::format("one of {}", known));
}

Memory read_memory(const Json& value, const Place& place) {
  const std::string name = read_string(value, place);
  for (size_t i = 0; i < std::size(kMemoryNames); ++i)
    if (name == kMemoryNames[i]) return static_cast<Memory>(i);
  fail(place, found(value), fmt::format("one of {}", fmt::join(kMemoryNames, ", ")));
}

Buffer read_buffer(const Json& value, const Place& place) {
  const Object object(value, place, {"name", "dtype", "shape", "memory", "offset", "bytes"});
  Buffer buffer;
  buffer.name = object("name", read_string);
  buffer.dtype = object("dtype", read_dtype);
  buffer.shape = object("shape", read_list<int64_t, read_size>);
  buffer.memory = object("memory", read_memory);
  buffer.offset = object("offset", read_size);
  buffer.bytes = object("bytes", read_size);
  return buffer;
}

template <class Item>
void check_names(const std::vector<Item>& items, const Place& parent, const char* key) {
  const Place list{&parent, key, 0};
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    auto [first, is_new] = seen.try_emplace(items[i].name, i);
    if (is_new) continue;
    const Place element{&list, nullptr, i};
    const Place name{&element, "name", 0};
    fail(name, found(Json(items[i].name)), fmt::format("a name that element {} does not have", first->second));
  }
}

// Parses without trusting: nothing deeper than the format is, and no key twice.
Json parse(std::string_view text) {
  constexpr int kDeepest = 8;                  // tasks, a task, reads, a region, box, a range: 6
  std::vector<std::vector<std::string>> keys;  // of the objects around
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    MEGALITH_CHECK(depth <= kDeepest, "[task graph] the JSON text nests deeper than {} levels; no task graph does",
                   kDeepest);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      MEGALITH_CHECK(std::find(keys.back().begin(), keys.back().end(), key) == keys.back().end(),
                     "[task graph] an object of the JSON text has the key {} twice", found(parsed));
      constexpr size_t kMostKeys = 64;  // bounds the search above; no object of a task graph has as many
      MEGALITH_CHECK(keys.back().size() < kMostKeys, "[task graph] an object of the JSON text has more than {} keys",
                     kMostKeys);
      keys.back().push_back(key);
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("[task graph] not a JSON text: {}", json_reason(error.what())));
  }
}

}  // namespace

std::string to_json(const TaskGraph& graph) {
  return fmt::format(
      "{{\n"
      "  \"format\": \"{}\",\n"
      "  \"version\": {},\n"
      "  \"name\": {},\n"
      "  \"arena_bytes\": {},\n"
      "  \"gate\": {},\n"
      "  \"buffers\": {},\n"
      "  \"events\": {},\n"
      "  \"tasks\": {},\n"
      "  \"workers\": {}\n"
      "}}\n",
      kFormat, kVersion, json_quote(graph.name), graph.arena_bytes, graph.gate ? fmt::to_string(*graph.gate) : "null",
      lines_json(graph.buffers, buffer_json),
      lines_json(graph.events,
                 [](const Event& event) {
                   return fmt::format(R"({{"name": {}, "arrivals": {}}})", json_quote(event.name), event.arrivals);
                 }),
      lines_json(graph.tasks, task_json), lines_json(graph.workers, [](const std::vector<int>& list) {
        return fmt::format("[{}]", fmt::join(list, ", "));
      }));
}

TaskGraph from_json(std::string_view text) {
  const Json document = parse(text);
  const Place root;
  // The format is asked first: of another kind of file nothing else is worth saying.
  if (!document.is_object() || !document.contains("format") || document["format"] != kFormat)
    fail(root, document.is_object() && document.contains("format") ? found(document["format"]) : found(document),
         fmt::format("an object with \"format\": \"{}\"", kFormat));
  const Object object(document, root,
                      {"format", "version", "name", "arena_bytes", "gate", "buffers", "events", "tasks", "workers"});
  object("version",
         [](const Json& value, const Place& place) { return read_integer(value, place, kVersion, kVersion); });

  TaskGraph graph;
  graph.name = object("name", read_string);
  graph.arena_bytes = object("arena_bytes", read_size);
  graph.gate = object("gate", [](const Json& value, const Place& place) {
    return value.is_null() ? std::nullopt : std::optional(read_index(value, place));
  });
  graph.buffers = object("buffers", read_list<Buffer, read_buffer>);
  graph.events = object("events", read_list<Event, read_event>);
  graph.tasks = object("tasks", read_list<Task, read_task>);
  graph.workers = object("workers", read_list<std::vector<int>, read_list<int, read_index>>);
  check_names(graph.buffers, root, "buffers");
  check_names(graph.events, root, "events");
  check_names(graph.tasks, root, "tasks");
  return graph;
}

}  // namespace megalith::task
