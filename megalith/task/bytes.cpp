#include "megalith/task/bytes.h"

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstring>
#include <iterator>
#include <thread>
#include <type_traits>

#include "megalith/base/error.h"
#include "megalith/base/threads.h"

namespace megalith::task {

namespace {

// Tasks that stand together as one text, which a thread reads by itself.
constexpr size_t kBlockTasks = 1024;
// A task has nine fields of a byte or more, and a cost of eight.
constexpr size_t kLeastTaskBytes = 17;

// Each struct's fields once, for both ways.
template <class Bytes, class T>
concept Is = std::same_as<std::remove_const_t<Bytes>, T>;

void fields(auto& bytes, Is<loop::Range> auto& range) { bytes(range.iname, range.begin, range.end); }
void fields(auto& bytes, Is<Region> auto& region) {
  bytes(region.buffer, region.box.lo, region.box.hi, region.operand, region.row_begin, region.row_end);
}
void fields(auto& bytes, Is<Wait> auto& wait) { bytes(wait.event, wait.count, wait.lag); }
void fields(auto& bytes, Is<Event> auto& event) { bytes(event.name, event.arrivals); }
void fields(auto& bytes, Is<StreamPart> auto& part) {
  bytes(part.row_begin, part.row_end, part.column_chunk, part.first_chunk);
}
void fields(auto& bytes, Is<stream::Order> auto& order) {
  bytes(order.slices, order.group, order.chunks, order.part, order.turn, order.partners);
}
void fields(auto& bytes, Is<WeightStream> auto& stream) {
  bytes(stream.node, stream.matrices, stream.order, stream.quant_columns);
}
void fields(auto& bytes, Is<Task> auto& task) {
  bytes(task.name, task.node, task.tile);
  bytes.regions(task, &Task::reads);
  bytes.regions(task, &Task::writes);
  bytes(task.waits, task.signals, task.worker, task.partner, task.cost_ns, task.stream);
}
void fields(auto& bytes, Is<Buffer> auto& buffer) {
  bytes(buffer.name, buffer.dtype, buffer.shape, buffer.memory, buffer.offset, buffer.bytes);
}
void fields(auto& bytes, Is<TaskGraph> auto& graph) {
  bytes(graph.name, graph.tasks, graph.events, graph.workers, graph.buffers, graph.streams, graph.arena_bytes,
        graph.gate);
}

class Writer {
 public:
  std::string take() { return std::move(bytes_); }

  void operator()(const auto&... values) { (write(values), ...); }
  // Of each region first whether it is the one that stands there in the task before: most are.
  void regions(const Task& task, std::vector<Region> Task::*list) {
    write(static_cast<int64_t>((task.*list).size()));
    for (size_t i = 0; i < (task.*list).size(); ++i) {
      const Region& region = (task.*list)[i];
      const bool is_same = before_ && i < (before_->*list).size() && (before_->*list)[i] == region;
      write(int{is_same});
      if (!is_same) write(region);
    }
  }

 private:
  // Seven bits a byte, the lowest first, the eighth if more follow; of numbers below 0 the complement, shifted.
  void write(int64_t value) {
    uint64_t rest = static_cast<uint64_t>(value) << 1 ^ (value < 0 ? ~uint64_t{0} : 0);
    for (; rest >= 128; rest >>= 7) bytes_.push_back(static_cast<char>(rest | 128));
    bytes_.push_back(static_cast<char>(rest));
  }
  void write(int value) { write(int64_t{value}); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void write(Enum value) { write(static_cast<int64_t>(value)); }
  void write(bool value) { write(int64_t{value}); }
  void write(double value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void write(const std::string& text) {
    write(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  void write(long long value) { write(static_cast<int64_t>(value)); }
  void write(const std::optional<int>& value) { write(value ? *value : int64_t{-1}); }
  void write(const std::optional<StreamPart>& part) {
    write(int{part.has_value()});
    if (part) write(*part);
  }
  void write(const loop::Corner& corner) {
    write(static_cast<int64_t>(corner.size()));
    for (int64_t index : corner) write(index);
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write(static_cast<int64_t>(list.size()));
    for (const T& item : list) write(item);
  }
  void write(const std::vector<Task>& tasks) {
    write(static_cast<int64_t>(tasks.size()));
    for (size_t first = 0; first < tasks.size(); first += kBlockTasks) {
      Writer block;
      for (size_t t = first; t < std::min(first + kBlockTasks, tasks.size()); ++t) {
        block.write(tasks[t]);
        block.before_ = &tasks[t];
      }
      write(block.take());
    }
  }
  template <class T>
  requires requires(Writer& writer, const T& value) { fields(writer, value); }
  void write(const T& value) { fields(*this, value); }

  std::string bytes_;
  const Task* before_ = nullptr;  // in the same block
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  void operator()(auto&... values) { (read(values), ...); }
  void regions(Task& task, std::vector<Region> Task::*list) {
    std::vector<Region>& regions = task.*list;
    const size_t size = length();
    regions.reserve(std::min<size_t>(size, 64));
    for (size_t i = 0; i < size; ++i) {
      if (integer(0, 1) == 0)
        read(regions.emplace_back());
      else if (before_ && i < (before_->*list).size())
        regions.push_back((before_->*list)[i]);
      else
        fail("have a region of a task before that has none");
    }
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw UserError(fmt::format("[task graph] these bytes {}: they are no task graph of this build", what));
  }

  uint64_t long_number() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (rest_.empty() || shift > 63) fail("end within a number");
      const uint64_t byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  int64_t integer(int64_t lowest, int64_t highest) {
    uint64_t value = 128;
    if (!rest_.empty()) value = static_cast<unsigned char>(rest_.front());
    if (value < 128)  // most numbers are of one byte
      rest_.remove_prefix(1);
    else
      value = long_number();
    const int64_t result = static_cast<int64_t>(value >> 1 ^ -(value & 1));
    if (result < lowest || result > highest) fail("have a number that is out of range");
    return result;
  }
  // Of what has so many bytes at least: so nobody asks for more memory than there is something for.
  size_t length(size_t least_bytes = 1) {
    const auto size = static_cast<size_t>(integer(0, INT64_MAX));
    if (size > rest_.size() / least_bytes) fail("have a number that is out of range");  // of what is left behind it
    return size;
  }

  void read(int64_t& value) { value = integer(INT64_MIN, INT64_MAX); }
  void read(int& value) { value = static_cast<int>(integer(INT32_MIN, INT32_MAX)); }
  void read(bool& value) { value = integer(0, 1) != 0; }
  void read(DType& value) { value = static_cast<DType>(integer(0, static_cast<int>(DType::i64))); }
  void read(Memory& value) { value = static_cast<Memory>(integer(0, std::size(kMemoryNames) - 1)); }
  void read(double& value) {
    if (rest_.size() < sizeof(value)) fail("end within a number");
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
  }
  void read(std::string& text) {
    const size_t size = length();
    text = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  void read(long long& value) { value = integer(INT64_MIN, INT64_MAX); }
  void read(std::optional<int>& value) {
    const int64_t number = integer(-1, INT32_MAX);
    if (number >= 0) value = static_cast<int>(number);
  }
  void read(std::optional<StreamPart>& part) {
    if (integer(0, 1) != 0) read(part.emplace());
  }
  void read(loop::Corner& corner) {
    for (size_t rank = length(); rank > 0; --rank) corner.push_back(integer(INT64_MIN, INT64_MAX));
  }
  // Items come as they are read: a length that lies would ask for much before its items are found missing.
  template <class T>
  void read(std::vector<T>& list) {
    const size_t size = length();
    list.reserve(std::min<size_t>(size, 64));
    for (size_t i = 0; i < size; ++i) read(list.emplace_back());
  }
  void read(std::vector<Task>& tasks) {
    tasks.resize(length(kLeastTaskBytes));
    std::vector<std::string_view> blocks((tasks.size() + kBlockTasks - 1) / kBlockTasks);
    for (std::string_view& block : blocks) {
      const size_t size = length();
      block = rest_.substr(0, size);
      rest_.remove_prefix(size);
    }
    const unsigned most = std::min(std::thread::hardware_concurrency(), 8u);
    for_each_index(blocks.size(), static_cast<int>(most), [&](size_t b, const std::atomic<bool>&) {
      Reader block(blocks[b]);
      const size_t end = std::min((b + 1) * kBlockTasks, tasks.size());
      for (size_t t = b * kBlockTasks; t < end; ++t) {
        block.read(tasks[t]);
        block.before_ = &tasks[t];
      }
      if (!block.at_end()) fail("have something behind a block of tasks");
    });
  }
  template <class T>
  requires requires(Reader& reader, T& value) { fields(reader, value); }
  void read(T& value) { fields(*this, value); }

  std::string_view rest_;
  const Task* before_ = nullptr;  // in the same block
};

}  // namespace

std::string to_bytes(const TaskGraph& graph) {
  Writer writer;
  fields(writer, graph);
  return writer.take();
}

TaskGraph from_bytes(std::string_view bytes) {
  TaskGraph graph;
  Reader reader(bytes);
  fields(reader, graph);
  if (!reader.at_end()) throw UserError("[task graph] there are bytes behind the task graph");
  return graph;
}

}  // namespace megalith::task
