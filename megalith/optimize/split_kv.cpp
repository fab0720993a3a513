#include "megalith/base/ceil_div.h"
#include "megalith/optimize/limits.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Node;

int split_kv(graph::Graph& graph, const Goal&) {
  int times = 0;
  for (size_t at = 0; at < graph.nodes().size(); ++at) {
    const Node whole = graph.nodes()[at];
    if (whole.op->name != "attention") continue;
    graph.erase(whole.name);
    const int64_t chunks = ceil_div(whole.sizes.at("S"), kSplitPositions);
    // A grid counts tasks along groups of heads, the last node all heads.
    std::map<std::string, int64_t> merged = whole.pieces;
    if (auto groups = merged.extract("g")) {
      groups.key() = "a";
      merged.insert(std::move(groups));
    }
    const auto parts =
        graph.insert(at, "attention_partial", whole.name,
                     {operand(whole, "q"), operand(whole, "k_cache"), operand(whole, "v_cache"),
                      operand(whole, "page_table"), operand(whole, "request"), operand(whole, "position")},
                     {.sizes = {{"C", chunks}, {"L", kSplitPositions}},
                      .attributes = {{"scale", whole.attributes.at("scale")}},
                      .pieces = whole.pieces});
    graph.insert(at + 1, "attention_merge", whole.name + "_merge",
                 {parts[0], parts[1], parts[2], operand(whole, "position")},
                 {.sizes = {{"L", kSplitPositions}}, .outputs = {{"y", operand(whole, "y")}}, .pieces = merged});
    graph.remember({"split_kv", whole.name, "attention", 0});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
