#include "megalith/runtime/apart.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "megalith/base/error.h"

namespace megalith::runtime {

void check_apart(const graph::Graph& graph, const std::map<std::string, void*>& memory) {
  std::vector<const graph::Node*> writers(graph.tensors().size());
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input) writers[static_cast<size_t>(node.operands[i])] = &node;

  struct Place {
    uintptr_t begin, end;
    size_t tensor;
  };
  std::vector<Place> places;
  for (size_t t = 0; t < writers.size(); ++t) {
    const graph::Tensor& tensor = graph.tensors()[t];
    const auto found = memory.find(tensor.name);
    if (tensor.kind == graph::TensorKind::activation || found == memory.end() || !found->second) continue;
    const auto begin = reinterpret_cast<uintptr_t>(found->second);
    places.push_back({begin, begin + static_cast<uintptr_t>(tensor.bytes()), t});
  }
  std::ranges::sort(places, {}, &Place::begin);
  // Of those before: the one that ends last, and the one that ends last of those that are written.
  const Place *longest = nullptr, *written = nullptr;
  for (const Place& place : places) {
    for (const Place* before : {longest, written}) {
      if (!before || before->end <= place.begin) continue;
      const size_t tensor = writers[place.tensor] ? place.tensor : before->tensor;
      MEGALITH_CHECK(!writers[tensor],
                     "\"{}\" and \"{}\" share memory, and node \"{}\" writes \"{}\": bring tensors that lie apart",
                     graph.tensors()[before->tensor].name, graph.tensors()[place.tensor].name, writers[tensor]->name,
                     graph.tensors()[tensor].name);
    }
    if (!longest || place.end > longest->end) longest = &place;
    if (writers[place.tensor] && (!written || place.end > written->end)) written = &place;
  }
}

}  // namespace megalith::runtime
