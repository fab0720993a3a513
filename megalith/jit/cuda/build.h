// Source in, machine code of a GPU out: the assemble stage for CUDA targets, found in the cache like a CPU's. It needs
// NVRTC and no GPU; runtime/cuda loads what it makes.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "megalith/codegen/emit.h"
#include "megalith/jit/cache.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "megalith/jit/stage.h"

namespace megalith::jit {

struct CudaBuild {
  std::string cubin, ptx;
  std::string architecture;   // "sm_90a"; "" if this is none
  std::string log;            // of the compiler; "" where an edited file was taken
  KernelResources resources;  // nothing is known of an edited cubin's
  std::string key;            // "" if an edited file was taken
  std::string directory;      // of the cache entry: kernel.cu, kernel.ptx, kernel.cubin, log.txt, command.txt
  bool cache_hit = false;
  double compile_ms = 0;
};

/// NVRTC's flags for a persistent kernel. Effort::quick counts if this NVRTC has it, and the cache has no kernel as it is
/// chosen.
std::vector<std::string> cubin_flags(const std::string& source, const std::string& architecture, codegen::Effort effort,
                                     const KernelCache& cache);

/// Finds the cubin in the cache, or compiles and stores it. `flags` of NVRTC: those of persistent kernels
/// (codegen::cuda_compile_flags()), or those given here. Not for long any more once `is_over` is set, if there is one.
CudaBuild compile_cubin(const std::string& name, const std::string& source, const std::string& architecture,
                        const KernelCache& cache = KernelCache::from_environment(),
                        const std::vector<std::string>& flags = {}, const std::atomic<bool>* is_over = nullptr);

/// The stages "ptx" (kernel.ptx) and "cubin" (kernel.cubin) of `pipeline`, which are one call of the compiler. An
/// edited PTX is assembled by nvJitLink, an edited cubin is taken as it is; neither goes into the cache. `begun`: waits for
/// that call, if it has begun.
CudaBuild build_cubin(Pipeline& pipeline, const std::string& name, const std::string& source,
                      const std::string& architecture, const KernelCache& cache,
                      const std::vector<std::string>& flags = {}, const std::function<CudaBuild()>& begun = {});

/// "cuda:sm_90a" is a target for that architecture, "cuda" one for the GPU of this machine.
bool is_cuda_target(const std::string& target);
/// "cpu" or "cuda": which bodies and which dialect; the architecture matters only to the compiler.
std::string target_family(const std::string& target);
/// The architecture of a target; SystemError for "cuda" where there is no GPU, UserError for one that is too old.
std::string cuda_architecture(const std::string& target);
/// The target with its architecture, "cuda" as "cuda:sm_90a"; others as they are. Errors as above.
std::string target_with_architecture(const std::string& target);

/// What a model runs on if nobody says it: as MEGALITH_TARGET has it, else "cuda" if this machine has a GPU that kernels can be made
/// for, else "cpu". Warns of a GPU that cannot be used.
std::string default_target();

}  // namespace megalith::jit
