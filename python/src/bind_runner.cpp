#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "megalith/engine/graph_runner.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using engine::GraphRunner;

namespace {

// name -> (address, on a GPU?, rows, which GPU or -1)
using Memory = std::map<std::string, std::tuple<uintptr_t, bool, int64_t, int>>;

void make_runner(GraphRunner* self, nb::handle graph_like, nb::handle kernel_like, nb::handle memory_like) {
  const char* const where = "GraphRunner";
  const auto& graph = *argument<const graph::Graph*>(where, "graph", graph_like, "a Graph");
  const auto& kernel = *argument<const jit::CompiledKernel*>(where, "kernel", kernel_like, "what compile() gave");
  const auto memory = argument<Memory>(where, "memory", memory_like,
                                       "a dict from names to (address, whether it is on a GPU, rows, which GPU or -1)");
  std::map<std::string, engine::TensorMemory> places;
  for (const auto& [name, place] : memory) {
    const auto& [address, on_device, rows, device] = place;
    places[name] = {reinterpret_cast<void*>(address), on_device, rows,
                    device};  // NOLINT: an address came through Python
  }
  const Unlocked unlocked;
  new (self) GraphRunner(graph, kernel, std::move(places));
}

}  // namespace

void bind_runner(nb::module_& module) {
  nb::class_<GraphRunner>(module, "GraphRunner", "A compiled graph, bound to memory of somebody else's.")
      .def("__init__", &make_runner, "graph"_a.none(), "kernel"_a.none(), "memory"_a.none(), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(),
           nb::sig("def __init__(self, graph: Graph, kernel: CompiledKernel, memory: collections.abc.Mapping[str, "
                   "tuple[int, bool, int, int]]) -> None"))
      .def("run", &GraphRunner::run, "iterations"_a = 1, nb::call_guard<Unlocked>(),
           "Runs so many iterations in one launch; a second thread waits for its turn.")
      .def(
          "read_activation",
          [](GraphRunner& runner, graph::TensorId tensor, uintptr_t to) {
            runner.read_activation(tensor, reinterpret_cast<void*>(to));  // NOLINT: an address came through Python
          },
          "tensor"_a, "address"_a, nb::call_guard<Unlocked>(),
          "Copies an activation of the last run to memory of its size.")
      .def("profile", &GraphRunner::profile, "iterations"_a,
           "From now on workers write down when each task waited, ran and ended; the newest iterations of a run are "
           "kept.")
      .def("trace", &GraphRunner::trace, nb::call_guard<Unlocked>(),
           "The last run, in Chrome's trace event format, which Perfetto opens.")
      .def("page", &GraphRunner::page, nb::call_guard<Unlocked>(), "The last run, as an HTML page.")
      .def_prop_ro("bytes_held", &GraphRunner::bytes_held);
}

}  // namespace megalith::python
