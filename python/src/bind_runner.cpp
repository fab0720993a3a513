#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "megalith/engine/graph_runner.h"
#include "megalith/engine/graph_service.h"
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

// (whether it is the end, slot, token, what MailRecord::reason says)
using MailTuple = std::tuple<bool, uint32_t, int, uint32_t>;

std::vector<MailTuple> take_mail(engine::GraphService& service, int64_t longest_ms) {
  std::vector<MailTuple> mail;
  for (const runtime::MailRecord& record : service.take(std::chrono::milliseconds(longest_ms)))
    mail.emplace_back(record.kind == static_cast<uint32_t>(runtime::MailKind::finished), record.request, record.token,
                      record.reason);
  return mail;
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
      .def("cancel", &GraphRunner::cancel, "Ends a run in progress.")
      .def_prop_ro("bytes_held", &GraphRunner::bytes_held);
  nb::class_<engine::GraphService>(module, "GraphService", "Requests that come while a GraphRunner runs.")
      .def(nb::init<GraphRunner&>(), "runner"_a, nb::keep_alive<1, 2>())
      .def("open", &engine::GraphService::open, nb::call_guard<Unlocked>(), "Readies the mailbox for the next run.")
      .def(
          "begin",
          [](engine::GraphService& service, int64_t slot, const std::vector<int32_t>& prompt, int64_t step,
             int64_t limit) {
            const Unlocked unlocked;
            service.begin(slot, prompt, step, limit);
          },
          "slot"_a, "prompt"_a, "step"_a, "limit"_a, "A request begins in a slot that nobody has.")
      .def("cancel", &engine::GraphService::cancel, "slot"_a, nb::call_guard<Unlocked>(), "Ends it.")
      .def("end", &engine::GraphService::end, nb::call_guard<Unlocked>(), "The run ends when all requests have.")
      .def("take", &take_mail, "longest_ms"_a, nb::call_guard<Unlocked>(),
           "What the kernel has told: (whether it is the end, slot, token, reason) each.");
}

}  // namespace megalith::python
