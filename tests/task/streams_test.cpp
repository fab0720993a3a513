// Streams of weights in a task graph: what the verifier says of them, and what it makes of ones that were edited at
// random. An oracle walks the streams chunk by chunk, element by element, as whoever packs and takes them does.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "megalith/base/error.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/task/bytes.h"
#include "megalith/task/json.h"
#include "megalith/task/stream_chunks.h"
#include "megalith/task/verify.h"

namespace megalith::test {
namespace {

using Json = nlohmann::json;
using task::StreamPart;
using task::Task;
using task::TaskGraph;
using task::WeightStream;
using ::testing::HasSubstr;

size_t at(int index) { return static_cast<size_t>(index); }

/// Nodes that take weights from streams, in tasks of a few rows each, of split-K slices here and there, and
/// some that take none; everything on a few workers.
class StreamedGraph {
 public:
  explicit StreamedGraph(uint64_t seed) : random_(seed + 1) {
    graph_.name = "streamed";
    graph_.workers.resize(at(static_cast<int>(1 + below(3))));
    for (int n = 0; n < 4; ++n) {
      if (below(4) == 0)
        add_task(n, "plain", {}, {});
      else
        add_node(n);
    }
    for (std::vector<int>& list : graph_.workers) {
      int64_t chunk = 0;
      for (const int t : list)
        if (Task& task = graph_.tasks[at(t)]; task.stream) {
          task.stream->first_chunk = chunk;
          chunk += num_chunks(*find_stream(graph_.streams, task.node), *task.stream);
        }
    }
  }
  TaskGraph take() { return std::move(graph_); }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void add_node(int n) {
    const int64_t matrices = 1 + below(2), rows = 20 + below(150);
    const bool is_wide = below(2) == 0;
    WeightStream stream{.node = n, .matrices = {}};
    stream::Order& order = stream.order;
    int64_t num_slices = 1, columns = 0;
    if (is_wide) {
      order.group = static_cast<int>((32 + 16 * below(3)) / matrices);
      const int64_t width = stream::wide_columns(order.group * static_cast<int>(matrices));
      num_slices = 1 + below(3);
      order.chunks = 1 + below(4);
      columns = num_slices * order.chunks * width - (num_slices == 1 ? below(width / 8) * 8 : 0);
      order.part = 1, order.turn = 1 + below(stream::kMaxParts);
    } else {
      columns = 8 * (1 + below(500));
      const int64_t rows_of_x = 1 + below(8);
      const int slices = stream::slices(rows_of_x);
      order = stream::few_order(rows_of_x, columns, slices, 1 + below(stream::chunks_per_group(columns, slices)));
    }
    for (int64_t m = 0; m < matrices; ++m) {
      stream.matrices.push_back(static_cast<int>(graph_.buffers.size()));
      graph_.buffers.push_back({.name = fmt::format("w{}.{}", n, m),
                                .dtype = DType::bf16,
                                .shape = {rows, columns},
                                .memory = task::Memory::constant,
                                .bytes = rows * columns * 2});
    }
    graph_.streams.push_back(stream);
    const int64_t width = chunk_columns(stream);
    for (int64_t s = 0; s < num_slices; ++s)
      for (int64_t row = 0; row < rows;) {
        const int64_t end = std::min(rows, row + order.group * (1 + below(4)));
        const loop::Box box{{row, s * order.chunks * width},
                            {end, std::min<int64_t>((s + 1) * order.chunks * width, columns)}};
        std::vector<task::Region> reads;
        for (const int matrix : stream.matrices) reads.push_back({matrix, box});
        add_task(n, fmt::format("{}:{},{}", row, end, s), std::move(reads), StreamPart{row, end, s * order.chunks, 0});
        row = end;
      }
  }
  void add_task(int node, const std::string& name, std::vector<task::Region> reads, std::optional<StreamPart> part) {
    const int worker = static_cast<int>(below(static_cast<int64_t>(graph_.workers.size())));
    graph_.workers[at(worker)].push_back(static_cast<int>(graph_.tasks.size()));
    graph_.tasks.push_back({.name = fmt::format("n{}[{}]", node, name),
                            .node = node,
                            .reads = std::move(reads),
                            .worker = worker,
                            .stream = part});
  }

  std::mt19937_64 random_;
  TaskGraph graph_;
};

/// What is wrong with a graph's streams, "" if nothing is: every chunk is laid out, every element counted.
std::string harm_of(const TaskGraph& graph) {
  std::map<std::pair<int, size_t>, std::vector<int>> taken;  // by node and number of the matrix: how often, by element
  for (const WeightStream& stream : graph.streams)
    for (size_t m = 0; m < stream.matrices.size(); ++m) {
      const std::vector<int64_t>& shape = graph.buffers.at(at(stream.matrices[m])).shape;
      taken[{stream.node, m}].assign(static_cast<size_t>(shape[0] * shape[1]), 0);
    }
  for (const std::vector<int>& list : graph.workers) {
    int64_t chunk = 0;
    for (const int t : list) {
      const Task& task = graph.tasks.at(at(t));
      const auto stream = std::ranges::find(graph.streams, task.node, &WeightStream::node);
      if ((stream != graph.streams.end()) != task.stream.has_value()) return task.name + " and its node differ";
      if (!task.stream) continue;
      if (task.stream->first_chunk != chunk) return task.name + " begins at another chunk";
      const stream::Order& order = stream->order;
      const StreamPart& part = *task.stream;
      const std::vector<int64_t>& shape = graph.buffers.at(at(stream->matrices[0])).shape;
      const int64_t width = order.slices == 0
                                ? stream::wide_columns(order.group * static_cast<int>(stream->matrices.size()))
                                : stream::chunk_columns(order.slices);
      int64_t elements = 0;  // of each matrix
      std::vector<std::vector<int>*> counts;
      for (size_t m = 0; m < stream->matrices.size(); ++m) counts.push_back(&taken[{task.node, m}]);
      for (int64_t first = part.row_begin; first < part.row_end; first += order.group)
        for (int64_t c = part.column_chunk; c < part.column_chunk + order.chunks; ++c) {
          chunk += order.slices == 0 ? 1 : static_cast<int64_t>(stream->matrices.size());
          if (c >= shape[1] || c * width >= shape[1]) return task.name + " has an empty chunk";
          for (int64_t row = first; row < std::min(first + order.group, part.row_end); ++row)
            for (int64_t column = c * width; column < std::min((c + 1) * width, shape[1]); ++column, ++elements) {
              if (row >= shape[0]) return task.name + " has rows that are none";
              for (size_t m = 0; m < stream->matrices.size(); ++m) {
                ++(*counts[m])[static_cast<size_t>(row * shape[1] + column)];
                const auto reads = [&](const task::Region& region) {
                  return region.buffer == stream->matrices[m] && row >= region.box.lo[0] && row < region.box.hi[0] &&
                         column >= region.box.lo[1] && column < region.box.hi[1];
                };
                if (std::ranges::none_of(task.reads, reads)) return task.name + " does not read an element";
              }
            }
        }
      for (const task::Region& region : task.reads)
        if (region.box.num_elements() != elements) return task.name + " reads something else";
    }
  }
  for (const auto& [of, counts] : taken)
    if (!std::ranges::all_of(counts, [](int count) { return count == 1; })) return "an element is not there once";
  return "";
}

TEST(Streams, ReadAndWrittenAreTheSame) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const TaskGraph graph = StreamedGraph(seed).take();
    const std::string text = task::to_json(graph);
    EXPECT_EQ(task::verify(graph).text(), "") << text;
    EXPECT_EQ(harm_of(graph), "") << text;
    EXPECT_EQ(task::to_json(task::from_json(text)), text) << "seed " << seed;
    const std::string bytes = task::to_bytes(graph);
    EXPECT_EQ(task::to_json(task::from_bytes(bytes)), text) << "seed " << seed;
    for (size_t size = 0; size < bytes.size(); size += 1 + size / 50)
      EXPECT_THROW(task::from_bytes(std::string_view(bytes).substr(0, size)), UserError) << size;
  }
}

TEST(Streams, TotalsAreThoseOfTheirChunks) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const TaskGraph graph = StreamedGraph(seed).take();
    const task::StreamTotals totals = task::stream_totals(graph);
    int64_t chunks = 0;
    std::vector<int64_t> pieces(graph.buffers.size(), 0);
    for (const Task& task : graph.tasks)
      if (task.stream) {
        const WeightStream& stream = *find_stream(graph.streams, task.node);
        chunks += num_chunks(stream, *task.stream);
        for (const int matrix : stream.matrices)
          pieces[at(matrix)] += num_chunks(stream, *task.stream) /
                                (stream.order.slices == 0 ? 1 : static_cast<int64_t>(stream.matrices.size()));
      }
    EXPECT_EQ(totals.chunks, chunks);
    EXPECT_EQ(totals.pieces, pieces);
    for (const bool in_place : totals.in_place) EXPECT_FALSE(in_place);
  }
}

/// What the streams of a graph say: each value of them by its path.
std::vector<std::string> stream_values(const Json& document) {
  std::vector<std::string> paths;
  const Json flat = document.flatten();
  for (const auto& [path, value] : flat.items())
    if (path.starts_with("/streams") || path.find("/stream/") != std::string::npos) paths.push_back(path);
  return paths;
}

// Whatever is written into the streams of a file: it is refused, or as right as before.
TEST(Streams, EditedAtRandomAreRefusedOrRight) {
  std::mt19937_64 random(1);
  std::map<std::string, std::pair<int, int>> counts;  // by what was edited: of how many, how many were refused
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Json document = Json::parse(task::to_json(StreamedGraph(seed).take()));
    const std::vector<std::string> paths = stream_values(document);
    if (paths.empty()) continue;
    const auto any = [&](const auto& of) { return of[random() % of.size()]; };
    for (int round = 0; round < 40; ++round) {
      Json edited = document;
      const Json::json_pointer path(any(paths));
      std::string what = path.back();
      switch (random() % 5) {
        case 0: edited[path] = edited[path].get<int64_t>() + 1; break;
        case 1: edited[path] = edited[path].get<int64_t>() - 1; break;
        case 2: edited[path] = document[Json::json_pointer(any(paths))]; break;
        case 3: edited[path] = random() >> (4 + random() % 60); break;
        case 4: {
          // A whole part: none, or that of another task.
          std::vector<size_t> with;
          for (size_t t = 0; t < document["tasks"].size(); ++t)
            if (document["tasks"][t].contains("stream")) with.push_back(t);
          const size_t t = any(with), other = any(with);
          what = "whole part";
          if (random() % 3 == 0)
            edited["tasks"][t].erase("stream");
          else
            std::swap(edited["tasks"][t]["stream"], edited["tasks"][other]["stream"]);
        }
      }
      auto& [num_edits, num_refused] = counts[what];
      ++num_edits;
      TaskGraph graph;
      try {
        graph = task::from_json(edited.dump());
      } catch (const UserError&) {
        ++num_refused;
        continue;
      }
      const task::VerifyResult result = task::verify(graph);
      num_refused += !result.ok();
      // Where the verifier speaks of what can be laid out it may be stricter.
      if (result.ok() || result.findings[0].kind == task::FindingKind::stream) {
        EXPECT_EQ(result.ok(), harm_of(graph).empty()) << path.to_string() << " edited:\n" << edited.dump();
      }
    }
  }
  for (const auto& [what, count] : counts) {
    std::printf("[ FIGURE   ] %-14s %4d edits, %4d refused\n", what.c_str(), count.first, count.second);
    EXPECT_GT(count.second, count.first / 4) << what;
  }
}

// Tasks in another order, or on another worker, find other chunks.
TEST(Streams, OfListsThatWereEditedAreRefused) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TaskGraph graph = StreamedGraph(seed).take();
    for (std::vector<int>& list : graph.workers)
      for (size_t i = 0; i + 1 < list.size(); ++i) {
        std::swap(list[i], list[i + 1]);
        const bool is_refused = !task::verify(graph).ok();
        EXPECT_EQ(is_refused, !harm_of(graph).empty()) << task::to_json(graph);
        refused += is_refused;
        std::swap(list[i], list[i + 1]);
      }
  }
  EXPECT_GT(refused, 40);
}

// ---- what is said ---------------------------------------------------------------------------------------------------

/// Two tasks on one worker, of 16 and of 8 rows of two matrices; the second is the last.
TaskGraph two_tasks() {
  TaskGraph graph{.name = "two"};
  for (const char* name : {"gate", "up"})
    graph.buffers.push_back({name, DType::bf16, {24, 1000}, task::Memory::constant, 0, 24 * 1000 * 2});
  graph.streams = {{.node = 3, .matrices = {0, 1}, .order = {.slices = 2, .group = 8, .chunks = 1, .part = 1}}};
  for (const auto& [begin, end, chunk] : {std::tuple<int64_t, int64_t, int64_t>{0, 16, 0}, {16, 24, 4}}) {
    const loop::Box box{{begin, 0}, {end, 1000}};
    graph.tasks.push_back({.name = fmt::format("t[{}:{}]", begin, end),
                           .node = 3,
                           .reads = {{0, box}, {1, box}},
                           .worker = 0,
                           .stream = StreamPart{begin, end, 0, chunk}});
  }
  graph.workers = {{0, 1}};
  return graph;
}
std::string finding(void (*edit)(TaskGraph&)) {
  TaskGraph graph = two_tasks();
  edit(graph);
  const task::VerifyResult result = task::verify(graph);
  return result.ok()
             ? ""
             : fmt::format("{}: {}", task::finding_kind_name(result.findings[0].kind), result.findings[0].message);
}

TEST(Streams, FindingsNameTheTaskAndWhatIsWanted) {
  EXPECT_EQ(finding([](TaskGraph&) {}), "");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[1].stream->first_chunk = 3; }),
            "stream: task \"t[16:24]\" begins at chunk 3 of the stream of worker 0, want 4, where task \"t[0:16]\" "
            "before it ends");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[0].stream->first_chunk = 1; }),
            "stream: task \"t[0:16]\" begins at chunk 1 of the stream of worker 0, want 0");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[0].stream->row_end = 8; }),
            "stream: task \"t[0:16]\" takes [0:8, 0:1000] of \"gate\" from its stream and reads [0:16, 0:1000], want "
            "the same");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[0].reads.pop_back(); }),
            "stream: task \"t[0:16]\" takes [0:16, 0:1000] of \"up\" from its stream and reads nothing of it, want the "
            "same");
  EXPECT_EQ(
      finding([](TaskGraph& g) { g.tasks[1].stream->row_end = 25; }),
      "structure: task \"t[16:24]\" takes the rows 16:25 and 1 chunks of columns from 0 on, want rows within 0:24 "
      "and chunks within 0:1");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[1].stream.reset(); }),
            "structure: task \"t[16:24]\" takes \"gate\" from a stream, as its node says, and does not say which rows: "
            "give it a \"stream\"");
  EXPECT_EQ(finding([](TaskGraph& g) { g.tasks[1].node = 4; }),
            "structure: task \"t[16:24]\" has a part of a stream, and node 4 has none: take \"stream\" from the task");
  const auto without_the_second = [](TaskGraph& g) {
    g.tasks.pop_back();
    g.workers = {{0}};
  };
  EXPECT_EQ(finding(without_the_second),
            "stream: the rows 16:24 of \"gate\" over chunks 0:1 of columns are in no part of a stream, want each in "
            "one");
  EXPECT_EQ(finding([](TaskGraph& g) {
              g.tasks[1].stream->row_begin = g.tasks[1].reads[0].box.lo[0] = g.tasks[1].reads[1].box.lo[0] = 8;
            }),
            "stream: tasks \"t[0:16]\" and \"t[16:24]\" both take row 8 of \"gate\", want one");
  // Of more rows of activations than a task multiplies tasks share weights, each part as many of them.
  const auto again = [](TaskGraph& g) {
    for (const size_t t : {0, 1}) {
      g.tasks.push_back(g.tasks[t]);
      g.tasks.back().name += "'";
      g.tasks.back().stream->first_chunk += 6;
      g.workers[0].push_back(static_cast<int>(g.tasks.size()) - 1);
    }
  };
  EXPECT_EQ(finding(again), "");
  EXPECT_EQ(finding([](TaskGraph& g) {
              g.tasks.push_back(g.tasks[0]);
              g.tasks.back().name += "'";
              g.tasks.back().stream->first_chunk = 6;
              g.workers[0].push_back(2);
            }),
            "stream: 1 tasks take the rows 16:24 of \"gate\" over chunks 0:1 of columns, want 2");
}

TEST(Streams, ThatNoFileCanSayAreNamed) {
  const auto refusal = [](const std::function<void(Json&)>& edit) -> std::string {
    Json document = Json::parse(task::to_json(two_tasks()));
    edit(document);
    try {
      task::from_json(document.dump());
      return "";
    } catch (const UserError& error) { return error.what(); }
  };
  EXPECT_EQ(refusal([](Json&) {}), "");
  EXPECT_EQ(refusal([](Json& d) { d["streams"][0].erase("turn"); }),
            "[task graph] $.streams[0] is an object of 6, want one with the key \"turn\"");
  EXPECT_EQ(refusal([](Json& d) { d["streams"][0]["group"] = -8; }),
            "[task graph] $.streams[0].group is -8, want a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal([](Json& d) { d["tasks"][1]["stream"]["rows"] = {16}; }),
            "[task graph] $.tasks[1].stream.rows is an array of 1, want [begin, end]");
  EXPECT_EQ(refusal([](Json& d) { d["tasks"][1]["stream"] = nullptr; }),
            "[task graph] $.tasks[1].stream is null, want an object");
}

TEST(Streams, ThatCannotBeLaidOutAreRefused) {
  const auto of_order = [](stream::Order order) {
    TaskGraph graph = two_tasks();
    graph.streams[0].order = order;
    return task::verify(graph).text();
  };
  EXPECT_THAT(
      of_order({.slices = 2, .group = 16, .chunks = 1, .part = 1}),
      HasSubstr("structure: the stream of node 3 has 2 slices and groups of 16 rows of each of 2 matrices, want "
                "1 slice and 16 rows, 2 slices and 8 rows, or no slices"));
  EXPECT_THAT(of_order({.slices = 0, .group = 32 + 8, .chunks = 1, .part = 1}),
              HasSubstr("128, 96, 64, 48, 32 rows in all"));
  EXPECT_THAT(of_order({.slices = 2, .group = 8, .chunks = 2, .part = 1}),
              HasSubstr("has 2 chunks of the columns of a group, want 1 to 1: 1000 columns, 1024 a chunk"));
  EXPECT_THAT(of_order({.slices = 2, .group = 8, .chunks = 1, .part = 2}), HasSubstr("parts of 2 chunks, want 1 to 1"));
  EXPECT_THAT(of_order({.slices = 0, .group = 16, .chunks = 1, .part = 1, .turn = 5}),
              HasSubstr("has turns of 5 groups, want 1 to 4"));
  TaskGraph graph = two_tasks();
  graph.buffers[1].memory = task::Memory::state;
  EXPECT_THAT(task::verify(graph).text(), HasSubstr("has buffer \"up\", want a constant matrix of 16-bit weights"));
  graph = two_tasks();
  graph.streams.push_back(graph.streams[0]);
  EXPECT_THAT(task::verify(graph).text(), HasSubstr("stands behind that of node 3, want one a node, in their order"));
}

}  // namespace
}  // namespace megalith::test
