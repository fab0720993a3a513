#include "tools/loops_bench.h"

#include <fmt/format.h>

#include <ctime>
#include <set>

#include "megalith/codegen/body.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/graph/lower.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/transform.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr const char* kLayer = "layer.1.";  // nodes of the second layer: the first one may differ

// Of the processor: one thread does all of it.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Each doubles one tensor: loopy's kernel that took it a minute to schedule.
std::string disjoint_nests(int64_t nests) {
  std::string text = "kernel disjoint\nassume n >= 1\n";
  for (int64_t i = 0; i < nests; ++i)
    text += fmt::format(
        "input x{0}: f32[n]\noutput y{0}: f32[n]\n{{ [q{0}] : 0 <= q{0} < n }}\ny{0}[q{0}] = 2 * x{0}[q{0}] + {0}\n",
        i);
  return text;
}

}  // namespace

int bench_loops(int64_t nests) {
  const std::string text = disjoint_nests(nests);
  double start = seconds();
  loop::Kernel kernel = loop::parse_kernel(text);
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  const double read = seconds() - start;
  start = seconds();
  // One step for all of them: what follows a step is looked at when it is done.
  std::string line = "split";
  for (int64_t i = 0; i < nests; ++i) line += fmt::format("{} q{} 128 -> q{}_o:g.0 q{}_i:l.0", i ? "," : "", i, i, i);
  const loop::Schedule schedule = loop::Schedule(kernel).then(line);
  const double scheduled = seconds() - start;
  print(fmt::format("{} loop nests: read in {:.3f} s, scheduled and checked in {:.3f} s", nests, read, scheduled));
  double all = read + scheduled;
  for (const auto& [target, name] : {std::pair(codegen::LoopTarget::cpu, "cpu"), {codegen::LoopTarget::cuda, "cuda"}}) {
    start = seconds();
    const codegen::LoopSource source = codegen::emit_loops(schedule.kernel(), target, "disjoint");
    const double emitted = seconds() - start;
    all += emitted;
    print(fmt::format(", {} source of {} bytes in {:.3f} s", name, source.text.size(), emitted));
  }
  print(fmt::format(": {:.3f} s in all\n", all));
  return kExitOk;
}

int bench_loops_of_model(const std::string& folder) {
  ModelOptions options;
  options.positional = folder;
  options.target = "cpu";
  const ModelGraph model = model_graph(options);
  graph::Schedule schedule = graph::schedule_in_rows(model.graph, "cpu");
  for (graph::NodeSchedule& node : schedule.nodes) node.body = nullptr;
  const std::vector<int> kernel_of_node = graph::kernel_of_node(model.graph, schedule);
  std::set<int> kernels;
  double start = seconds();
  for (size_t i = 0; i < kernel_of_node.size(); ++i)
    if (const graph::Node& node = model.graph.nodes()[i]; node.name.starts_with(kLayer))
      if (kernels.insert(kernel_of_node[i]).second) graph::node_kernel(model.graph, node);
  double all = seconds() - start;
  print(fmt::format("{} of a decoder layer, bound and checked in {:.1f} ms",
                    plural(static_cast<int64_t>(kernels.size()), "kernel"), 1e3 * all));
  const graph::LoweredGraph lowered = graph::lower(model.graph, schedule);
  for (const auto& [dialect, name] : {std::pair(codegen::cpu_dialect(), "cpu"), {codegen::cuda_dialect(), "cuda"}}) {
    start = seconds();
    size_t bodies = 0, bytes = 0;
    for (const int index : kernels) {
      const graph::LoweredKernel& kernel = lowered.kernels[static_cast<size_t>(index)];
      if (kernel.kernel.opaque) continue;  // says what it touches, and not what it computes
      bytes += codegen::generate_body(kernel, loop::bind(kernel.kernel, kernel.binding), dialect).text.size();
      ++bodies;
    }
    const double written = seconds() - start;
    all += written;
    print(fmt::format(", {} {} bodies of {} bytes in {:.1f} ms", bodies, name, bytes, 1e3 * written));
  }
  print(fmt::format(": {:.1f} ms in all\n", 1e3 * all));
  return kExitOk;
}

}  // namespace megalith::tools
