// How activations stay within the range of f16, which ends at 65504, where a model's weights are f16: tensor cores want
// both operands of one kind. Shared by the host, which draws a decoder's graph, and the bodies.
//
// What is multiplied behind a norm is x * weight; the norm's scale comes with the sums (mainloop/gemv.cuh). x alone
// fits, as it must where a library keeps the residual stream in f16. The product may not, so a quarter of it is
// multiplied, which is exact: no x of f16 leaves the range while the weight is at most 4, no x up to 4000 while it is at
// most 64. At the other end f16 is coarse below 6e-5: of a quarter of the first layer's products, which are small, 1e-4
// and more, less than one part in 800 is lost, of bf16 one in 512. Beyond the range is the largest number, not infinity.
//
// All other operands are what a library that computes in f16 has there, too: outputs of attention and of the gate.
#pragma once

namespace megalith::half_range {

constexpr float kNormed = 0.25f;

}  // namespace megalith::half_range
