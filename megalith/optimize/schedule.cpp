#include "megalith/optimize/schedule.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/kernels/head_pairs.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/ops/stream_choices.h"
#include "megalith/optimize/goal.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

namespace {

using graph::Layout;
using graph::Node;
using graph::Schedule;
using graph::Tensor;
using graph::TensorKind;

// ---- what a tensor can be, whoever reads it ---------------------------------------------------------------------------

// A flag stands beside 32 bits.
bool has_whole_words(const Tensor& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::i32 ||
         (dtype_is_half(tensor.dtype) && !tensor.shape.empty() && tensor.shape.back().size % 2 == 0);
}

bool fits_fragments(const Tensor& tensor) {
  return tensor.kind == TensorKind::activation && dtype_is_half(tensor.dtype) && tensor.shape.size() == 2 &&
         tensor.shape[0].size > stream::kMaxRowsOfWords && row_blocks::fits(tensor.shape[0].size, tensor.shape[1].size);
}

bool fits_head_pairs(const Tensor& tensor) {
  const int64_t bytes = dtype_bytes(tensor.dtype);
  return tensor.any_layout && tensor.shape.size() == 4 &&
         head_pairs::fits(tensor.shape[0].size, tensor.shape[1].size, tensor.shape[2].size,
                          tensor.shape[3].size * bytes);
}

// Of each word there is one write an iteration. And a body of the stream takes only so many rows of activations, which
// come first, word by word: to look at each word of more costs it more than to wait once.
std::vector<bool> may_carry_flags(const graph::Graph& graph, const Schedule& schedule) {
  std::vector<bool> may;
  for (const Tensor& tensor : graph.tensors())
    may.push_back(tensor.kind == TensorKind::activation && has_whole_words(tensor));
  std::vector<int> num_writers(may.size(), 0);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input && ++num_writers[static_cast<size_t>(node.operands[i])] > 1)
        may[static_cast<size_t>(node.operands[i])] = false;
    if (schedule.body(n) && schedule.body(n)->streamed &&
        graph.tensor(node.operands[0]).shape[0].size > stream::kMaxRowsOfWords)
      may[static_cast<size_t>(node.operands[0])] = false;
  }
  return may;
}

// What a stream takes in int8 has a byte for each of its floats of 16 bits.
bool fits_int8(const Tensor& tensor) {
  return tensor.kind == TensorKind::constant && dtype_is_half(tensor.dtype) && tensor.quant_columns > 0;
}

// Matrices of what a panel's bytes are defined for (kernels/panel_layout.h).
bool fits_panels(const Tensor& tensor) {
  return tensor.kind == TensorKind::constant && tensor.shape.size() == 2 &&
         (tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 || tensor.dtype == DType::f32 ||
          tensor.dtype == DType::i8);
}

// ---- choices ----------------------------------------------------------------------------------------------------------

// Gives `layout` to those of `candidates` that every reader and writer takes so.
void choose(Schedule& schedule, const graph::Graph& graph, Layout layout, std::vector<bool> candidates) {
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (!graph::takes_layout(schedule.body(n), node, i, layout))
        candidates[static_cast<size_t>(node.operands[i])] = false;
  }
  for (size_t t = 0; t < candidates.size(); ++t)
    if (candidates[t]) schedule.layouts[t] = layout;
}

template <class Test>
std::vector<bool> tensors_that(const graph::Graph& graph, Test&& test) {
  std::vector<bool> result;
  for (const Tensor& tensor : graph.tensors()) result.push_back(test(tensor));
  return result;
}

// Weights lie in panels where some body wants them so; bodies that cannot read them there give way to generated ones.
void choose_panels(Schedule& schedule, const graph::Graph& graph) {
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (schedule.body(n) && !graph::takes_layout(schedule.body(n), node, i, Layout::rows))
        schedule.layouts[static_cast<size_t>(node.operands[i])] = Layout::panels;
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (schedule.layout(node.operands[i]) == Layout::panels &&
          !graph::takes_layout(schedule.body(n), node, i, Layout::panels))
        schedule.nodes[n].body = nullptr;
  }
}

std::string reason_against(const Tensor& tensor, Layout layout, bool may_carry_flag) {
  switch (layout) {
    case Layout::rows: return "";
    case Layout::flag_in_data:
      return may_carry_flag ? "" : "want an activation of whole words that one node writes, of few rows";
    case Layout::panels: return fits_panels(tensor) ? "" : "want a constant matrix of bf16, f16, f32 or i8";
    case Layout::fragments:
      return fits_fragments(tensor)
                 ? ""
                 : "want an activation of bf16 or f16 whose many rows and columns are whole fragments";
    case Layout::int8: return fits_int8(tensor) ? "" : "want a constant matrix of bf16 or f16 that is to be rounded";
    case Layout::head_pairs:
      return fits_head_pairs(tensor)
                 ? ""
                 : "want a cache of whole granules of even heads and of odd ones, a page's rows of a head in one";
  }
  return "it is unknown";
}

// Tokens that are multiplied with streamed weights at a time, at most.
int64_t most_streamed_rows(const graph::Graph& graph, const Schedule& schedule) {
  int64_t rows = 0;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (const graph::TunedBody* body = schedule.body(n); body && body->streamed)
      rows = std::max(rows, graph.nodes()[n].sizes.at(body->streamed->activations));
  return rows;
}

// With many tokens what is handed from stage to stage comes through the L2 as well, and later beside prefetched tiles:
// Qwen3-8B with 64 tokens takes 6.98 ms a step with 16 of them, 6.68 with none.
graph::WorkerSchedule worker_of(int64_t rows) {
  return {.copies = stream::kMaxCopies, .prefetch = rows > stream::kMaxRows ? 0 : 16, .registers = 104};
}

void check_worker(const graph::WorkerSchedule& worker) {
  MEGALITH_CHECK(worker.copies >= 1 && worker.copies <= stream::kMaxCopies,
                 "a worker has copies={} weight tiles on their way: want 1 to {}", worker.copies, stream::kMaxCopies);
  MEGALITH_CHECK(worker.prefetch >= 0 && worker.prefetch <= 64,
                 "a worker has prefetch={} weight tiles come into the L2: want 0 to 64", worker.prefetch);
  MEGALITH_CHECK(worker.registers == 96 || worker.registers == 104,
                 "a thread that computes has registers={}: want 96 or 104", worker.registers);
}

// How a node takes its streamed weights. Whether that leaves room for their ring is seen where the source is (jit).
void check_stream(const graph::Graph& graph, const Schedule& schedule, size_t n) {
  const Node& node = graph.nodes()[n];
  const graph::TunedBody* body = schedule.body(n);
  if (!body || !body->streamed) {
    MEGALITH_CHECK(schedule.nodes[n].stream.empty(), "[{}] {} streams no weights (node \"{}\"): leave out stream.{}",
                   node.op->name, body ? "the body " + body->name : "a generated body", node.name,
                   schedule.nodes[n].stream.begin()->first);
    return;
  }
  const graph::BodyQuery query = graph::body_query(graph, schedule, n);
  const std::string reason = ops::why_not_stream(*body->streamed, query);
  MEGALITH_CHECK(reason.empty(), "[{}] the body {} cannot stream its weights so (node \"{}\"): stream.{}",
                 node.op->name, body->name, node.name, reason);
  // Fragments are as registers are loaded.
  const auto is_fragments = [&](size_t i) { return schedule.layout(node.operands[i]) == Layout::fragments; };
  const bool is_few = node.sizes.at(body->streamed->activations) <= stream::kMaxRows;
  MEGALITH_CHECK(!is_few || ops::holds_activations(*body->streamed, query) || !is_fragments(0),
                 "[{}] activations in fragments are held in registers (node \"{}\"): want stream.registers=1",
                 node.op->name, node.name);
}

ops::StreamChoices choices_of(const Goal& goal, const graph::Graph& graph, size_t n,
                              const graph::StreamedWeights& streamed) {
  const Node& node = graph.nodes()[n];
  ops::StreamChoices choices = ops::stream_choices(streamed, node.sizes);
  if (!choices.contains("partners") || !goal.gpu().has_clusters) return choices;
  const bool is_int8 = graph.tensor(operand(node, streamed.operands.front().c_str())).quant_columns > 0;
  if (const int group = ops::partners_group(streamed, node.sizes, is_int8); group > 0)
    choices["group"] = group, choices["partners"] = 1;
  return choices;
}

}  // namespace

Schedule make_schedule(const graph::Graph& graph, const std::string& target) {
  // A word costs twice the bytes of what it carries, and each reader reads all of them.
  constexpr int64_t kMaxBytes = 1 << 20;
  const Goal goal = Goal::of(graph, target);
  Schedule schedule = graph::schedule_in_rows(graph, goal.bodies());
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const graph::TunedBody*& body = schedule.nodes[n].body;
    if (body && !leaves_room(goal, *body, graph::body_query(graph, graph.nodes()[n]))) body = nullptr;
    if (body && body->streamed) schedule.nodes[n].stream = choices_of(goal, graph, n, *body->streamed);
  }
  if (goal.is_gpu()) schedule.worker = worker_of(most_streamed_rows(graph, schedule));
  std::vector<bool> flags = may_carry_flags(graph, schedule);
  for (size_t t = 0; t < flags.size(); ++t)
    if (graph.tensors()[t].bytes() > kMaxBytes) flags[t] = false;
  choose(schedule, graph, Layout::head_pairs, tensors_that(graph, fits_head_pairs));
  if (goal.is_gpu()) choose(schedule, graph, Layout::int8, tensors_that(graph, fits_int8));
  choose(schedule, graph, Layout::fragments, tensors_that(graph, fits_fragments));
  choose(schedule, graph, Layout::flag_in_data, std::move(flags));
  choose_panels(schedule, graph);
  return schedule;
}

void check_schedule(const graph::Graph& graph, const Schedule& schedule) {
  MEGALITH_CHECK(schedule.layouts.size() == graph.tensors().size() && schedule.nodes.size() == graph.nodes().size(),
                 "the schedule is for {} tensors and {} nodes, but \"{}\" has {} and {}", schedule.layouts.size(),
                 schedule.nodes.size(), graph.name(), graph.tensors().size(), graph.nodes().size());
  if (schedule.target == "cuda") check_worker(schedule.worker);
  const std::vector<bool> flags = may_carry_flags(graph, schedule);
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    const std::string reason = reason_against(tensor, schedule.layouts[t], flags[t]);
    MEGALITH_CHECK(reason.empty(), "the tensor \"{}\" cannot lie in {}: {}", tensor.name,
                   graph::kLayoutNames[static_cast<size_t>(schedule.layouts[t])], reason);
  }
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const graph::TunedBody* body = schedule.body(n);
    const std::string name = body ? fmt::format("body {} of {}", body->name, body->file) : "generated body";
    if (body) {
      const bool is_own = std::ranges::any_of(node.op->bodies, [&](const auto& own) { return &own == body; });
      MEGALITH_CHECK(is_own && body->target == schedule.target, "[{}] has no {} for the target {} (node \"{}\")",
                     node.op->name, name, schedule.target, node.name);
      MEGALITH_CHECK(graph::takes_node(*body, graph, node),
                     "[{}] the {} is not for these dtypes, sizes and tensors (node \"{}\")", node.op->name, name,
                     node.name);
    }
    check_stream(graph, schedule, n);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Layout layout = schedule.layout(node.operands[i]);
      MEGALITH_CHECK(graph::takes_layout(body, node, i, layout),
                     "[{}] the {} does not take \"{}\" in {}, as the tensor \"{}\" lies (node \"{}\")", node.op->name,
                     name, node.op->operands[i].name, graph::kLayoutNames[static_cast<size_t>(layout)],
                     graph.tensor(node.operands[i]).name, node.name);
    }
  }
}

graph::LoweredGraph lower(const graph::Graph& graph, const std::string& target) {
  return graph::lower(graph, make_schedule(graph, target));
}

}  // namespace megalith::optimize
