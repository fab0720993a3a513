#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "megalith/task/stream_chunks.h"
#include "megalith/task/verify_parts.h"

namespace megalith::task::verifier {

namespace {

class Streams {
 public:
  Streams(const TaskGraph& graph, Findings& findings) : graph_(graph), findings_(findings) {}

  void check() {
    std::vector<std::vector<int>> tasks(graph_.streams.size());  // per stream those that take from it
    for (size_t t = 0; t < graph_.tasks.size(); ++t)
      if (const WeightStream* stream = check_task(static_cast<int>(t)))
        tasks[static_cast<size_t>(stream - graph_.streams.data())].push_back(static_cast<int>(t));
    if (!findings_.none()) return;  // parts as they should be, from here on
    for (size_t s = 0; s < graph_.streams.size(); ++s) check_covered(graph_.streams[s], std::move(tasks[s]));
    if (findings_.none())
      for (size_t w = 0; w < graph_.workers.size(); ++w) check_worker(w);
  }

 private:
  template <class... Args>
  void add(std::vector<int> tasks, int buffer, fmt::format_string<Args...> format, Args&&... args) {
    findings_.add(FindingKind::stream, std::move(tasks), -1, buffer, fmt::format(format, std::forward<Args>(args)...));
  }
  const Task& task_at(int t) const { return graph_.tasks[static_cast<size_t>(t)]; }
  const Buffer& buffer_at(int b) const { return graph_.buffers[static_cast<size_t>(b)]; }
  const std::vector<int64_t>& shape_of(const WeightStream& stream) const {
    return buffer_at(stream.matrices.front()).shape;
  }

  // The stream that a task takes weights from, nullptr if from none. Its part lies within it (verify_structure.cpp).
  const WeightStream* check_task(int t) {
    const Task& task = task_at(t);
    const WeightStream* stream = find_stream(graph_.streams, task.node);
    if (!stream) return nullptr;
    const StreamPart& part = *task.stream;
    const int64_t width = chunk_columns(*stream), columns = shape_of(*stream)[1];
    const int64_t column_end = std::min<int64_t>((part.column_chunk + stream->order.chunks) * width, columns);
    const loop::Box taken{{part.row_begin, part.column_chunk * width}, {part.row_end, column_end}};
    if (stream->order.partners) {
      check_partners(t, *stream, taken, columns);
      return stream;
    }
    for (const int matrix : stream->matrices) check_read(t, matrix, taken);
    return stream;
  }

  // What two partners read of a matrix, some rows each, is what they take of it: half of the columns each.
  void check_partners(int t, const WeightStream& stream, const loop::Box& taken, int64_t columns) {
    const Task& task = task_at(t);
    if (task.partner < t) return;  // was looked at with the other one
    const int matrix = stream.matrices.front();
    const StreamPart &first = *task.stream, &second = *task_at(task.partner).stream;
    if (first.row_begin != second.row_begin || first.row_end != second.row_end || first.column_chunk != 0 ||
        second.column_chunk != stream.order.chunks) {
      add({t, task.partner}, matrix,
          "partners \"{}\" and \"{}\" take rows {}:{} from chunk {} of columns on and rows {}:{} from chunk {} on, "
          "want "
          "the same rows, from 0 and from {} on",
          task.name, task_at(task.partner).name, first.row_begin, first.row_end, first.column_chunk, second.row_begin,
          second.row_end, second.column_chunk, stream.order.chunks);
      return;
    }
    const int64_t middle = (first.row_begin + first.row_end) / 2;
    check_read(t, matrix, {{first.row_begin, 0}, {middle, columns}});
    check_read(task.partner, matrix, {{middle, 0}, {first.row_end, columns}});
    if (taken.hi[0] - taken.lo[0] != stream.order.group)
      add({t, task.partner}, matrix, "partners \"{}\" and \"{}\" take {} rows together, want a group of {}", task.name,
          task_at(task.partner).name, taken.hi[0] - taken.lo[0], stream.order.group);
  }

  // What a task reads of a matrix is what it takes of it.
  void check_read(int t, int matrix, const loop::Box& taken) {
    bool reads = false;
    for (const Region& region : task_at(t).reads) {
      if (region.buffer != matrix) continue;
      reads = true;
      if (!(region.box == taken))
        add({t}, matrix, "task \"{}\" takes {} of \"{}\" from its stream and reads {}, want the same", task_at(t).name,
            box_text(taken), buffer_at(matrix).name, box_text(region.box));
    }
    if (!reads)
      add({t}, matrix, "task \"{}\" takes {} of \"{}\" from its stream and reads nothing of it, want the same",
          task_at(t).name, box_text(taken), buffer_at(matrix).name);
  }

  // Parts of a node are those of all its rows, over all its columns, each for as many tasks: tiles of other axes.
  void check_covered(const WeightStream& stream, std::vector<int> all) {
    const auto key = [&](int t) {
      const StreamPart& part = *task_at(t).stream;
      return std::tuple(part.column_chunk, part.row_begin, part.row_end);
    };
    std::ranges::sort(all, {}, key);
    std::vector<int> tasks;  // the first of each part
    size_t sharers = 0;      // of the first part
    for (size_t i = 0; i < all.size();) {
      size_t end = i + 1;
      while (end < all.size() && key(all[end]) == key(all[i])) ++end;
      if (tasks.empty()) sharers = end - i;
      if (end - i != sharers)
        return add_sharers(
            stream, {all.begin() + static_cast<std::ptrdiff_t>(i), all.begin() + static_cast<std::ptrdiff_t>(end)},
            sharers);
      tasks.push_back(all[i]);
      i = end;
    }
    const int64_t rows = shape_of(stream)[0], columns = shape_of(stream)[1], width = chunk_columns(stream);
    int64_t column = 0, row = 0;  // all before is covered: earlier chunks of columns, and of these ones earlier rows
    const auto missing = [&](int64_t end, std::vector<int> next) {
      add(std::move(next), stream.matrices.front(),
          "the rows {}:{} of \"{}\" over chunks {}:{} of columns are in no part of a stream, want each in one", row,
          end, buffer_at(stream.matrices.front()).name, column, column + stream.order.chunks);
    };
    for (const int t : tasks) {
      const StreamPart& part = *task_at(t).stream;
      if (part.column_chunk != column && row == rows) column += stream.order.chunks, row = 0;
      if (part.column_chunk == column && part.row_begin == row) {
        row = part.row_end;
        continue;
      }
      if (part.column_chunk > column || (part.column_chunk == column && part.row_begin > row))
        missing(part.column_chunk == column ? part.row_begin : rows, {t});
      else
        add_shared(stream, tasks, t);
      return;
    }
    if (row == rows) column += stream.order.chunks, row = 0;
    if (column * width < columns) missing(rows, {});
  }

  void add_sharers(const WeightStream& stream, const std::vector<int>& tasks, size_t wanted) {
    const StreamPart& part = *task_at(tasks[0]).stream;
    add(tasks, stream.matrices.front(), "{} tasks take the rows {}:{} of \"{}\" over chunks {}:{} of columns, want {}",
        tasks.size(), part.row_begin, part.row_end, buffer_at(stream.matrices.front()).name, part.column_chunk,
        part.column_chunk + stream.order.chunks, wanted);
  }

  // `t` takes what a task before it in the order of `tasks` takes as well.
  void add_shared(const WeightStream& stream, const std::vector<int>& tasks, int t) {
    const StreamPart& part = *task_at(t).stream;
    const int other = *std::ranges::find_if(tasks, [&](int o) {
      const StreamPart& of = *task_at(o).stream;
      return of.row_begin < part.row_end && part.row_begin < of.row_end &&
             std::abs(of.column_chunk - part.column_chunk) < stream.order.chunks;
    });
    add({other, t}, stream.matrices.front(), "tasks \"{}\" and \"{}\" both take row {} of \"{}\", want one",
        task_at(other).name, task_at(t).name, std::max(part.row_begin, task_at(other).stream->row_begin),
        buffer_at(stream.matrices.front()).name);
  }

  // A worker takes chunk after chunk, task after task.
  void check_worker(size_t w) {
    int64_t chunk = 0;
    int last = -1;
    for (const int t : graph_.workers[w]) {
      const Task& task = task_at(t);
      if (!task.stream) continue;
      if (task.stream->first_chunk != chunk) {
        add(last < 0 ? std::vector{t} : std::vector{t, last}, -1,
            "task \"{}\" begins at chunk {} of the stream of worker {}, want {}{}", task.name, task.stream->first_chunk,
            w, chunk, last < 0 ? "" : fmt::format(", where task \"{}\" before it ends", task_at(last).name));
        return;
      }
      chunk += num_chunks(*find_stream(graph_.streams, task.node), *task.stream);
      if (chunk > kMaxChunks) {
        add({t}, -1, "the stream of worker {} has {} chunks up to the end of task \"{}\", want at most {}", w, chunk,
            task.name, kMaxChunks);
        return;
      }
      last = t;
    }
  }

  const TaskGraph& graph_;
  Findings& findings_;
};

}  // namespace

void check_streams(const TaskGraph& graph, Findings& findings) { Streams(graph, findings).check(); }

}  // namespace megalith::task::verifier
