#include "megalith/task/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/task/json_text.h"

namespace megalith::task {

namespace {

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
  return fmt::format(
      R"({{"buffer": {}, "box": {}{}{}}})", region.buffer, box_json(region.box),
      region.operand >= 0 ? fmt::format(R"(, "operand": {})", region.operand) : "",
      region.is_scatter() ? fmt::format(R"(, "scatters": [{}, {}])", region.row_begin, region.row_end) : "");
}

std::string part_json(const StreamPart& part) {
  return fmt::format(R"({{"rows": [{}, {}], "column_chunk": {}, "first_chunk": {}}})", part.row_begin, part.row_end,
                     part.column_chunk, part.first_chunk);
}

std::string task_json(const Task& task) {
  return fmt::format(
      R"({{"name": {}, "node": {}, "tile": {}, "reads": {}, "writes": {}, "waits": {}, "signals": [{}], "worker": {}, )"
      R"("cost_ns": {}{}}})",
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
      fmt::join(task.signals, ", "), task.worker, std::isfinite(task.cost_ns) ? task.cost_ns : 0.0,
      (task.partner >= 0 ? fmt::format(R"(, "partner": {})", task.partner) : "") +
          (task.stream ? fmt::format(R"(, "stream": {})", part_json(*task.stream)) : ""));
}

std::string stream_json(const WeightStream& stream) {
  const stream::Order& order = stream.order;
  return fmt::format(
      R"({{"node": {}, "matrices": [{}], "slices": {}, "group": {}, "chunks": {}, "part": {}, "turn": {}{}{}}})",
      stream.node, fmt::join(stream.matrices, ", "), order.slices, order.group, order.chunks, order.part, order.turn,
      order.partners ? R"(, "partners": 1)" : "",
      stream.quant_columns > 0 ? fmt::format(R"(, "quant_columns": {})", stream.quant_columns) : "");
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

[[noreturn]] void fail(const Place& place, const std::string& found, const std::string& wanted) {
  throw UserError(fmt::format("[task graph] {} is {}, want {}", place.text(), found, wanted));
}

int64_t read_integer(const JsonValue& value, const Place& place, int64_t lowest, int64_t highest) {
  const std::optional<int64_t> number = value.integer();
  if (!number || *number < lowest || *number > highest)
    fail(place, value.summary(), fmt::format("a whole number from {} to {}", lowest, highest));
  return *number;
}

constexpr int64_t kMaxIndex = std::numeric_limits<int>::max();
// Sizes in bytes stay far from the ends of 64 bits, so that sums of two need no thought.
constexpr int64_t kMaxSize = int64_t{1} << 60;

int read_index(const JsonValue& value, const Place& place) {
  return static_cast<int>(read_integer(value, place, 0, kMaxIndex));
}
int64_t read_size(const JsonValue& value, const Place& place) { return read_integer(value, place, 0, kMaxSize); }

std::string read_string(const JsonValue& value, const Place& place) {
  if (value.kind() != JsonValue::Kind::string) fail(place, value.summary(), "a string");
  return std::string(value.string());
}

template <class Read>
void read_array(const JsonValue& value, const Place& place, Read read) {
  if (value.kind() != JsonValue::Kind::array) fail(place, value.summary(), "an array");
  JsonValue element = value.first();
  for (size_t i = 0; i < value.size(); ++i, element = element.next()) read(element, Place{&place, nullptr, i});
}

template <class T, class Read>
std::vector<T> read_vector(const JsonValue& value, const Place& place, Read read) {
  std::vector<T> result;
  if (value.kind() == JsonValue::Kind::array) result.reserve(value.size());
  read_array(value, place, [&](const JsonValue& element, const Place& at) { result.push_back(read(element, at)); });
  return result;
}

// Exactly `kLength` elements.
template <size_t kLength>
std::array<JsonValue, kLength> read_tuple(const JsonValue& value, const Place& place, const char* wanted) {
  if (value.kind() != JsonValue::Kind::array || value.size() != kLength) fail(place, value.summary(), wanted);
  std::array<JsonValue, kLength> elements;
  elements[0] = value.first();
  for (size_t i = 1; i < kLength; ++i) elements[i] = elements[i - 1].next();
  return elements;
}

// An object whose keys are exactly these, the last `num_optional` of which may be missing: a misspelt one is an error,
// not a default.
class Object {
 public:
  Object(const JsonValue& value, const Place& place, std::initializer_list<const char*> keys, size_t num_optional = 0)
      : place_(place), num_keys_(keys.size()) {
    std::copy(keys.begin(), keys.end(), keys_.begin());
    if (value.kind() != JsonValue::Kind::object) fail(place, value.summary(), "an object");
    has_.fill(false);
    JsonValue key = value.first();
    for (size_t i = 0; i < value.size(); ++i) {
      const JsonValue member = key.next();
      const size_t k = find(key.string());
      if (k == num_keys_)
        fail(place, fmt::format("an object with the unknown key {}", key.summary()),
             fmt::format("only {}", fmt::join(keys, ", ")));
      members_[k] = member;
      has_[k] = true;
      key = member.next();
    }
    for (size_t k = 0; k + num_optional < num_keys_; ++k)
      if (!has_[k]) fail(place, value.summary(), fmt::format("one with the key \"{}\"", keys_[k]));
  }
  bool has(const char* key) const { return has_.at(find(key)); }
  template <class Read>
  auto operator()(const char* key, Read read) const {
    return read(members_.at(find(key)), Place{&place_, key, 0});
  }

 private:
  size_t find(std::string_view name) const {
    return static_cast<size_t>(std::find(keys_.begin(), keys_.begin() + num_keys_, name) - keys_.begin());
  }
  static constexpr size_t kMaxKeys = 12;
  const Place& place_;
  size_t num_keys_;
  std::array<std::string_view, kMaxKeys> keys_;
  std::array<JsonValue, kMaxKeys> members_;
  std::array<bool, kMaxKeys> has_;
};

loop::Box read_box(const JsonValue& value, const Place& place) {
  loop::Box box;
  read_array(value, place, [&](const JsonValue& range, const Place& at) {
    const auto [begin, end] = read_tuple<2>(range, at, "[begin, end]");
    box.lo.push_back(read_size(begin, Place{&at, nullptr, 0}));
    box.hi.push_back(read_size(end, Place{&at, nullptr, 1}));
  });
  return box;
}

loop::Range read_range(const JsonValue& value, const Place& place) {
  const auto [iname, begin, end] = read_tuple<3>(value, place, "[iname, begin, end]");
  return {read_string(iname, Place{&place, nullptr, 0}), read_size(begin, Place{&place, nullptr, 1}),
          read_size(end, Place{&place, nullptr, 2})};
}

std::pair<int64_t, int64_t> read_rows(const JsonValue& value, const Place& place) {
  const auto [begin, end] = read_tuple<2>(value, place, "[begin, end]");
  return {read_size(begin, Place{&place, nullptr, 0}), read_size(end, Place{&place, nullptr, 1})};
}

Region read_region(const JsonValue& value, const Place& place) {
  const Object object(value, place, {"buffer", "box", "operand", "scatters"}, 2);
  Region region{object("buffer", read_index), object("box", read_box),
                object.has("operand") ? object("operand", read_index) : -1};
  if (object.has("scatters")) std::tie(region.row_begin, region.row_end) = object("scatters", read_rows);
  return region;
}

Wait read_wait(const JsonValue& value, const Place& place) {
  const Object object(value, place, {"event", "count", "lag"});
  return {object("event", read_index), object("count", read_size), object("lag", read_index)};
}

template <class T, T (*read)(const JsonValue&, const Place&)>
std::vector<T> read_list(const JsonValue& value, const Place& place) {
  return read_vector<T>(value, place, read);
}

double read_cost(const JsonValue& value, const Place& place) {
  const std::optional<double> number = value.number();
  if (!number || !std::isfinite(*number) || *number < 0) fail(place, value.summary(), "a number from 0");
  return *number;
}

StreamPart read_part(const JsonValue& value, const Place& place) {
  const Object object(value, place, {"rows", "column_chunk", "first_chunk"});
  StreamPart part;
  std::tie(part.row_begin, part.row_end) = object("rows", read_rows);
  part.column_chunk = object("column_chunk", read_size);
  part.first_chunk = object("first_chunk", read_size);
  return part;
}

Task read_task(const JsonValue& value, const Place& place) {
  const Object object(
      value, place,
      {"name", "node", "tile", "reads", "writes", "waits", "signals", "worker", "cost_ns", "partner", "stream"}, 2);
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
  if (object.has("partner")) task.partner = object("partner", read_index);
  if (object.has("stream")) task.stream = object("stream", read_part);
  return task;
}

WeightStream read_stream(const JsonValue& value, const Place& place) {
  const Object object(
      value, place, {"node", "matrices", "slices", "group", "chunks", "part", "turn", "partners", "quant_columns"}, 2);
  WeightStream stream;
  stream.node = object("node", read_index);
  stream.matrices = object("matrices", read_list<int, read_index>);
  stream.order = {.slices = object("slices", read_index),
                  .group = object("group", read_index),
                  .chunks = object("chunks", read_size),
                  .part = object("part", read_size),
                  .turn = object("turn", read_size)};
  if (object.has("partners")) stream.order.partners = object("partners", read_index) != 0;
  if (object.has("quant_columns")) stream.quant_columns = object("quant_columns", read_size);
  return stream;
}

Event read_event(const JsonValue& value, const Place& place) {
  const Object object(value, place, {"name", "arrivals"});
  return {object("name", read_string), object("arrivals", read_size)};
}

DType read_dtype(const JsonValue& value, const Place& place) {
  constexpr DType kAll[] = {DType::bf16, DType::f16, DType::f32, DType::i8, DType::i32, DType::i64};
  const std::string name = read_string(value, place);
  std::string known;
  for (DType dtype : kAll) {
    if (dtype_name(dtype) == name) return dtype;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", dtype_name(dtype));
  }
  fail(place, value.summary(), fmt::format("one of {}", known));
}

Memory read_memory(const JsonValue& value, const Place& place) {
  const std::string name = read_string(value, place);
  for (size_t i = 0; i < std::size(kMemoryNames); ++i)
    if (name == kMemoryNames[i]) return static_cast<Memory>(i);
  fail(place, value.summary(), fmt::format("one of {}", fmt::join(kMemoryNames, ", ")));
}

Buffer read_buffer(const JsonValue& value, const Place& place) {
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

// The format is asked first: of another kind of file nothing else is worth saying.
void check_format(const JsonValue& value, const Place& place) {
  const std::string wanted = fmt::format("an object with \"format\": \"{}\"", kFormat);
  if (value.kind() != JsonValue::Kind::object) fail(place, value.summary(), wanted);
  JsonValue key = value.first();
  for (size_t i = 0; i < value.size(); ++i, key = key.next().next()) {
    if (key.string() != "format") continue;
    const JsonValue format = key.next();
    if (format.kind() != JsonValue::Kind::string || format.string() != kFormat) fail(place, format.summary(), wanted);
    return;
  }
  fail(place, value.summary(), wanted);
}

template <class Item>
void check_names(const std::vector<Item>& items, const Place& parent, const char* key) {
  const Place list{&parent, key, 0};
  std::unordered_map<std::string_view, size_t> seen(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    auto [first, is_new] = seen.try_emplace(items[i].name, i);
    if (is_new) continue;
    const Place element{&list, nullptr, i};
    const Place name{&element, "name", 0};
    fail(name, json_summary(items[i].name), fmt::format("a name that element {} does not have", first->second));
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
      "{}"
      "  \"workers\": {}\n"
      "}}\n",
      kFormat, kVersion, json_quote(graph.name), graph.arena_bytes, graph.gate ? fmt::to_string(*graph.gate) : "null",
      lines_json(graph.buffers, buffer_json),
      lines_json(graph.events,
                 [](const Event& event) {
                   return fmt::format(R"({{"name": {}, "arrivals": {}}})", json_quote(event.name), event.arrivals);
                 }),
      lines_json(graph.tasks, task_json),
      graph.streams.empty() ? "" : fmt::format("  \"streams\": {},\n", lines_json(graph.streams, stream_json)),
      lines_json(graph.workers,
                 [](const std::vector<int>& list) { return fmt::format("[{}]", fmt::join(list, ", ")); }));
}

TaskGraph from_json(std::string_view text) {
  const JsonText document(text);
  const JsonValue value = document.root();
  const Place root;
  check_format(value, root);
  const Object object(
      value, root,
      {"format", "version", "name", "arena_bytes", "gate", "buffers", "events", "tasks", "workers", "streams"}, 1);
  object("version",
         [](const JsonValue& number, const Place& place) { return read_integer(number, place, kVersion, kVersion); });

  TaskGraph graph;
  graph.name = object("name", read_string);
  graph.arena_bytes = object("arena_bytes", read_size);
  graph.gate = object("gate", [](const JsonValue& gate, const Place& place) {
    return gate.kind() == JsonValue::Kind::null ? std::nullopt : std::optional(read_index(gate, place));
  });
  graph.buffers = object("buffers", read_list<Buffer, read_buffer>);
  graph.events = object("events", read_list<Event, read_event>);
  graph.tasks = object("tasks", read_list<Task, read_task>);
  graph.workers = object("workers", read_list<std::vector<int>, read_list<int, read_index>>);
  if (object.has("streams")) graph.streams = object("streams", read_list<WeightStream, read_stream>);
  check_names(graph.buffers, root, "buffers");
  check_names(graph.events, root, "events");
  check_names(graph.tasks, root, "tasks");
  return graph;
}

}  // namespace megalith::task
