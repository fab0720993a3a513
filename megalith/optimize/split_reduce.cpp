#include "megalith/base/ceil_div.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Node;

namespace {

// Small enough to spread over many workers, large enough that the last step has little to do.
constexpr int64_t kColumns = 1024;

}  // namespace

int split_reduce(graph::Graph& graph, const Goal&) {
  int times = 0;
  for (size_t at = 0; at < graph.nodes().size(); ++at) {
    const Node whole = graph.nodes()[at];
    if (whole.op->name != "argmax") continue;
    graph.erase(whole.name);
    const auto parts = graph.insert(at, "argmax_partial", whole.name + "_partial", {operand(whole, "x")},
                                    {.sizes = {{"C", ceil_div(whole.sizes.at("V"), kColumns)}, {"L", kColumns}}});
    graph.insert(at + 1, "argmax_reduce", whole.name, {parts[0], parts[1]},
                 {.outputs = {{"best", operand(whole, "best")}}});
    graph.remember({"split_reduce", whole.name, "argmax", 0});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
