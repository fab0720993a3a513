// A scheduled loop kernel of one's own as machine code: specialized for what is known of its arguments, through the stages
// "loops" (loops.txt), "emit" (kernel.cpp or kernel.cu) and "assemble" (kernel.so; on a GPU "ptx" and "cubin"). They pass
// the door that all stages pass (jit/stage.h), so they can be looked at and changed, and what is compiled is found again
// in the cache.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/codegen/loop_source.h"
#include "megalith/jit/build.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/stage.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::jit {

/// What is known of arguments when a kernel is compiled. Names are those of the scheduled kernel.
struct LoopSpecialization {
  std::map<std::string, int64_t> constants;  // parameters with this value
  std::set<std::string> multiples;           // parameters that are multiples of kLoopMultiple
  std::set<std::string> aligned;             // tensors that begin at a multiple of kLoopAlignment bytes

  /// "n = 1, m mod 16 = 0, a aligned"; "" if nothing is known.
  std::string text() const;
};
inline constexpr int64_t kLoopMultiple = 16, kLoopAlignment = 16;

struct LoopProgram {
  loop::Kernel kernel;  // scheduled and specialized
  std::vector<codegen::LoopSource>
      sources;         // a function for each part between barriers over everything, in their order
  std::string text;    // that was compiled: `sources`, or an edited one
  std::string target;  // "cpu", "cuda:sm_90a"
  Build build;         // of a CPU's
  CudaBuild cuda;      // of a GPU's
  CompileReport report;
};

/// The kernel with what is known written in.
loop::Kernel specialize(const loop::Kernel& scheduled, const LoopSpecialization& known);

/// `target`: "cpu", "cuda:sm_90a", or "cuda" for the GPU of this machine. UserError if the kernel cannot be code;
/// CapacityError if the machine cannot hold it; SystemError of a compiler.
LoopProgram compile_loop_program(const loop::Kernel& scheduled, const LoopSpecialization& known,
                                 const std::string& target,
                                 PipelineOptions options = PipelineOptions::from_environment());

/// Flags of the compilers: unlike those of persistent kernels, whose results have the same bits everywhere, they let a
/// product and a sum be rounded once.
std::vector<std::string> loop_cpu_flags();
std::vector<std::string> loop_cuda_flags(const std::string& architecture);

}  // namespace megalith::jit
