// What every body on a GPU may use: the types, conversions and functions of kernels/cpu/prelude.h, which are plain C++
// in exact operations and give the same bits here (NVRTC runs with --fmad=false), and who a thread is within its block.
//
// A block of kThreads threads is one worker. It walks a body in step; docs/cuda.md says how work is dealt out.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"

namespace megalith::kernels {

/// to = value, by one thread. All threads worked the value out.
template <class T, class V>
inline void block_store(T& to, V value) {
  if (thread() == 0) to = static_cast<T>(value);
}
template <class T, class V>
inline void warp_store(T& to, V value) {
  if (lane() == 0) to = static_cast<T>(value);
}

}  // namespace megalith::kernels
