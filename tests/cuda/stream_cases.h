// A product whose weights stream in another way than is usual: what an edited plan.txt may say.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/graph/schedule_text.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"

namespace megalith::testing {

struct StreamCase {
  int64_t tokens, columns;
  std::map<std::string, int64_t> choices;

  /// y = x w^T, of rows that are not whole groups.
  graph::Graph graph() const {
    constexpr int64_t kRows = 1126;
    graph::Graph graph(ops::builtin(), "product");
    graph.add("linear", "product",
              {graph.state("x", DType::bf16, {tokens, columns}), graph.constant("w", DType::bf16, {kRows, columns})},
              {.outputs = {{"y", graph.state("y", DType::f32, {tokens, kRows})}}});
    return graph;
  }
  /// As plan.txt.
  std::string plan(const graph::Graph& graph) const {
    graph::Schedule schedule = optimize::make_schedule(graph, "cuda");
    for (const auto& [name, value] : choices) schedule.nodes[0].stream[name] = value;
    return graph::print(graph, schedule);
  }
};

/// Each differs from what is usual there. The first four make bodies that nothing else has.
inline const std::vector<StreamCase>& stream_cases() {
  static const std::vector<StreamCase> cases = {
      {4, 2560, {{"registers", 0}}},  // refused where x lies in fragments; a state lies in rows
      {4, 2560, {{"part", 2}}},       // parts in registers of what could be held
      {1, 4096, {{"part", 1}}},       // staged a tile at a time
      {64, 1024, {{"group", 64}, {"turn", 1}}},
      {1, 4096, {{"slices", 1}, {"part", 8}}},
      {2, 2560, {{"slices", 2}, {"part", 3}}},
      {2, 8192, {{"part", 3}}},
      {8, 12288, {{"registers", 0}, {"part", 2}}},
      {64, 1024, {{"group", 32}, {"turn", 4}}},
      {128, 1024, {{"group", 48}, {"turn", 2}}},
  };
  return cases;
}

}  // namespace megalith::testing
