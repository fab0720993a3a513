// Runs a graph once through the whole compilation, and beside it through the interpreter, on the same random inputs.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "megalith/engine/graph_memory.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/sizes.h"
#include "megalith/jit/compile.h"
#include "megalith/runtime/program.h"

namespace megalith::testing {

using engine::GraphMemory;
using engine::random_values;
using engine::shape_of;

/// engine::largest_difference, the number alone.
inline double error_in_roundings(const loop::Array& a, const loop::Array& b, DType dtype, double slack = 8,
                                 double roundings = 1) {
  return engine::largest_difference(a, b, dtype, slack, roundings).roundings;
}

/// Compiles and runs `graph` for one iteration on `memory`.
inline jit::CompiledKernel run_compiled(const graph::Graph& graph, GraphMemory& memory, int num_workers) {
  jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = num_workers});
  runtime::Program program(graph, kernel, memory.addresses());
  runtime::Launcher launcher(program.entry(), program.image());
  launcher.run();
  return kernel;
}

}  // namespace megalith::testing
