// How the copy engine and the tensor cores turn rows of 128 bytes, so that a column of them meets all banks (PTX ISA,
// "Swizzling modes"): shared memory from a multiple of 1024 bytes on.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"

namespace megalith::kernels {

/// Where the byte `at` of such rows is: pieces of 16 bytes are exchanged by the row's number.
constexpr u32 swizzle128(u32 at) { return at ^ (at / 128 % 8 * 16); }

}  // namespace megalith::kernels
