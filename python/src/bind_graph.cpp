#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/graph_file.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using graph::Graph;
using graph::Registry;
using graph::TensorId;

namespace {

// A dimension is a size, or a largest size with the name of the dynamic size that it follows.
using DimLike = std::variant<int64_t, std::pair<int64_t, std::string>>;

std::vector<graph::Dim> dims_of(const std::vector<DimLike>& shape) {
  std::vector<graph::Dim> dims;
  for (const DimLike& dim : shape) {
    if (const auto* size = std::get_if<int64_t>(&dim)) {
      dims.emplace_back(*size);
    } else {
      const auto& [largest, dynamic] = std::get<1>(dim);
      dims.emplace_back(largest, dynamic);
    }
  }
  return dims;
}

std::vector<int64_t> sizes_of(const graph::Tensor& tensor) {
  std::vector<int64_t> sizes;
  for (const graph::Dim& dim : tensor.shape) sizes.push_back(dim.size);
  return sizes;
}

const char* kind_name(graph::TensorKind kind) {
  switch (kind) {
    case graph::TensorKind::constant: return "constant";
    case graph::TensorKind::state: return "state";
    case graph::TensorKind::activation: return "activation";
  }
  return "?";
}

std::vector<TensorId> add(Graph& graph, const std::string& op, const std::string& node,
                          const std::vector<TensorId>& inputs, std::map<std::string, int64_t> sizes,
                          std::map<std::string, double> attributes, std::map<std::string, int64_t> tile,
                          std::map<std::string, int64_t> pieces, std::map<std::string, TensorId> outputs,
                          const std::map<std::string, std::string>& dtypes) {
  graph::NodeOptions options{std::move(sizes), std::move(attributes), std::move(tile), std::move(outputs), {},
                             std::move(pieces)};
  for (const auto& [output, dtype] : dtypes) options.dtypes[output] = dtype_parse(dtype);
  return graph.add(op, node, inputs, options);
}

std::vector<TensorId> insert(Graph& graph, size_t at, const std::string& op, const std::string& node,
                             const std::vector<TensorId>& inputs, std::map<std::string, int64_t> sizes,
                             std::map<std::string, double> attributes, std::map<std::string, TensorId> outputs) {
  MEGALITH_CHECK(at <= graph.nodes().size(), "[insert] at is {}, want 0 to {}: the number of nodes", at,
                 graph.nodes().size());
  graph::NodeOptions options{std::move(sizes), std::move(attributes), {}, std::move(outputs), {}};
  return graph.insert(at, op, node, inputs, options);
}

std::vector<std::string> users(const Graph& graph, TensorId tensor) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes())
    if (std::ranges::find(node.operands, tensor) != node.operands.end()) names.push_back(node.name);
  return names;
}

std::string to_file(const Graph& graph, std::map<std::string, std::vector<int64_t>> values) {
  return graph::to_file({graph, std::move(values)}, *ops::builtin());
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<graph::Tensor>(module, "GraphTensor", "A tensor of a graph: name, dtype, shape, and whose memory it is.")
      .def_ro("name", &graph::Tensor::name)
      .def_prop_ro("dtype", [](const graph::Tensor& t) { return std::string(dtype_name(t.dtype)); })
      .def_prop_ro("shape", [](const graph::Tensor& t) { return nb::tuple(nb::cast(sizes_of(t))); })
      .def_prop_ro(
          "kind", [](const graph::Tensor& t) { return kind_name(t.kind); },
          "\"constant\", \"state\" or \"activation\".")
      .def_ro("parts", &graph::Tensor::parts, "Of a stacked constant: the tensors whose rows it has.")
      .def_prop_ro("nbytes", &graph::Tensor::bytes)
      .def("__repr__", [](const graph::Tensor& t) {
        return fmt::format("<{} {}: {}[{}]>", kind_name(t.kind), t.name, dtype_name(t.dtype),
                           fmt::join(sizes_of(t), ", "));
      });

  nb::class_<Graph>(module, "Graph", "Operators over named tensors, in program order. str() prints it.")
      .def(
          "__init__",
          [](Graph* self, nb::handle name, nb::handle registry) {
            auto operators = argument<std::shared_ptr<Registry>>("Graph", "registry", registry, "a Registry or None");
            const auto text = argument<std::string>("Graph", "name", name, "a string");
            new (self) Graph(operators ? std::move(operators) : shared_registry(), text);
          },
          "name"_a.none() = "graph", nb::kw_only(), "registry"_a = nb::none(),
          nb::sig("def __init__(self, name: str = 'graph', *, registry: Registry | None = None) -> None"),
          "`registry`: the operators that it may use; left out, those of Megalith and all that were declared.")
      .def(
          "constant",
          [](Graph& g, const std::string& name, const std::string& dtype, const std::vector<DimLike>& shape) {
            return g.constant(name, dtype_parse(dtype), dims_of(shape));
          },
          "name"_a, "dtype"_a, "shape"_a, "A weight: never written, bound from outside. The id of the tensor.")
      .def(
          "state",
          [](Graph& g, const std::string& name, const std::string& dtype, const std::vector<DimLike>& shape) {
            return g.state(name, dtype_parse(dtype), dims_of(shape));
          },
          "name"_a, "dtype"_a, "shape"_a, "A tensor that lives on between runs, bound from outside.")
      .def(
          "activation",
          [](Graph& g, const std::string& name, const std::string& dtype, const std::vector<DimLike>& shape) {
            return g.activation(name, dtype_parse(dtype), dims_of(shape));
          },
          "name"_a, "dtype"_a, "shape"_a, "A tensor that lives within one iteration, in memory of Megalith's.")
      .def(
          "stacked",
          [](Graph& g, const std::string& name, const std::string& dtype, const std::vector<DimLike>& shape,
             const std::vector<std::string>& parts,
             int64_t groups) { return g.stacked(name, dtype_parse(dtype), dims_of(shape), parts, groups); },
          "name"_a, "dtype"_a, "shape"_a, "parts"_a, "groups"_a = 1,
          "A constant whose rows are those of `parts`, dealt in `groups` rounds.")
      .def("make_constant", &Graph::make_constant, "tensor"_a, "Makes a constant of a state that no node writes.")
      .def("dynamic_size", &Graph::dynamic_size, "name"_a, "tensor"_a, "index"_a,
           "Names a dynamic size, whose value is that element of an i32 state.")
      .def("add", &add, "op"_a, "node"_a, "inputs"_a, nb::kw_only(), "sizes"_a = std::map<std::string, int64_t>{},
           "attributes"_a = std::map<std::string, double>{}, "tile"_a = std::map<std::string, int64_t>{},
           "pieces"_a = std::map<std::string, int64_t>{}, "outputs"_a = std::map<std::string, TensorId>{},
           "dtypes"_a = std::map<std::string, std::string>{},
           "Adds a node: the ids of its outputs. `tile`: sizes of tiles by loop variable; `pieces`: numbers of tasks\n"
           "instead, fewer where a layout does not allow as many. UserError naming node, tensor, found and wanted.")
      .def("insert", &insert, "at"_a, "op"_a, "node"_a, "inputs"_a, nb::kw_only(),
           "sizes"_a = std::map<std::string, int64_t>{}, "attributes"_a = std::map<std::string, double>{},
           "outputs"_a = std::map<std::string, TensorId>{},
           "As add(), in front of node number `at`: all nodes that write what it reads stand before that.")
      .def("erase", nb::overload_cast<const std::string&>(&Graph::erase), "node"_a,
           "Takes a node out; the tensors that it wrote stay.")
      .def("tidy", &Graph::tidy, "Takes out activations and constants that no node uses. Ids of tensors change.")
      .def("users", &users, "tensor"_a, "The names of the nodes that read or write a tensor, in order.")
      .def("set_gate", &Graph::set_gate, "node"_a, "stop"_a,
           "Makes a token loop: the next iteration begins after this node, until the i32 state `stop` is set.")
      .def("find", &Graph::find, "name"_a, "The id of the tensor of that name; UserError if there is none.")
      .def(
          "tensor", [](const Graph& g, TensorId id) { return g.tensor(id); }, "id"_a)
      .def(
          "copy", [](const Graph& g) { return Graph(g); }, "A graph of its own, to go on with.")
      .def_prop_ro("name", &Graph::name)
      .def_prop_ro("tensors", [](const Graph& g) { return g.tensors(); })
      .def_prop_ro("num_nodes", [](const Graph& g) { return g.nodes().size(); })
      .def_prop_ro("node_names",
                   [](const Graph& g) {
                     std::vector<std::string> names;
                     for (const graph::Node& node : g.nodes()) names.push_back(node.name);
                     return names;
                   })
      .def(
          "loops",
          [](const Graph& g, const std::string& target) {
            MEGALITH_CHECK(target == "cpu" || jit::is_cuda_target(target),
                           "there is no target \"{}\"; known are cpu, cuda and cuda:sm_90a and the like", target);
            const Graph copy(g);  // another thread may add to it meanwhile
            const Unlocked unlocked;
            return graph::print(copy, optimize::lower(copy, target));
          },
          "target"_a = "cpu", "The loop kernels of all nodes, as text.")
      .def(
          "to_file", &to_file, "values"_a = std::map<std::string, std::vector<int64_t>>{},
          "What str() says, and in front of it the operators that Python declares: what `megalith bench graph` reads.\n"
          "`values`: by name what states of integers hold, where it matters; others are made up there.")
      .def("__str__", [](const Graph& g) { return graph::print(g); })
      .def("__repr__", [](const Graph& g) {
        return fmt::format("<graph {}: {} tensors, {} nodes>", g.name(), g.tensors().size(), g.nodes().size());
      });
}

}  // namespace megalith::python
