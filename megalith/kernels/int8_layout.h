// Weights in int8 as a GPU streams them (mainloop/int8.cuh). A chunk has two spans: the second half is of the columns
// that the next chunk of 16-bit weights would have, so activations, groups and the order of everything are those of
// kernels/stream_layout.h and kernels/gemm_layout.h, with half as many chunks.
//
// For few rows of activations: warp w of 16, span j of 2, lane l (g = l / 4, t = l % 4), 16 bytes each: the 8 columns from 8 t on of the warp's run of
// 32, of the lane's two tile rows. Of each four columns two registers: (row g: 0 and 1) in bytes 0 and 2, (row g + 8) in
// bytes 1 and 3; then columns 2 and 3. So both halves of a register are a register of the tensor cores' first operand,
// with as much to do for each. A byte is the weight plus 128.
//
// For many rows: of each span the 16 bytes that 16-bit weights have at a place are 8 bytes at that place, of each four
// weights numbers 0, 2, 1 and 3.
//
// A scale is bf16, of a row and a run of 32 columns, whatever number of columns shares it: beside each chunk a kilobyte of
// them, for warp w and g the scales of rows g and g + 8 in span 0, then in span 1; or for many rows run by run of both
// spans those of all rows of the chunk.
#pragma once

namespace megalith::int8 {

[[maybe_unused]] constexpr int kSpans = 2, kScaleBytes = 1024, kZero = 128;
/// Columns that share a scale are a multiple of so many.
[[maybe_unused]] constexpr int kRun = 32;

/// Chunks of so many spans.
constexpr long long chunks(long long spans) { return (spans + kSpans - 1) / kSpans; }

}  // namespace megalith::int8
