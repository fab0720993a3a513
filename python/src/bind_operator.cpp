#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/engine/operator_bench.h"
#include "megalith/engine/operator_check.h"
#include "megalith/graph/declare.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/lower.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/task/partition.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using graph::Operand;
using graph::Operator;
using graph::Registry;

namespace {

// Megalith's own: those of megalith/ops, and those that the layers of this package are made of, which are declared while
// it is imported, before anybody can ask for a copy.
std::shared_ptr<Registry> own_registry() {
  static const auto* registry = new std::shared_ptr<Registry>(std::make_shared<Registry>(*ops::builtin()));
  return *registry;
}

}  // namespace

std::shared_ptr<Registry> shared_registry() {
  static const auto* registry = new std::shared_ptr<Registry>(std::make_shared<Registry>(*own_registry()));
  return *registry;
}

namespace {

const char* role_name(loop::Role role) {
  return role == loop::Role::input ? "input" : role == loop::Role::output ? "output" : "inout";
}

// Whether some body wants to lay it out before anything runs.
bool is_laid_out(const Operator& op, const Operand& operand) {
  auto has = [&](const auto& weights) {
    return weights && std::ranges::find(weights->operands, operand.name) != weights->operands.end();
  };
  return std::ranges::any_of(op.bodies,
                             [&](const graph::TunedBody& body) { return has(body.streamed) || has(body.packed); });
}

using Bodies = std::vector<std::tuple<std::string, std::string, int64_t>>;  // target, text, bytes of shared memory
using Names = std::vector<std::string>;
using Sizes = std::map<std::string, int64_t>;

const Operator& declare(Registry& registry, const std::string& name, const std::string& doc, const std::string& text,
                        const std::vector<std::pair<std::string, int64_t>>& tasks, bool one_task,
                        std::map<std::string, std::string> index, const std::optional<Names>& exact,
                        std::vector<Sizes> tests, bool any_sizes, const Bodies& bodies) {
  // Layers find theirs by name: a script must not put another in its place. The package itself may, when it is reloaded.
  const bool is_own = &registry == own_registry().get();
  MEGALITH_CHECK(!(is_own ? ops::builtin() : own_registry())->has(name),
                 "there is an operator \"{}\" of Megalith's own: take another name", name);
  graph::Declaration declaration{.name = name,
                                 .doc = doc,
                                 .text = text,
                                 .one_task = one_task,
                                 .index = std::move(index),
                                 .tests = std::move(tests),
                                 .any_sizes = any_sizes,
                                 .exact = exact,
                                 .checks_tests = !is_own};
  for (const auto& [iname, multiple] : tasks) declaration.axes.push_back({iname, multiple});
  for (const auto& [target, source, shared_bytes] : bodies)
    declaration.bodies.push_back({target, source, shared_bytes});
  return registry.replace(graph::declare(declaration));
}

// tensor name, dtype, dims
using TensorLike = std::tuple<std::string, std::string, std::vector<int64_t>>;

// What a node of these tensors would be, without a graph that it could leave in halves.
std::map<std::string, int64_t> extents(const Operator& op, const std::string& node,
                                       const std::map<std::string, TensorLike>& tensors, const Sizes& sizes,
                                       const std::map<std::string, double>& attributes) {
  auto registry = std::make_shared<Registry>();
  registry->add(op);
  graph::Graph graph(registry, op.name);
  std::vector<graph::TensorId> inputs;
  graph::NodeOptions options{.sizes = sizes, .attributes = attributes};
  for (const Operand& operand : op.operands) {
    const auto found = tensors.find(operand.name);
    MEGALITH_CHECK(found != tensors.end(), "[{}] there is no tensor for \"{}\" in tensors (node \"{}\")", op.name,
                   operand.name, node);
    const auto& [name, dtype, dims] = found->second;
    const graph::TensorId id =
        graph.has(name) ? graph.find(name)
                        : graph.state(name, dtype_parse(dtype), std::vector<graph::Dim>(dims.begin(), dims.end()));
    if (operand.role == loop::Role::output)
      options.outputs[operand.name] = id;
    else
      inputs.push_back(id);
  }
  graph.add(op.name, node, inputs, options);
  const graph::LoweredKernel kernel = optimize::lower(graph, "cpu").kernels.at(0);
  const std::vector<int64_t> values = task::axis_extents(kernel, kernel.binding);
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < values.size(); ++i) result[kernel.tiled[i]] = values[i];
  return result;
}

std::vector<engine::OperatorCheck> check(const Operator& op, const std::optional<std::string>& target) {
  const Unlocked unlocked;
  std::vector<std::string> targets = {"cpu"};
  if (target) {
    targets = {*target};
  } else {
    try {
      if (!jit::cuda_devices().empty()) targets.emplace_back("cuda");
    } catch (const SystemError&) {}  // no driver, so no GPU
  }
  std::vector<engine::OperatorCheck> checks;
  for (const std::string& one : targets) checks.push_back(engine::check_operator(op, one));
  return checks;
}

// An operator's speed, with the limits of the same run.
struct Timing {
  engine::OperatorTiming timing;
  engine::MachineLimits limits;
};

std::vector<Timing> bench(const Operator& op, const std::vector<Sizes>& shapes, const std::string& target, int runs,
                          int num_workers, const std::string& dtype) {
  MEGALITH_CHECK(runs >= 1, "[bench] runs is {}, want 1 or more", runs);
  const engine::OperatorBench options{target, num_workers, runs, dtype_parse(dtype)};
  const Unlocked unlocked;
  const engine::OperatorBenchResult result =
      engine::bench_operator(op, shapes.empty() ? engine::bench_shapes(op) : shapes, options);
  std::vector<Timing> timings;
  for (const engine::OperatorTiming& timing : result.timings) timings.push_back({timing, result.limits});
  return timings;
}

void bind_timing(nb::module_& module) {
  nb::class_<Timing>(module, "OperatorTiming", "How fast an operator ran by itself, and what would have been possible.")
      .def_prop_ro("sizes", [](const Timing& t) { return t.timing.sizes; })
      .def_prop_ro(
          "seconds", [](const Timing& t) { return t.timing.median_seconds(); }, "The median over the runs.")
      .def_prop_ro(
          "samples", [](const Timing& t) { return t.timing.seconds; }, "Seconds, of each run.")
      .def_prop_ro(
          "gbs", [](const Timing& t) { return t.timing.gigabytes_per_second(); }, "GB/s of what must move at least.")
      .def_prop_ro(
          "read_share", [](const Timing& t) { return t.timing.gigabytes_per_second() / t.limits.read_gbs; },
          "Of what as many workers read of a large buffer.")
      .def_prop_ro("gflops", [](const Timing& t) { return t.timing.gflops(); })
      .def_prop_ro(
          "multiply_share", [](const Timing& t) { return t.timing.gflops() / t.limits.multiply_gflops; },
          "Of what as many workers multiply in registers.")
      .def("__repr__", [](const Timing& t) {
        std::vector<std::string> sizes;
        for (const auto& [name, size] : t.timing.sizes) sizes.push_back(fmt::format("{}={}", name, size));
        return fmt::format(
            "<{}: {:.2f} us, {:.2f} GB/s ({:.0f} % of reading), {:.1f} GFLOP/s ({:.0f} % of multiplying)>",
            fmt::join(sizes, " "), t.timing.median_seconds() * 1e6, t.timing.gigabytes_per_second(),
            100 * t.timing.gigabytes_per_second() / t.limits.read_gbs, t.timing.gflops(),
            100 * t.timing.gflops() / t.limits.multiply_gflops);
      });
}

void bind_operators(nb::module_& module) {
  nb::class_<Operand>(module, "Operand", "One tensor of an operator's signature.")
      .def_ro("name", &Operand::name)
      .def_prop_ro(
          "role", [](const Operand& o) { return role_name(o.role); }, "\"input\", \"inout\" or \"output\".")
      .def_ro("shape", &Operand::shape, "Its dimensions, as products of named sizes.")
      .def_prop_ro(
          "dtype", [](const Operand& o) { return std::string(dtype_name(o.dtype)); },
          "Of floats the one that outputs have unless the node says otherwise: any other will do.")
      .def_ro("exact_dtype", &Operand::exact_dtype, "No other dtype will do.")
      .def("__repr__", [](const Operand& o) {
        return fmt::format("<{} {}: {}[{}]>", role_name(o.role), o.name, dtype_name(o.dtype), fmt::join(o.shape, ", "));
      });

  nb::class_<engine::OperatorCheck>(module, "OperatorCheck", "What an operator was found right on.")
      .def_ro("op", &engine::OperatorCheck::op)
      .def_ro("target", &engine::OperatorCheck::target)
      .def_ro("cases", &engine::OperatorCheck::cases, "One for each dtype and sizes.")
      .def_ro("has_body", &engine::OperatorCheck::has_body, "A body that came with it ran, and not the generated code.")
      .def_ro("ran", &engine::OperatorCheck::ran, "False: it was compiled for a GPU, and there is none.")
      .def("__repr__", [](const engine::OperatorCheck& c) {
        return fmt::format("<{} on {}: {} cases {}, {}>", c.op, c.target, c.cases.size(),
                           c.ran ? "are right" : "compile", c.has_body ? "its own body" : "generated code");
      });

  nb::class_<Operator>(module, "Operator", "A tensor function: signature, meaning, how it is cut into tasks.")
      .def_ro("name", &Operator::name)
      .def_ro("doc", &Operator::doc)
      .def_prop_ro(
          "operands", [](const Operator& op) { return op.operands; }, "All operands, in order.")
      .def_prop_ro(
          "inputs",
          [](const Operator& op) {
            std::vector<std::string> names;
            for (const Operand& operand : op.operands)
              if (operand.role != loop::Role::output) names.push_back(operand.name);
            return names;
          },
          "Names of the operands that a node is given, in order.")
      .def_prop_ro(
          "outputs",
          [](const Operator& op) {
            std::vector<std::string> names;
            for (const Operand& operand : op.operands)
              if (operand.role == loop::Role::output) names.push_back(operand.name);
            return names;
          },
          "Names of the operands that a node makes, in order.")
      .def_prop_ro(
          "shapes",
          [](const Operator& op) {
            std::map<std::string, std::vector<std::string>> shapes;
            for (const Operand& operand : op.operands) shapes[operand.name] = operand.shape;
            return shapes;
          },
          "Operand -> its dimensions, as products of named sizes.")
      .def_prop_ro(
          "laid_out",
          [](const Operator& op) {
            std::vector<std::string> names;
            for (const Operand& operand : op.operands)
              if (is_laid_out(op, operand)) names.push_back(operand.name);
            return names;
          },
          "Names of the weights that bodies lay out when a kernel is made.")
      .def_prop_ro(
          "attributes",
          [](const Operator& op) {
            std::map<std::string, double> defaults;
            for (const loop::Attribute& attribute : op.attributes) defaults[attribute.name] = attribute.value;
            return defaults;
          },
          "Attribute -> its default.")
      .def_ro("sizes", &Operator::extra_sizes, "Sizes that no shape tells: a node gives them.")
      .def_prop_ro(
          "axes",
          [](const Operator& op) {
            std::vector<std::string> names;
            for (const graph::TaskAxis& axis : op.axes) names.push_back(axis.iname);
            return names;
          },
          "The loop variables along which tasks are cut.")
      .def_ro("tests", &Operator::tests, "The sizes that it is tested on.")
      .def_prop_ro("bench_shapes", &engine::bench_shapes, "The sizes that it is measured on, if bench() is given none.")
      .def_ro("loops", &Operator::loops, "The loop kernel's text.")
      .def("extents", &extents, "node"_a, "tensors"_a, "sizes"_a, "attributes"_a,
           "Task axis -> how many values it takes, for tensors of (name, dtype, dims) by operand. UserError if they do "
           "not fit.")
      .def("check", &check, "target"_a = nb::none(),
           "Runs it through the whole compilation, on every declared and some odd sizes, in every float dtype, on\n"
           "random inputs, and compares with the interpreter of its loop kernel in float64. `target`: \"cpu\", "
           "\"cuda\",\n"
           "or \"cuda:sm_90a\", which only compiles where there is no GPU; left out, the CPU, and the GPU if there is "
           "one.\n"
           "UserError naming the element that is wrong, what was found and what was wanted.")
      .def("bench", &bench, "shapes"_a = std::vector<Sizes>{}, nb::kw_only(), "target"_a = "cpu", "runs"_a = 100,
           "num_workers"_a = 0, "dtype"_a = "bf16",
           "How fast it runs by itself, as `megalith bench kernel` says of those in C++: on `shapes`, or on those of\n"
           "`bench_shapes`, which follow from its tests. UserError if sizes do not fit.")
      .def("__str__", &graph::definition)
      .def("__repr__", [](const Operator& op) { return fmt::format("<operator {}: {}>", op.name, op.doc); });
}

}  // namespace

void bind_operator(nb::module_& module) {
  bind_timing(module);
  bind_operators(module);

  nb::class_<Registry>(module, "Registry", "The operators that a graph may use, by name.")
      .def_static(
          "builtin", &own_registry,
          "The operators that come with Megalith: those in C++, and those that this package's layers are made of.")
      .def_static("shared", &shared_registry,
                  "The one that graphs have which name none: those operators, and all that were declared.")
      .def_static(
          "extended", [] { return std::make_shared<Registry>(*own_registry()); },
          "A registry of its own, with Megalith's operators to begin with.")
      .def("names", &Registry::names)
      .def("get", &Registry::get, "name"_a, nb::rv_policy::reference_internal,
           "The operator of that name; UserError naming near ones if there is none.")
      .def("declare", &declare, "name"_a, "doc"_a, "text"_a, nb::kw_only(), "tasks"_a, "one_task"_a, "index"_a,
           "exact"_a, "tests"_a, "any_sizes"_a, "bodies"_a, nb::rv_policy::reference_internal,
           "Adds an operator; see megalith.operator. One that was declared under that name before is replaced.")
      .def("__contains__", &Registry::has, "name"_a)
      .def("__len__", [](const Registry& registry) { return registry.names().size(); })
      .def("__repr__",
           [](const Registry& registry) { return fmt::format("<registry of {} operators>", registry.names().size()); });
}

}  // namespace megalith::python
