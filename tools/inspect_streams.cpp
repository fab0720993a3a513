#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/task/stream_chunks.h"
#include "tools/inspect.h"
#include "tools/terminal.h"

namespace megalith::tools {

using task::StreamPart;
using task::Task;
using task::TaskGraph;
using task::WeightStream;

namespace {

const std::string& name_of(const TaskGraph& tasks, int buffer) {
  return tasks.buffers[static_cast<size_t>(buffer)].name;
}

}  // namespace

std::string streams_line(const TaskGraph& tasks) {
  if (tasks.streams.empty()) return "";
  std::vector<int64_t> chunks(tasks.workers.size(), 0);
  for (const Task& task : tasks.tasks)
    if (task.stream)
      chunks[static_cast<size_t>(task.worker)] += num_chunks(*find_stream(tasks.streams, task.node), *task.stream);
  const auto [least, most] = std::ranges::minmax(chunks);
  const task::StreamTotals totals = task::stream_totals(tasks);
  return fmt::format("streams   {} of weights, {} in {}: {} to {} a worker\n",
                     plural(static_cast<int64_t>(tasks.streams.size()), "node"), format_bytes(totals.bytes()),
                     plural(totals.chunks, "chunk"), least, most);
}

std::string streams_table(const TaskView& view) {
  const TaskGraph& tasks = view.tasks;
  std::map<int, std::string> labels;  // of nodes
  for (size_t t = 0; t < tasks.tasks.size(); ++t) labels.try_emplace(tasks.tasks[t].node, view.labels[t]);
  // Layers are alike.
  std::vector<std::pair<std::vector<std::string>, int64_t>> rows;
  for (const WeightStream& stream : tasks.streams) {
    const std::vector<int64_t>& shape = tasks.buffers[static_cast<size_t>(stream.matrices.front())].shape;
    const stream::Order& order = stream.order;
    const auto number = [](int64_t value) { return fmt::format("{}", value); };
    std::vector<std::string> row = {
        labels[stream.node],
        fmt::format("{}[{}, {}]", stream.matrices.size() > 1 ? fmt::format("{} x ", stream.matrices.size()) : "",
                    shape[0], shape[1]),
        number(order.group),
        number(chunk_columns(stream)),
        number(order.chunks),
        number(order.part),
        order.turn == 0 ? "all" : number(order.turn)};
    const auto same = std::ranges::find(rows, row, &decltype(rows)::value_type::first);
    if (same == rows.end())
      rows.emplace_back(std::move(row), 1);
    else
      ++same->second;
  }
  Table table({"stream of", ">nodes", "weights", ">rows of a chunk", ">columns", ">chunks of a group", ">of a part",
               ">groups of a turn"});
  for (const auto& [row, count] : rows)
    table.row({row[0], fmt::format("{}", count), row[1], row[2], row[3], row[4], row[5], row[6]});
  return rows.empty() ? "" : "\n" + table.text();
}

std::string part_text(const TaskGraph& tasks, const Task& task) {
  if (!task.stream) return "";
  const WeightStream& stream = *find_stream(tasks.streams, task.node);
  const StreamPart& part = *task.stream;
  std::vector<std::string> names;
  for (const int matrix : stream.matrices) names.push_back(name_of(tasks, matrix));
  return fmt::format("takes rows {}:{} of {} from the stream of worker {}, chunks {}:{}\n", part.row_begin,
                     part.row_end, fmt::join(names, " and "), task.worker, part.first_chunk,
                     part.first_chunk + num_chunks(stream, part));
}

std::string part_json(const TaskGraph& tasks, const Task& task) {
  if (!task.stream) return "null";
  const WeightStream& stream = *find_stream(tasks.streams, task.node);
  const StreamPart& part = *task.stream;
  std::vector<std::string> names;
  for (const int matrix : stream.matrices) names.push_back(json_quote(name_of(tasks, matrix)));
  return fmt::format(R"({{"matrices": [{}], "rows": [{}, {}], "column_chunk": {}, "chunks": [{}, {}]}})",
                     fmt::join(names, ", "), part.row_begin, part.row_end, part.column_chunk, part.first_chunk,
                     part.first_chunk + num_chunks(stream, part));
}

}  // namespace megalith::tools
