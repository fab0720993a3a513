// How a task asks for copies by the warp that has nothing else to do (pipeline/copy_warp.cuh): it says of which kind they
// are, and leaves what that kind needs to know with the ring through which they come.
#pragma once

#include "megalith/kernels/cuda/common/shared_variables.cuh"
#include "megalith/kernels/cuda/pipeline/barrier.cuh"

namespace megalith::kernels {

enum class Copied : u32 { activations, keys };
struct CopyRequest {
  Barrier made;
  Copied what;
};
__shared__ CopyRequest copy_request;

/// By compute warps that have met; thread 0 has written down what the ring asks for. Release; pairs with the copy warp's look.
/// All that the request before it asked for has been taken.
inline void request_copies(Copied what) {
  if (thread() == 0) copy_request.what = what;
  block_arrive(&copy_request.made);
}

}  // namespace megalith::kernels
