#include "megalith/engine/operator_check.h"

#include <algorithm>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/engine/operator_cases.h"
#include "megalith/graph/interpret.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/view_error.h"

namespace megalith::engine {

namespace {

// The operator by itself, with views that look at every access.
std::shared_ptr<const graph::Registry> watched_registry(graph::Operator op) {
  for (graph::TunedBody& body : op.bodies) body.watched = !body.text.empty() && body.target == "cpu";
  auto registry = std::make_shared<graph::Registry>();
  registry->add(std::move(op));
  return registry;
}

bool has_gpu() {
  try {
    return !jit::cuda_devices().empty();
  } catch (const SystemError&) { return false; }
}

jit::CompiledKernel compile(const graph::Graph& graph, const OperatorCheck& check) {
  try {
    return jit::compile(graph, {.target = check.target, .num_workers = 2});
  } catch (const SystemError& error) {
    if (!check.has_body || std::string_view(error.what()).find("the body of " + check.op) == std::string_view::npos)
      throw;
    throw UserError(fmt::format("[{}] the body for {} does not compile: {}", check.op, jit::target_family(check.target),
                                error.what()));
  }
}

void check_views(const jit::CompiledKernel& kernel, const OperatorCheck& check) {
  constexpr const char* kSymbol = "megalith_view_error";
  if (!kernel.build.library || !kernel.build.library.has_symbol(kSymbol)) return;
  auto* const error = static_cast<runtime::ViewError*>(kernel.build.library.symbol(kSymbol));
  if (error->view == nullptr) return;
  const runtime::ViewError first = *error;
  *error = {};  // the library may be loaded again
  throw UserError(fmt::format(
      "[{}] the body for cpu touches {} at {} along dimension {}, but its task may touch [{}, {}) there: what "
      "the loop kernel does not say, nobody orders",
      check.op, first.view, first.index, first.dimension, first.begin, first.end));
}

}  // namespace

OperatorCheck check_operator(const graph::Operator& op, const std::string& target) {
  MEGALITH_CHECK(!op.reference, "[{}] its loop kernel says only what it touches: there is nothing to check it against",
                 op.name);
  OperatorCheck result{op.name, target};
  const std::string family = jit::target_family(target);
  result.has_body = std::ranges::any_of(
      op.bodies, [&](const graph::TunedBody& body) { return body.target == family && !body.text.empty(); });
  std::optional<OperatorCases> all;
  try {
    all.emplace(watched_registry(op), std::vector{op.name});
    optimize::lower(all->graph, family);
  } catch (const UserError& error) {
    if (!op.any_sizes) throw;
    throw UserError(
        fmt::format("{}. The operator is tested on sizes of 1 and on odd ones as well: if it is not made for them, say "
                    "so with any_sizes=False",
                    error.what()));
  }
  for (const OperatorCase& test : all->cases) result.cases.push_back(test.node);

  const jit::CompiledKernel kernel = compile(all->graph, result);
  result.ran = family == "cpu" || has_gpu();
  if (!result.ran) return result;
  GraphMemory memory(all->graph);
  fill_operator_cases(*all, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(all->graph, optimize::lower(all->graph, family), expected, 1);
  std::map<std::string, TensorMemory> places;
  for (const auto& [name, address] : memory.addresses()) places[name] = {address};
  GraphRunner(all->graph, kernel, places).run();
  check_views(kernel, result);
  const bool is_cpu = family == "cpu";
  const std::string wrong =
      wrong_operators(*all, memory, expected, is_cpu ? cpu_slack : gpu_slack, is_cpu ? 1 : kGpuRoundings, family);
  if (wrong.empty()) return result;
  const std::string first = wrong.substr(0, wrong.find('\n'));
  if (result.has_body) throw UserError(fmt::format("[{}] the body for {} is wrong: {}", op.name, family, first));
  throw InternalError(
      fmt::format("[{}] the code for {} does not do what its loop kernel says: {}", op.name, family, first));
}

}  // namespace megalith::engine
