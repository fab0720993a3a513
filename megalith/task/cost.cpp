#include "megalith/task/cost.h"

#include <algorithm>

#include "megalith/loop/count.h"
#include "megalith/task/partition.h"
#include "megalith/task/stream_chunks.h"

namespace megalith::task {

namespace {

using graph::LoweredKernel;
using graph::Tensor;

loop::Binding binding_of(const LoweredKernel& lowered, int64_t rows) {
  loop::Binding binding = lowered.binding;
  for (const loop::Parameter& parameter : lowered.kernel.parameters)
    if (int64_t& size = binding.sizes[parameter.name]; parameter.dynamic) size = std::min(rows, size);
  return binding;
}

bool streams(const LoweredKernel& lowered, size_t operand) {
  return lowered.body && lowered.body->streamed &&
         std::ranges::count(lowered.body->streamed->operands, lowered.op->operands[operand].name) > 0;
}

// Bytes that come through a stream for each that the tensor has.
double streamed_share(const Tensor& tensor) {
  return static_cast<double>(tensor.streamed_bytes()) / static_cast<double>(std::max<int64_t>(tensor.bytes(), 1));
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  weight_bytes += other.weight_bytes;
  state_bytes += other.state_bytes;
  activation_bytes += other.activation_bytes;
  streamed_bytes += other.streamed_bytes;
  flops += other.flops;
  return *this;
}

Costs::Costs(const graph::Graph& graph, const graph::LoweredGraph& lowered, const machine::WorkerRates& rates)
    : graph_(graph), lowered_(lowered), rates_(rates) {}

const LoweredKernel& Costs::kernel_of(int node) const {
  return lowered_.kernels[static_cast<size_t>(lowered_.kernel_of_node[static_cast<size_t>(node)])];
}

// Tiles of as many values count alike, but for those at an axis's end, where a domain may have fewer points.
const Costs::Counts& Costs::counts(int kernel, const std::vector<loop::Range>& tile, int64_t rows) {
  const LoweredKernel& lowered = lowered_.kernels[static_cast<size_t>(kernel)];
  const auto [extents, are_new] = extents_.try_emplace({kernel, rows});
  if (are_new) extents->second = axis_extents(lowered, binding_of(lowered, rows));
  std::vector<int64_t> key = {rows};
  std::vector<loop::Range> counted = tile;
  for (size_t axis = 0; axis < counted.size(); ++axis) {
    loop::Range& range = counted[axis];
    const int64_t extent = extents->second[axis];
    // With fewer rows than tasks were made for, every task counts as one that has them.
    if (range.end > extent) range = {range.iname, 0, std::min(extent, range.end - range.begin)};
    key.push_back(range.end - range.begin);
    key.push_back(range.end == extent ? 1 : 0);
  }
  const auto [known, is_new] = known_.try_emplace({kernel, std::move(key)});
  if (!is_new) return known->second;
  Counts& result = known->second;
  const loop::Binding binding = binding_of(lowered, rows);
  result.flops = static_cast<double>(loop::count_ops(lowered.kernel, binding, counted).flops());
  const std::map<std::string, loop::AccessCount> accesses = loop::count_accesses(lowered.kernel, binding, counted);
  for (const graph::Operand& operand : lowered.op->operands) {
    const auto found = accesses.find(operand.name);  // none of an operand that is the same tensor as another
    const loop::AccessCount count = found == accesses.end() ? loop::AccessCount{} : found->second;
    result.moved_bytes.push_back(static_cast<double>(count.moved_bytes()));
    result.touched_bytes.push_back(static_cast<double>(count.load_bytes + count.store_bytes));
  }
  return result;
}

Cost Costs::of(int node, const std::vector<loop::Range>& tile, int64_t rows) {
  const LoweredKernel& lowered = kernel_of(node);
  const int kernel = lowered_.kernel_of_node[static_cast<size_t>(node)];
  const Counts &counted = counts(kernel, tile, rows), &whole = counts(kernel, {}, rows);
  const std::vector<graph::TensorId>& operands = graph_.nodes()[static_cast<size_t>(node)].operands;
  Cost cost{.flops = counted.flops};
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& tensor = graph_.tensor(operands[i]);
    double bytes = counted.moved_bytes[i];
    if (streams(lowered, i)) cost.streamed_bytes += bytes *= streamed_share(tensor);
    switch (tensor.kind) {
      case graph::TensorKind::constant: cost.weight_bytes += bytes; break;
      case graph::TensorKind::state:
        // Which pages of a cache a tile reads is for data to say, and its footprint has all of them: so its share.
        if (whole.touched_bytes[i] > 0)
          cost.state_bytes += whole.moved_bytes[i] * counted.touched_bytes[i] / whole.touched_bytes[i];
        break;
      case graph::TensorKind::activation: cost.activation_bytes += bytes; break;
    }
  }
  return cost;
}

double Costs::ns(int node, const Cost& cost) const {
  return machine::task_ns(rates_, cost.bytes(), cost.flops, kernel_of(node).body != nullptr);
}

int64_t weight_bytes(const TaskGraph& tasks, const Task& task) {
  const WeightStream* stream = task.stream ? find_stream(tasks.streams, task.node) : nullptr;
  int64_t bytes = 0;
  for (const Region& region : task.reads) {
    const Buffer& buffer = tasks.buffers[static_cast<size_t>(region.buffer)];
    if (buffer.memory != Memory::constant) continue;
    const int64_t elements = region.box.num_elements();
    const bool is_int8 = stream && stream->quant_columns > 0 && std::ranges::count(stream->matrices, region.buffer) > 0;
    bytes += is_int8 ? graph::int8_bytes(elements) : elements * dtype_bytes(buffer.dtype);
  }
  return bytes;
}

}  // namespace megalith::task
