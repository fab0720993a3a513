// Which weights a worker reads next. They depend on nothing that is computed, so the product in hand asks for them
// while it ends, and memory does not idle over the end of a task, a wait for others, or the end of an iteration.
#pragma once

#include <array>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/runtime/image.h"

namespace megalith::runtime {

/// Of a task: where the panels begin that the next product of its worker's list reads first, side by side.
using WeightsAhead = std::array<const void*, panel::kMaxPanels>;

/// Gives each task whose body reads packed weights (graph::PackedWeights) operands of its own in `parts`: those that it
/// has, and behind them its WeightsAhead, which lie in the result; that must outlive the runs. `addresses`: per tensor,
/// where the kernel finds it.
std::vector<WeightsAhead> add_weights_ahead(ImageParts& parts, const graph::Graph& graph,
                                            const jit::CompiledKernel& kernel, const std::vector<void*>& addresses);

}  // namespace megalith::runtime
