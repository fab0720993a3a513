#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "megalith/base/log.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_runner.h"
#include "python/src/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using engine::Engine;
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
  nb::gil_scoped_release release;
  new (self) GraphRunner(graph, kernel, std::move(places));
}

const char* reason_name(batch::FinishReason reason) {
  switch (reason) {
    case batch::kNotFinished: return "none";
    case batch::kStopToken: return "stop";
    case batch::kLengthLimit: return "length";
  }
  return "none";
}

void bind_runner(nb::module_& module) {
  nb::class_<GraphRunner>(module, "GraphRunner", "A compiled graph, bound to memory of somebody else's.")
      .def("__init__", &make_runner, "graph"_a.none(), "kernel"_a.none(), "memory"_a.none(), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>(),
           nb::sig("def __init__(self, graph: Graph, kernel: CompiledKernel, memory: collections.abc.Mapping[str, "
                   "tuple[int, bool, int, int]]) -> None"))
      .def("run", &GraphRunner::run, "iterations"_a = 1, nb::call_guard<nb::gil_scoped_release>(),
           "Runs so many iterations in one launch; a second thread waits for its turn.")
      .def(
          "read_activation",
          [](GraphRunner& runner, graph::TensorId tensor, uintptr_t to) {
            runner.read_activation(tensor, reinterpret_cast<void*>(to));  // NOLINT: an address came through Python
          },
          "tensor"_a, "address"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Copies an activation of the last run to memory of its size.")
      .def("profile", &GraphRunner::profile, "iterations"_a,
           "From now on workers write down when each task waited, ran and ended; the newest iterations of a run are "
           "kept.")
      .def("trace", &GraphRunner::trace, nb::call_guard<nb::gil_scoped_release>(),
           "The last run, in Chrome's trace event format, which Perfetto opens.")
      .def("page", &GraphRunner::page, nb::call_guard<nb::gil_scoped_release>(), "The last run, as an HTML page.")
      .def_prop_ro("bytes_held", &GraphRunner::bytes_held);
}

void bind_requests(nb::module_& module) {
  nb::class_<engine::Sampling>(module, "Sampling",
                               "How tokens are chosen; temperature 0: greedy, the token with the largest logit.")
      .def(nb::init<>())
      .def_rw("temperature", &engine::Sampling::temperature)
      .def_rw("top_p", &engine::Sampling::top_p)
      .def_rw("min_p", &engine::Sampling::min_p)
      .def_rw("top_k", &engine::Sampling::top_k)
      .def_rw("repetition_penalty", &engine::Sampling::repetition_penalty)
      .def_rw("presence_penalty", &engine::Sampling::presence_penalty)
      .def_rw("frequency_penalty", &engine::Sampling::frequency_penalty)
      .def_rw("seed", &engine::Sampling::seed);
  nb::class_<engine::Request>(module, "Request", "A prompt, and what is wanted of it.")
      .def(nb::init<>())
      .def_rw("prompt", &engine::Request::prompt)
      .def_rw("max_new_tokens", &engine::Request::max_new_tokens)
      .def_rw("sampling", &engine::Request::sampling)
      .def_rw("ignore_stop_tokens", &engine::Request::ignore_stop_tokens);
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_runner(module);
  bind_requests(module);

  nb::class_<Engine>(module, "Engine", "A model's folder, compiled and loaded.")
      .def(
          "__init__",
          [](Engine* self, const std::string& folder, const std::string& target, int num_workers, int64_t max_seq_len,
             int64_t max_batch, int64_t max_batched_tokens, int64_t page_size, int64_t quant_columns, bool dummy) {
            engine::EngineOptions options;
            options.target = target;
            options.num_workers = num_workers;
            options.dummy_weights = dummy;
            options.decoder.max_seq_len = max_seq_len;
            options.decoder.max_requests = max_batch;
            options.decoder.max_rows = max_batched_tokens;
            options.decoder.page_size = page_size;
            options.decoder.quant_columns = quant_columns;
            nb::gil_scoped_release release;
            new (self) Engine(folder, options);
          },
          "folder"_a, nb::kw_only(), "target"_a, "num_workers"_a, "max_seq_len"_a, "max_batch"_a,
          "max_batched_tokens"_a, "page_size"_a, "quant_columns"_a, "dummy"_a)
      .def(
          "generate",
          [](Engine& engine, const std::vector<engine::Request>& requests,
             const std::function<void(int, int, bool, const char*)>& on_token) {
            nb::gil_scoped_release release;
            const engine::Generation generation = engine.generate(requests, [&](const engine::TokenEvent& event) {
              const nb::gil_scoped_acquire acquire;
              on_token(event.request, event.token, event.finished, reason_name(event.reason));
            });
            const std::string trouble = engine.logits_trouble(generation);
            if (!trouble.empty()) log_warn("[generate] {}", trouble);
          },
          "requests"_a, "on_token"_a,
          "Runs all requests as one batch; calls on_token(request, token, finished, reason) as tokens are made.")
      .def("cancel", &Engine::cancel)
      .def(
          "read_logits",
          [](const Engine& engine, int64_t samples, uintptr_t to) {
            const auto bytes = static_cast<size_t>(samples * engine.config().vocab_size) * sizeof(float);
            std::memcpy(reinterpret_cast<void*>(to), engine.logits(), bytes);  // NOLINT: an address from Python
          },
          "samples"_a, "address"_a, "Copies f32 [samples, vocab_size] of the last iteration.")
      .def_prop_ro("graph", &Engine::graph, nb::rv_policy::reference_internal)
      .def_prop_ro("kernel", &Engine::kernel, nb::rv_policy::reference_internal)
      .def_prop_ro("num_workers", &Engine::num_workers)
      .def_prop_ro("vocab_size", [](const Engine& engine) { return engine.config().vocab_size; })
      .def_prop_ro("max_batch", [](const Engine& engine) { return engine.decoder_options().max_requests; })
      .def_prop_ro("max_seq_len", [](const Engine& engine) { return engine.decoder_options().max_seq_len; })
      .def_prop_ro("num_parameters", &Engine::num_parameters)
      .def_prop_ro("weight_bytes", &Engine::weight_bytes);
}

}  // namespace megalith::python
