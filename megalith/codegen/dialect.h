// The words in which targets differ. The emitter is one: it writes loops, expressions and reductions in names that each
// target's prelude gives a meaning (kernels/<target>/prelude.h and reduce.h).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace megalith::codegen {

/// Who runs a statement: one thread, the lanes of a warp together, or the threads of a block together. On a CPU a
/// worker is one thread. On a GPU it is a block that walks the nest in step; the innermost loops with independent
/// iterations are dealt out, to threads or, where each iteration sums over what lies side by side in memory, to warps.
/// What reads or sums runs in all threads of its level; what stores to memory, in one of them.
enum class Level { thread, warp, block };

struct Dialect {
  std::string target;                                // of graph::TunedBody
  Level worker = Level::thread;                      // what a worker is
  std::string function;                              // before the name of a body: linkage, attributes, void
  std::string inline_lambda;                         // after a lambda's parameters: it vanishes into its caller
  std::string independent;                           // before a loop whose iterations are independent
  std::string unroll;                                // before a loop to unroll
  std::vector<std::string> headers;                  // embedded first, whatever the kernels are
  std::map<std::string, std::string> replaced = {};  // headers that other headers include, and what takes their place
  // Of kernels of one's own: what the text says, and nothing faster. Sums are in order whatever their tags say, and a NaN is not
  // lost among maxima.
  bool is_literal = false;
  std::string faults = "args.faults";  // where a check notes what data decided wrongly
};

inline Dialect cpu_dialect() {
  return {"cpu",
          Level::thread,
          "[[gnu::noinline]] static void",
          "MEGALITH_INLINE",
          "MEGALITH_INDEPENDENT",
          "#pragma GCC unroll 64",
          {"runtime/protocol.h", "runtime/cpu/worker.h", "kernels/cpu/prelude.h", "kernels/cpu/reduce.h",
           "kernels/cpu/check.h"}};
}

/// Functions and bodies of the CPU that are plain C++ are compiled as they are (kernels/cuda/common/prelude.cuh).
inline Dialect cuda_dialect() {
  return {"cuda",
          Level::block,
          "__noinline__ static void",
          "MEGALITH_INLINE",
          "",
          "#pragma unroll",
          {"runtime/protocol.h", "runtime/cuda/worker.cuh", "kernels/cuda/common/prelude.cuh",
           "kernels/cuda/common/reduce.cuh", "kernels/cuda/common/check.cuh", "kernels/cuda/mainloop/pack_weights.cuh",
           "kernels/cuda/arch/l2_probe.cuh", "kernels/cuda/mainloop/fragment_layout.cuh",
           "kernels/cuda/attention/kv_pages.cuh"},
          {{"runtime/cpu/sync.h", "runtime/cuda/sync.cuh"}, {"kernels/cpu/check.h", "kernels/cuda/common/check.cuh"}}};
}

/// Of a kernel of one's own (loop_source.h), in which each thread walks the nest by itself.
inline Dialect loops_dialect(bool is_gpu) {
  std::vector<std::string> headers = {"kernels/cpu/loops.h"};
  if (is_gpu) headers.insert(headers.begin(), "kernels/cuda/arch/builtins.cuh");
  return {is_gpu ? "cuda" : "cpu",
          Level::thread,
          is_gpu ? "extern \"C\" __global__ void" : "extern \"C\" void",
          "MEGALITH_INLINE",
          is_gpu ? "" : "MEGALITH_INDEPENDENT",
          is_gpu ? "#pragma unroll" : "#pragma GCC unroll 64",
          std::move(headers),
          {},
          true,
          "faults"};
}

/// That of the target "cuda", or else of a CPU.
inline Dialect dialect_of(const std::string& target) { return target == "cuda" ? cuda_dialect() : cpu_dialect(); }

}  // namespace megalith::codegen
