// Emit: lowered kernels to one readable C++ source, the persistent kernel: the protocol and the worker loop, the tuned
// bodies that are used, one function per lowered kernel, and the switch that chooses among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/graph/lower.h"

namespace megalith::codegen {

struct EmittedSource {
  std::string text;
  int64_t scratch_bytes = 0;  // per worker, for what is too large for registers and stack
  int64_t area_bytes = 0;     // of shared memory, per worker: what bodies for a GPU work in
  int64_t stream_rows = 0;    // of activations, at most, that bodies multiply with weights from a stream
  int64_t table_rows = 128;   // tokens of an iteration, at most, whose positions a worker on a GPU keeps
  int64_t scale_bytes = 0;    // beside each chunk of a stream, of weights in int8
  bool has_partners = false;  // workers that work together (TaskGraph), which a GPU launches as clusters of two
  std::vector<std::vector<CheckText>> checks;  // per body, by number (checks.h)
};

/// The source exports
///   extern "C" void megalith_worker(const megalith::runtime::Launch* launch, unsigned worker);
///   extern "C" const char megalith_kernel_info[];   // JSON: version, bodies' names, operands, scratch_bytes, checks
/// `title` (the graph's name, sizes, anything for the reader) goes into the comment at the top.
/// Every kernel needs a body: UserError naming an opaque one without a hand-tuned body for the CPU.
EmittedSource emit_cpu(const std::vector<graph::LoweredKernel>& kernels, const std::string& title);

/// The same for NVRTC. The source exports
///   extern "C" __global__ void megalith_worker(const __grid_constant__ megalith::runtime::Launch launch);
/// one block of kThreads threads (common/prelude.cuh) per worker, and ends with a comment that holds the JSON of
/// megalith_kernel_info (source_info()).
EmittedSource emit_cuda(const std::vector<graph::LoweredKernel>& kernels, const std::string& title,
                        const graph::WorkerSchedule& worker = {});

/// emit_cpu or emit_cuda, by the target's name.
EmittedSource emit(const std::string& target, const std::vector<graph::LoweredKernel>& kernels,
                   const std::string& title, const graph::WorkerSchedule& worker = {});

/// What bodies are written for: their names in order, and of each the dtypes of its operands and its sizes, as 32 hexadecimal
/// digits. megalith_kernel_info has it as "operands".
std::string operands_hash(const std::vector<graph::LoweredKernel>& kernels);

/// A variable of a kernel for a GPU, which nobody reads: machine code has its name.
std::string operands_symbol(const std::string& operands_hash);

/// The JSON at the end of a source for CUDA.
std::string source_info(const std::string& source);

/// Whether kernels are optimised as far as they can be (MEGALITH_OPTIMIZE). Throws UserError if it says something else than
/// full or little.
bool optimizes_fully();

/// How far a kernel is optimised, which changes no bit of what it works out.
enum class Effort {
  chosen,  // as MEGALITH_OPTIMIZE says
  quick,   // little, so that it is there soon
};

/// The flags that the source is written for, beside --gpu-architecture: as cpu_compile_flags() says. Those of
/// Effort::quick want NVRTC 13.
std::vector<std::string> cuda_compile_flags(const std::string& architecture, Effort effort = Effort::chosen);

/// The largest frame that a function of a kernel for a CPU may have: workers' stacks are small (runtime/worker_thread.h).
/// Larger ones, and arrays whose size is only known when it runs, are errors of the compiler.
inline constexpr int64_t kMaxFrameBytes = 128 << 10;

/// The flags that the source is written for, beside -march. Results depend on no tile, worker or batch because each sum
/// has one order, written out; so the compiler must not fuse or reorder on its own: multiply-adds are fused where the
/// source says fma() and nowhere else (-ffp-contract=off), and nothing may imply -ffast-math. Without errno and traps,
/// which nobody reads, square roots and choices vectorise. Frames are as small as kMaxFrameBytes says, and one of more
/// than a page is touched page by page, so that a stack that is too small ends in its guard page and nowhere else.
std::vector<std::string> cpu_compile_flags();

}  // namespace megalith::codegen
