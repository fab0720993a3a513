#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/optimize/optimize.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using jit::CompiledKernel;

void bind_jit(nb::module_& module) {
  module.def(
      "optimize",
      [](const graph::Graph& graph, const std::string& target) {
        const graph::Graph copy(graph);  // another thread may add to it meanwhile
        const Unlocked unlocked;
        return optimize::optimize(copy, target);
      },
      "graph"_a, nb::kw_only(), "target"_a = "cpu",
      "The graph as the target runs it best: what neighbours compute may be one node, and activations between them "
      "are\n"
      "gone. Ids of tensors change, names of those that stay do not. MEGALITH_DISABLE names rules to leave out.");

  module.def(
      "default_target",
      [] {
        const Unlocked unlocked;
        return jit::default_target();
      },
      "What a model runs on if nobody says it: \"cuda\" if this machine has a GPU that kernels can be made for, else "
      "\"cpu\".");

  nb::class_<jit::CompileReport>(module, "CompileReport", "Which stages ran, how long each took, what the cache had.")
      .def_ro("kernel", &jit::CompileReport::kernel)
      .def_ro("total_ms", &jit::CompileReport::total_ms)
      .def_ro("cache_hit", &jit::CompileReport::cache_hit)
      .def_prop_ro("stages",
                   [](const jit::CompileReport& report) {
                     std::vector<std::string> names;
                     for (const jit::StageReport& stage : report.stages) names.push_back(stage.name);
                     return names;
                   })
      .def_prop_ro(
          "times",
          [](const jit::CompileReport& report) {
            std::vector<std::tuple<std::string, double, std::string>> times;
            for (const jit::StageReport& stage : report.stages)
              times.emplace_back(stage.name, stage.ms, jit::stage_from_name(stage.from));
            return times;
          },
          "(stage, milliseconds, \"computed\", \"cache\" or \"override\") of each.")
      .def("__str__", &jit::CompileReport::table)
      .def("__repr__", [](const jit::CompileReport& report) {
        return fmt::format("<compile report of {}: {} stages, {:.0f} ms>", report.kernel, report.stages.size(),
                           report.total_ms);
      });

  nb::class_<CompiledKernel>(module, "CompiledKernel", "A persistent kernel, and all that there is to look at of it.")
      .def_prop_ro(
          "tasks", [](const CompiledKernel& kernel) -> const task::TaskGraph& { return kernel.tasks; },
          nb::rv_policy::reference_internal)
      .def_ro("source", &CompiledKernel::source, "The generated source: C++, or CUDA C++.")
      .def_prop_ro(
          "report", [](const CompiledKernel& kernel) -> const jit::CompileReport& { return kernel.report; },
          nb::rv_policy::reference_internal)
      .def_ro("scratch_bytes", &CompiledKernel::scratch_bytes, "Bytes of scratch memory per worker.")
      .def_prop_ro("is_cuda", [](const CompiledKernel& kernel) { return !kernel.cuda.architecture.empty(); })
      .def_prop_ro(
          "directory",
          [](const CompiledKernel& kernel) {
            return kernel.cuda.architecture.empty() ? kernel.build.directory : kernel.cuda.directory;
          },
          "The folder of the cache with the source, the machine code and the compiler's command; \"\" if none.");

  module.def(
      "compile",
      [](const graph::Graph& graph, const std::string& target, int num_workers, bool plan_only, bool reuse_arena) {
        const graph::Graph copy(graph);  // another thread may add to it meanwhile
        const Unlocked unlocked;
        return jit::compile(copy, {.target = target,
                                   .num_workers = num_workers,
                                   .plan_only = plan_only,
                                   .reuse_arena = reuse_arena,
                                   .pipeline = jit::PipelineOptions::from_environment()});
      },
      "graph"_a, nb::kw_only(), "target"_a = "cpu", "num_workers"_a = 1, "plan_only"_a = false, "reuse_arena"_a = true,
      "Compiles a graph: proves its task graph, writes source, calls the compiler. With `plan_only` it stops before\n"
      "the compiler. UserError for a wrong graph or option, SystemError if the compiler fails.");
}

}  // namespace megalith::python
