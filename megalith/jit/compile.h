// compile(): from a tensor graph to a persistent kernel, one line a stage. The table of contents of the whole compiler.
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/graph/graph.h"
#include "megalith/graph/schedule.h"
#include "megalith/jit/build.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/stage.h"
#include "megalith/task/task_graph.h"

namespace megalith::jit {

struct CompileOptions {
  std::string target = "cpu";  // or cuda, cuda:sm_90a, ...
  int num_workers = 1;
  /// Stops before the source is compiled: for looking at stages, and for planning models too large to run here.
  bool plan_only = false;
  /// Schedules of generated bodies as bodies.txt has them (docs/jit.md), checked as an edited file is; bodies that it leaves
  /// out have what was tuned for this machine (jit/measured_schedules.h), or what is proposed.
  std::string bodies = {};
  /// Effort::quick: if the cache has no kernel as it is chosen. Not for whoever looks at stages.
  codegen::Effort effort = codegen::Effort::chosen;
  /// False: activations share no memory, so that each can be looked at after an iteration.
  bool reuse_arena = true;
  PipelineOptions pipeline = PipelineOptions::from_environment();
};

/// All that is needed to run the graph, and all that there is to look at.
struct CompiledKernel {
  graph::Schedule schedule;         // of that graph, into whose operators it points
  std::vector<int> kernel_of_node;  // per node the case of the generated switch that runs its tasks
  task::TaskGraph tasks;
  std::string source;
  std::string operands;       // codegen::operands_hash(), "" if the plan was in the cache
  int64_t scratch_bytes = 0;  // per worker
  int64_t area_bytes = 0;     // of shared memory, per worker (GPU)
  int64_t stream_rows = 0;    // of activations, at most, that are multiplied with weights from a stream (GPU)
  int64_t scale_bytes = 0;    // beside each chunk of a stream, of weights in int8 (GPU)
  std::vector<std::vector<codegen::CheckText>> checks;  // per body, by number (codegen/checks.h)
  Build build;                                          // the loaded kernel; empty with plan_only, and for a GPU
  CudaBuild cuda;                                       // a GPU's
  bool is_quick = false;                                // compiled with Effort::quick: another one would be faster
  CompileReport report;

  /// Of the ring through which weights stream, in the shared memory of the GPU that it was built for.
  int ring_slots() const;
};

/// Compiles `graph`. UserError for a graph or an option that is wrong, SystemError if the compiler fails; a task graph
/// that the verifier rejects is an InternalError, or a UserError if an override brought it in.
CompiledKernel compile(const graph::Graph& graph, const CompileOptions& options);

}  // namespace megalith::jit
