#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/task/stream_chunks.h"
#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

// More than any machine has. Clocks have an element for each, of every task.
constexpr size_t kMaxWorkers = 1024;
// More than any body multiplies at a time.
constexpr size_t kMaxMatrices = 8;

class Structure {
 public:
  Structure(const TaskGraph& graph, Findings& findings) : graph_(graph), findings_(findings) {}

  void check() {
    Findings of_names;
    auto names = std::async(aside(graph_), [&] { check_names("task", graph_.tasks, of_names); });
    check_names("event", graph_.events, findings_);
    check_names("buffer", graph_.buffers, findings_);
    check_buffers();
    for (size_t s = 0; s < graph_.streams.size(); ++s) check_stream(s);
    has_streams_ = findings_.none();  // as they should be
    for (size_t t = 0; t < graph_.tasks.size(); ++t) check_task(static_cast<int>(t));
    check_arrivals();
    check_workers();
    if (graph_.gate && !in_range(*graph_.gate, graph_.events.size()))
      add({}, -1, -1, "the gate is event {} of {}", *graph_.gate, graph_.events.size());
    names.get();
    findings_.add(of_names);
  }

 private:
  template <class... Args>
  void add(std::vector<int> tasks, int event, int buffer, fmt::format_string<Args...> format, Args&&... args) {
    findings_.add(FindingKind::structure, std::move(tasks), event, buffer,
                  fmt::format(format, std::forward<Args>(args)...));
  }
  static bool in_range(int64_t index, size_t size) { return index >= 0 && static_cast<uint64_t>(index) < size; }

  template <class Item>
  static void check_names(const char* what, const std::vector<Item>& items, Findings& findings) {
    const auto add = [&](std::string message) { findings.add(FindingKind::structure, {}, -1, -1, std::move(message)); };
    std::unordered_map<std::string_view, size_t> seen(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string& name = items[i].name;
      if (name.empty()) add(fmt::format("{} {} has no name", what, i));
      auto [first, is_new] = seen.try_emplace(name, i);
      if (!is_new && !name.empty())
        add(fmt::format("{}s {} and {} are both named \"{}\"", what, first->second, i, name));
    }
  }

  void check_buffers() {
    if (graph_.arena_bytes < 0) add({}, -1, -1, "the arena has {} bytes", graph_.arena_bytes);
    for (size_t i = 0; i < graph_.buffers.size(); ++i) {
      const Buffer& buffer = graph_.buffers[i];
      const int b = static_cast<int>(i);
      if (buffer.dtype > DType::i64 || buffer.memory > Memory::exchange) {
        add({}, -1, b, "buffer \"{}\" has an unknown dtype or memory", buffer.name);
        continue;
      }
      int64_t bytes = dtype_bytes(buffer.dtype) * (buffer.memory == Memory::exchange ? 2 : 1);
      bool fits = true;
      for (int64_t size : buffer.shape) fits = fits && size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes);
      if (!fits || bytes != buffer.bytes) {
        add({}, -1, b, "buffer \"{}\" is {} {} and says it has {} bytes, want {}", buffer.name,
            dtype_name(buffer.dtype), shape_text(buffer.shape), buffer.bytes,
            fits ? std::to_string(bytes) : "sizes from 0 whose product fits 63 bits");
        continue;
      }
      check_offset(buffer, b);
    }
  }

  void check_offset(const Buffer& buffer, int b) {
    constexpr int64_t kAlignment = 64;
    if (buffer.memory != Memory::arena) {
      if (buffer.offset != 0)
        add({}, -1, b, "buffer \"{}\" has memory of its own and offset {}, want 0", buffer.name, buffer.offset);
    } else if (buffer.offset < 0 || buffer.offset % kAlignment != 0) {
      add({}, -1, b, "buffer \"{}\" lies at offset {}, want a multiple of {} from 0", buffer.name, buffer.offset,
          kAlignment);
    } else if (buffer.bytes > graph_.arena_bytes || buffer.offset > graph_.arena_bytes - buffer.bytes) {
      add({}, -1, b, "buffer \"{}\" with {} bytes at offset {} ends outside the arena of {} bytes", buffer.name,
          buffer.bytes, buffer.offset, graph_.arena_bytes);
    }
  }

  static std::string shape_text(const std::vector<int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
  }

  // What is said of the tasks of a node, all of which are looked at in verify_streams.cpp.
  void check_stream(size_t s) {
    const WeightStream& stream = graph_.streams[s];
    if (s > 0 && stream.node <= graph_.streams[s - 1].node)
      add({}, -1, -1, "stream {} is of node {} and stands behind that of node {}, want one a node, in their order", s,
          stream.node, graph_.streams[s - 1].node);
    if (stream.matrices.empty() || stream.matrices.size() > kMaxMatrices) {
      add({}, -1, -1, "the stream of node {} has {} matrices, want 1 to {}", stream.node, stream.matrices.size(),
          kMaxMatrices);
      return;
    }
    for (const int matrix : stream.matrices)
      if (!check_matrix(stream, matrix)) return;
    check_order(stream, graph_.buffers[static_cast<size_t>(stream.matrices.front())].shape[1]);
  }

  bool check_matrix(const WeightStream& stream, int matrix) {
    if (!in_range(matrix, graph_.buffers.size())) {
      add({}, -1, -1, "the stream of node {} has buffer {} of {}", stream.node, matrix, graph_.buffers.size());
      return false;
    }
    const Buffer& buffer = graph_.buffers[static_cast<size_t>(matrix)];
    const bool is_matrix = buffer.shape.size() == 2 && buffer.dtype <= DType::i64 && dtype_bytes(buffer.dtype) == 2;
    if (buffer.memory != Memory::constant || !is_matrix) {
      add({}, -1, matrix, "the stream of node {} has buffer \"{}\", want a constant matrix of 16-bit weights",
          stream.node, buffer.name);
      return false;
    }
    // A first one that is none was named, and ended this.
    const Buffer& first = graph_.buffers[static_cast<size_t>(stream.matrices.front())];
    if (buffer.shape == first.shape) return true;
    add({}, -1, matrix, "the stream of node {} has buffer \"{}\" of shape {}, want {} as of \"{}\"", stream.node,
        buffer.name, shape_text(buffer.shape), shape_text(first.shape), first.name);
    return false;
  }

  // Chunks as they can be laid out (kernels/stream_layout.h, kernels/gemm_layout.h).
  void check_order(const WeightStream& stream, int64_t columns) {
    const stream::Order& order = stream.order;
    const bool is_wide = order.slices == 0;
    const int64_t matrices = static_cast<int64_t>(stream.matrices.size()), rows = int64_t{order.group} * matrices;
    const bool fits = is_wide
                          ? std::ranges::find(stream::kWideChunkRows, rows) != std::end(stream::kWideChunkRows)
                          : (order.slices == 1 || order.slices == 2) && order.group == stream::group_rows(order.slices);
    if (!fits) {
      add({}, -1, -1, "the stream of node {} has {} slices and groups of {} rows of each of {} matrices, want {}",
          stream.node, order.slices, order.group, matrices,
          is_wide ? fmt::format("{} rows in all", fmt::join(stream::kWideChunkRows, ", "))
                  : "1 slice and 16 rows, 2 slices and 8 rows, or no slices");
      return;
    }
    const int64_t width = chunk_columns(stream), all = chunks_of_row(stream, columns);
    if (order.chunks < 1 || order.chunks > all)
      add({}, -1, -1,
          "the stream of node {} has {} chunks of the columns of a group, want 1 to {}: {} columns, {} a chunk",
          stream.node, order.chunks, all, columns, width);
    else if (order.part < 1 || order.part > order.chunks || (is_wide && order.part != 1))
      add({}, -1, -1, "the stream of node {} has parts of {} chunks, want {}", stream.node, order.part,
          is_wide ? "1" : fmt::format("1 to {}", order.chunks));
    const int64_t most = is_wide ? stream::kMaxParts : stream::kSumsPerWarp, least = is_wide ? 1 : 0;
    if (order.partners && (!is_wide || matrices != 1 || order.turn != 1 || 2 * order.chunks != all))
      add({}, -1, -1,
          "the stream of node {} is shared by partners: want one matrix, turns of one group and half of {} chunks of "
          "columns, and no slices",
          stream.node, all);
    if (order.turn < least || order.turn > most)
      add({}, -1, -1, "the stream of node {} has turns of {} groups, want {} to {}", stream.node, order.turn, least,
          most);
  }

  void check_task(int t) {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    if (!std::isfinite(task.cost_ns) || task.cost_ns < 0)
      add({t}, -1, -1, "task \"{}\" costs {} ns, want a finite number from 0", task.name, task.cost_ns);
    for (const loop::Range& range : task.tile)
      if (range.end < range.begin)
        add({t}, -1, -1, "task \"{}\" has the tile {}={}:{}, which ends before it begins", task.name, range.iname,
            range.begin, range.end);
    for (const Region& region : task.reads) check_region(t, region, false);
    for (const Region& region : task.writes) check_region(t, region, true);
    for (const Wait& wait : task.waits) check_wait(t, wait);
    if (has_streams_) check_part(t);
    check_partner(t);
    std::vector<int> signals = task.signals;
    std::sort(signals.begin(), signals.end());
    for (size_t i = 0; i < signals.size(); ++i) {
      const int event = signals[i];
      if (!in_range(event, graph_.events.size()))
        add({t}, -1, -1, "task \"{}\" signals event {} of {}", task.name, event, graph_.events.size());
      else if (i > 0 && event == signals[i - 1])
        add({t}, event, -1, "task \"{}\" signals event \"{}\" twice", task.name, event_name(event));
    }
  }

  void check_part(int t) {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    const WeightStream* stream = find_stream(graph_.streams, task.node);
    if (!stream && !task.stream) return;
    if (!stream) {
      add({t}, -1, -1, "task \"{}\" has a part of a stream, and node {} has none: take \"stream\" from the task",
          task.name, task.node);
      return;
    }
    const int first = stream->matrices.front();
    const Buffer& matrix = graph_.buffers[static_cast<size_t>(first)];
    if (!task.stream) {
      add({t}, -1, first,
          "task \"{}\" takes \"{}\" from a stream, as its node says, and does not say which rows: give it a \"stream\"",
          task.name, matrix.name);
      return;
    }
    const StreamPart& part = *task.stream;
    const int64_t rows = matrix.shape[0], all = chunks_of_row(*stream, matrix.shape[1]);
    if (part.row_begin < 0 || part.row_begin >= part.row_end || part.row_end > rows || part.column_chunk < 0 ||
        part.column_chunk > all - stream->order.chunks)
      add({t}, -1, first,
          "task \"{}\" takes the rows {}:{} and {} chunks of columns from {} on, want rows within 0:{} and chunks "
          "within 0:{}",
          task.name, part.row_begin, part.row_end, stream->order.chunks, part.column_chunk, rows, all);
    else if (const int64_t chunks = num_chunks(*stream, part); chunks > kMaxChunks)
      add({t}, -1, first, "task \"{}\" takes {} chunks of its stream, want at most {}", task.name, chunks, kMaxChunks);
  }

  // Who works together: two tasks of a node, on workers that are neighbours. In which order is seen in verify_order.cpp.
  void check_partner(int t) {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    const WeightStream* stream = has_streams_ ? find_stream(graph_.streams, task.node) : nullptr;
    if (task.partner < 0) {
      if (stream && stream->order.partners)
        add({t}, -1, -1, "task \"{}\" shares its weights with a partner, as its node says, and has none: give it one",
            task.name);
      return;
    }
    if (!in_range(task.partner, graph_.tasks.size())) {
      add({t}, -1, -1, "task \"{}\" has task {} of {} as its partner", task.name, task.partner, graph_.tasks.size());
      return;
    }
    const Task& partner = graph_.tasks[static_cast<size_t>(task.partner)];
    if (partner.partner != t || task.partner == t)
      add({t, task.partner}, -1, -1, "task \"{}\" has \"{}\" as its partner, and that one has {}, want each other",
          task.name, partner.name, partner.partner);
    else if (partner.node != task.node || (!graph_.streams.empty() && (!stream || !stream->order.partners)))
      add({t, task.partner}, -1, -1,
          "tasks \"{}\" and \"{}\" are partners, want two of one node, whose stream is shared by partners", task.name,
          partner.name);
    else if ((task.worker ^ 1) != partner.worker)
      add({t, task.partner}, -1, -1,
          "tasks \"{}\" and \"{}\" are partners on workers {} and {}, want neighbours: 2 i and 2 i + 1", task.name,
          partner.name, task.worker, partner.worker);
    else if (t < task.partner && !are_neighbours(task, partner))
      add({t, task.partner}, -1, -1,
          "tasks \"{}\" and \"{}\" are partners, want tiles that follow each other along one axis", task.name,
          partner.name);
  }
  static bool are_neighbours(const Task& first, const Task& second) {
    if (first.tile.size() != second.tile.size()) return false;
    int apart = 0;
    for (size_t i = 0; i < first.tile.size(); ++i) {
      const loop::Range &a = first.tile[i], &b = second.tile[i];
      if (a.iname != b.iname) return false;
      if (a.begin == b.begin && a.end == b.end) continue;
      if (a.end != b.begin || ++apart > 1) return false;
    }
    return apart == 1;
  }

  void check_region(int t, const Region& region, bool writes) {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    const char* verb = writes ? "writes" : "reads";
    if (!in_range(region.buffer, graph_.buffers.size())) {
      add({t}, -1, -1, "task \"{}\" {} buffer {} of {}", task.name, verb, region.buffer, graph_.buffers.size());
      return;
    }
    const Buffer& buffer = graph_.buffers[static_cast<size_t>(region.buffer)];
    const loop::Box& box = region.box;
    bool inside = box.lo.size() == buffer.shape.size() && box.hi.size() == buffer.shape.size();
    for (size_t d = 0; inside && d < box.lo.size(); ++d)
      inside = 0 <= box.lo[d] && box.lo[d] <= box.hi[d] && box.hi[d] <= buffer.shape[d];
    if (!inside) {
      std::string text = box.lo.size() == box.hi.size() ? box_text(box) : "a box with unequal ends";
      add({t}, -1, region.buffer, "task \"{}\" {} {} of buffer \"{}\", whose shape is {}", task.name, verb, text,
          buffer.name, shape_text(buffer.shape));
    } else if (writes && buffer.memory == Memory::constant) {
      findings_.add(FindingKind::constant_written, {t}, -1, region.buffer,
                    fmt::format("task \"{}\" writes {} of buffer \"{}\", which is constant", task.name, box_text(box),
                                buffer.name));
    } else if (region.row_begin < 0 || region.row_end < region.row_begin ||
               (region.is_scatter() && (!writes || buffer.memory != Memory::state))) {
      add({t}, -1, region.buffer,
          "task \"{}\" {} {} of buffer \"{}\" and scatters rows {}:{}: want a write of a state, and rows from 0 on",
          task.name, verb, box_text(box), buffer.name, region.row_begin, region.row_end);
    }
  }

  void check_wait(int t, const Wait& wait) {
    const Task& task = graph_.tasks[static_cast<size_t>(t)];
    if (!in_range(wait.event, graph_.events.size())) {
      add({t}, -1, -1, "task \"{}\" waits for event {} of {}", task.name, wait.event, graph_.events.size());
      return;
    }
    const Event& event = graph_.events[static_cast<size_t>(wait.event)];
    if (wait.count < 1 || wait.count > event.arrivals)
      add({t}, wait.event, -1, "task \"{}\" waits for {} signals of event \"{}\", which gets {}", task.name, wait.count,
          event.name, event.arrivals);
    if (wait.lag != 0 && wait.lag != 1)
      add({t}, wait.event, -1, "task \"{}\" waits for event \"{}\" with lag {}, want 0 or 1", task.name, event.name,
          wait.lag);
  }

  void check_arrivals() {
    std::vector<int64_t> signals(graph_.events.size(), 0);
    for (const Task& task : graph_.tasks)
      for (int event : task.signals)
        if (in_range(event, signals.size())) ++signals[static_cast<size_t>(event)];
    for (size_t e = 0; e < signals.size(); ++e) {
      const Event& event = graph_.events[e];
      if (event.arrivals != signals[e])
        add({}, static_cast<int>(e), -1, "event \"{}\" expects {} signals an iteration, and {} tasks signal it",
            event.name, event.arrivals, signals[e]);
      else if (event.arrivals == 0)
        add({}, static_cast<int>(e), -1, "event \"{}\" is signalled by nobody", event.name);
    }
  }

  void check_workers() {
    if (graph_.workers.empty()) add({}, -1, -1, "there are no workers");
    if (graph_.workers.size() > kMaxWorkers)
      add({}, -1, -1, "there are {} workers, want at most {}", graph_.workers.size(), kMaxWorkers);
    std::vector<int> found_in(graph_.tasks.size(), -1);
    for (size_t w = 0; w < graph_.workers.size(); ++w)
      for (int t : graph_.workers[w]) {
        if (!in_range(t, graph_.tasks.size())) {
          add({}, -1, -1, "the list of worker {} has task {} of {}", w, t, graph_.tasks.size());
          continue;
        }
        const Task& task = graph_.tasks[static_cast<size_t>(t)];
        int& found = found_in[static_cast<size_t>(t)];
        if (found >= 0)
          add({t}, -1, -1, "task \"{}\" is in the lists of workers {} and {}, want one", task.name, found, w);
        else if (task.worker != static_cast<int>(w))
          add({t}, -1, -1, "task \"{}\" is in the list of worker {} but names worker {}", task.name, w, task.worker);
        found = static_cast<int>(w);
      }
    for (size_t t = 0; t < found_in.size(); ++t)
      if (found_in[t] < 0)
        add({static_cast<int>(t)}, -1, -1, "task \"{}\" is in no worker's list", graph_.tasks[t].name);
  }

  const std::string& event_name(int event) const { return graph_.events[static_cast<size_t>(event)].name; }

  const TaskGraph& graph_;
  Findings& findings_;
  bool has_streams_ = false;
};

}  // namespace

void check_structure(const TaskGraph& graph, Findings& findings) { Structure(graph, findings).check(); }

}  // namespace megalith::task::verifier
