// A decoder step by step, every buffer to be looked at after each: on the CPU, or on a GPU (tests/cuda). Two of them on
// the same graph are compared buffer by buffer, in the order of the program.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/engine/memory_map.h"
#include "megalith/model/safetensors.h"
#include "megalith/runtime/batch.h"
#include "support/graph_run.h"

namespace megalith::testing {

/// One side: a kernel whose activations share no memory, and the memory that it runs on.
class DecoderSteps {
 public:
  DecoderSteps(const graph::Graph& graph, const std::string& target, int num_workers)
      : graph_(graph),
        kernel_(jit::compile(graph, {.target = target, .num_workers = num_workers, .reuse_arena = false})) {
    memory_.bind_states(graph);
  }
  virtual ~DecoderSteps() = default;

  engine::MemoryMap& memory() { return memory_; }
  const graph::Graph& graph() const { return graph_; }
  const jit::CompiledKernel& kernel() const { return kernel_; }

  /// One iteration; before it, states are what memory() has, and afterwards memory() has them.
  virtual void run() = 0;
  /// Of the iteration for which it last took states.
  std::optional<int64_t> rows() const { return rows_; }
  /// A tensor's elements after it.
  loop::Array array(graph::TensorId id) const {
    const graph::Tensor& tensor = graph_.tensor(id);
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    if (tensor.kind == graph::TensorKind::activation)
      read(id, bytes.data());
    else
      std::memcpy(bytes.data(), memory_.addresses().at(tensor.name), bytes.size());
    loop::Array array = loop::Array::zeros(shape_of(tensor));
    for (size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = element_load(bytes.data(), tensor.dtype, static_cast<int64_t>(i));
    return array;
  }
  /// The states of another run; not its mailbox.
  void take_states(const DecoderSteps& other) {
    rows_ = other.memory_.get<int32_t>("counts")[batch::kRows];
    for (const graph::Tensor& tensor : graph_.tensors())
      if (tensor.kind == graph::TensorKind::state && tensor.name != "mailbox")
        std::memcpy(memory_.get<void>(tensor.name), other.memory_.get<void>(tensor.name),
                    static_cast<size_t>(tensor.bytes()));
  }

 protected:
  virtual void read(graph::TensorId activation, void* to) const = 0;

  const graph::Graph& graph_;
  jit::CompiledKernel kernel_;
  engine::MemoryMap memory_;

 private:
  std::optional<int64_t> rows_;
};

class CpuDecoderSteps : public DecoderSteps {
 public:
  using DecoderSteps::DecoderSteps;
  void run() override {
    if (!program_) program_.emplace(graph_, kernel_, memory_.addresses());
    auto* const mailbox = memory_.get<runtime::Mailbox>("mailbox");
    runtime::mailbox_init(mailbox, mail_.data(), static_cast<runtime::u32>(mail_.size()));
    program_->image().set_num_iterations(1);
    runtime::Launcher(program_->entry(), program_->image(), {.mailbox = mailbox}).run();
  }

 private:
  void read(graph::TensorId activation, void* to) const override {
    std::memcpy(to, program_->address(activation), static_cast<size_t>(graph_.tensor(activation).bytes()));
  }
  std::vector<runtime::MailRecord> mail_ = std::vector<runtime::MailRecord>(64);
  std::optional<runtime::Program> program_;
};

/// What decides between equals may decide otherwise; its numbers are compared, its choice is not.
inline bool is_choice(const graph::Graph& graph, const graph::Node& node, graph::TensorId output) {
  return !dtype_is_float(graph.tensor(output).dtype) && (node.op->name.find("argmax") != std::string::npos ||
                                                         node.op->name == "sampling" || node.op->name == "advance");
}

/// Whether what stands at `place` of the first dimension is of a row that there is. Else nobody takes it: chunks of attention
/// are dealt to U rows, however few there are (ops/attention_dealt.cpp).
inline bool is_of_a_row(const graph::Node& node, const graph::Tensor& output, std::optional<int64_t> rows,
                        int64_t place) {
  const auto chunks = node.sizes.find("V"), dealt = node.sizes.find("U");
  if (!rows || chunks == node.sizes.end() || dealt == node.sizes.end() || output.shape[0] != chunks->second)
    return true;
  return place % std::max(dealt->second, *rows) < *rows;
}

/// The first element beyond `roundings` of bf16, in the order of the program: "" if there is none, else its task,
/// buffer and index, what was found and what was wanted. `worst`: the largest error of all, in such roundings.
inline std::string first_difference(const DecoderSteps& found, const DecoderSteps& wanted, double roundings,
                                    double* worst) {
  const graph::Graph& graph = found.graph();
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::Node& node = graph.nodes()[n];
    for (size_t o = 0; o < node.operands.size(); ++o) {
      const graph::TensorId id = node.operands[o];
      const graph::Tensor& tensor = graph.tensor(id);
      if (node.op->operands[o].role == loop::Role::input || tensor.name == "mailbox" || is_choice(graph, node, id))
        continue;
      const loop::Array a = found.array(id), b = wanted.array(id);
      // Of what was written: a cache is mostly empty.
      double square = 0;
      size_t count = 0;
      for (const double v : b.values)
        if (std::isfinite(v) && v != 0) square += v * v, ++count;
      const double typical = std::sqrt(square / static_cast<double>(std::max<size_t>(count, 1)));
      for (size_t i = 0; i < b.values.size(); ++i) {
        if (a.values[i] == b.values[i]) continue;
        const double unit =
            dtype_is_float(tensor.dtype) ? dtype_epsilon(DType::bf16) * (std::abs(b.values[i]) + typical) : 0;
        const double error = std::abs(a.values[i] - b.values[i]) / unit;
        if (error <= roundings) {
          *worst = std::max(*worst, error);
          continue;
        }
        std::vector<int64_t> index;
        for (size_t d = b.shape.size(), rest = i; d-- > 0; rest /= static_cast<size_t>(b.shape[d]))
          index.insert(index.begin(), static_cast<int64_t>(rest) % b.shape[d]);
        if (!is_of_a_row(node, tensor, found.rows(), index[0])) continue;
        std::string task = node.name;
        for (const task::Task& one : found.kernel().tasks.tasks)
          for (const task::Region& region : one.writes)
            if (one.node == static_cast<int>(n) && region.buffer == id &&
                std::ranges::equal(region.box.lo, index, std::less_equal<>()) &&
                std::ranges::equal(index, region.box.hi, std::less<>()))
              task = one.name;
        return fmt::format("task \"{}\" ({}): \"{}\"[{}] is {}, want {}: {:.3g} roundings of bf16", task, node.op->name,
                           tensor.name, fmt::join(index, ", "), a.values[i], b.values[i], error);
      }
    }
  }
  return "";
}

}  // namespace megalith::testing
