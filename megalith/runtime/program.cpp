#include "megalith/runtime/program.h"

#include "megalith/base/error.h"
#include "megalith/runtime/apart.h"

namespace megalith::runtime {

namespace {

std::vector<void*> find_addresses(const graph::Graph& graph, const task::TaskGraph& tasks, const Mapping& arena,
                                  const PackedWeights& packed, const std::map<std::string, void*>& memory) {
  check_apart(graph, memory);
  std::vector<void*> addresses;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.kind == graph::TensorKind::activation) {
      addresses.push_back(arena.data() + tasks.buffers[i].offset);
      continue;
    }
    if (void* const address = packed.address(static_cast<graph::TensorId>(i))) {
      addresses.push_back(address);
      continue;
    }
    const auto found = memory.find(tensor.name);
    MEGALITH_CHECK(found != memory.end() && found->second, "the {} \"{}\" has no memory",
                   tensor.kind == graph::TensorKind::constant ? "constant" : "state", tensor.name);
    addresses.push_back(found->second);
  }
  return addresses;
}

// " (embedding of ids "x", weight "w")", of a node whose body checks what it is given.
std::string node_text(const graph::Graph& graph, const graph::Node& node) {
  std::string operands;
  for (size_t i = 0; i < node.operands.size(); ++i)
    operands +=
        fmt::format("{}{} \"{}\"", i == 0 ? "" : ", ", node.op->operands[i].name, graph.tensor(node.operands[i]).name);
  return fmt::format(" ({} of {})", node.op->name, operands);
}

}  // namespace

// Operand pointers node by node: the operator's operands, then its dynamic sizes by name.
ImageParts image_parts(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                       const std::vector<void*>& addresses) {
  ImageParts parts;
  std::vector<u32> first_of_node;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    first_of_node.push_back(static_cast<u32>(parts.operands.size()));
    for (graph::TensorId operand : node.operands) parts.operands.push_back(addresses[static_cast<size_t>(operand)]);
    for (const auto& [size, dynamic] : node.dynamic) {
      const graph::DynamicSize& where = graph.dynamic_sizes().at(dynamic);
      parts.operands.push_back(static_cast<i32*>(addresses[static_cast<size_t>(where.tensor)]) + where.index);
    }
  }
  first_of_node.push_back(static_cast<u32>(parts.operands.size()));
  for (const task::Task& task : kernel.tasks.tasks) {
    MEGALITH_CHECK(task.node >= 0 && task.node < static_cast<int>(graph.nodes().size()),
                   "task \"{}\" belongs to node {}, but the graph has {} nodes", task.name, task.node,
                   graph.nodes().size());
    parts.bodies.push_back(static_cast<u32>(kernel.kernel_of_node[static_cast<size_t>(task.node)]));
    const auto node = static_cast<size_t>(task.node);
    parts.first_operands.push_back(first_of_node[node]);
    parts.num_operands.push_back(first_of_node[node + 1] - first_of_node[node]);
  }
  parts.scratch_bytes = static_cast<u64>(kernel.scratch_bytes);
  parts.checks = kernel.checks;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const auto body = static_cast<size_t>(kernel.kernel_of_node[n]);
    const bool checks = body < kernel.checks.size() && !kernel.checks[body].empty();
    parts.nodes.push_back(checks ? node_text(graph, graph.nodes()[n]) : "");
  }
  if (graph.stop_tensor()) {
    parts.num_iterations = 0;
    parts.stop = static_cast<const i32*>(addresses[static_cast<size_t>(*graph.stop_tensor())]);
    if (const std::optional<graph::TensorId> sizes = graph.lasting_sizes())
      if (graph.tensor(*sizes).num_elements() >= kIterationSizes)
        parts.sizes = static_cast<const i32*>(addresses[static_cast<size_t>(*sizes)]);
  }
  return parts;
}

Program::Program(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                 const std::map<std::string, void*>& memory, const PackOptions& pack)
    : packed_(graph, kernel.schedule, memory, pack),
      arena_(kernel.tasks.arena_bytes, "the arena of activations"),
      addresses_(find_addresses(graph, kernel.tasks, arena_, packed_, memory)),
      entry_(kernel.build.library.function<void(const Launch*, u32)>("megalith_worker")),
      image_(kernel.tasks, [&] {
        ImageParts parts = image_parts(graph, kernel, addresses_);
        weights_ahead_ = add_weights_ahead(parts, graph, kernel, addresses_);
        return parts;
      }()) {}

void Program::profile(u64 iterations) {
  // Off first: without memory for the new rings the workers write to none.
  image_.set_profile(nullptr, 0);
  rings_.reset();
  if (iterations == 0) return;
  rings_.emplace(image_.launch().num_workers, profile_longest_list(image_.launch()) * iterations);
  image_.set_profile(rings_->records(), rings_->capacity());
}

void Program::profile_begin() {
  if (rings_) rings_->begin();
}

Profile Program::profile_take() const { return rings_ ? rings_->take(image_.launch().status) : Profile{}; }

}  // namespace megalith::runtime
