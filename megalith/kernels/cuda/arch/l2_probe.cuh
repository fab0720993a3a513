// How far places in memory are from a multiprocessor, by the time that atomics take there: those are made where a line
// belongs, while a load may be answered by a copy that is nearer. What follows from it, runtime/cuda/sides.h says. By
// one thread of a block on each multiprocessor, once, when a model is loaded.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/l2_layout.h"

namespace megalith::kernels {

/// Cycles of an atomic at `at`, which leaves what is there: they add nothing. Each waits for the one before it, since
/// its address follows from what that brought.
inline u32 latency(u32* at) {
  constexpr u32 kTimes = 6;
  u32 value = atomicAdd(at, 0u);  // fetches the line
  const u32 begin = static_cast<u32>(profile_clock());
#pragma unroll 1
  for (u32 i = 0; i <= kTimes; ++i) value = atomicAdd(at + (value & 1), 0u);
  return (static_cast<u32>(profile_clock()) - begin) / kTimes;
}

/// Of each piece of a page, by each multiprocessor: `cycles[multiprocessor][piece]`.
inline void probe_pieces(u8* page, u32* cycles) {
  if (threadIdx.x != 0) return;
  constexpr u32 kPieces = stream::kPageBytes / stream::kPieceBytes, kLines = stream::kPieceBytes / 128;
  const u32 me = multiprocessor();
  if (me >= gridDim.x) return;
  for (u32 i = 0; i < kPieces; ++i) {
    const u32 piece = (i + me * 37) % kPieces;  // not all at the same place
    cycles[me * kPieces + piece] =
        latency(reinterpret_cast<u32*>(page + piece * stream::kPieceBytes + me % kLines * 128));
  }
}

/// Of each page by how much its pieces of parity 1 are farther than those of parity 0, and by which multiprocessor:
/// `differences[page] = {cycles, multiprocessor}`.
inline void probe_pages(u8* memory, u32 num_pages, u32 mask, i32* differences) {
  if (threadIdx.x != 0) return;
  constexpr u32 kPieces = stream::kPageBytes / stream::kPieceBytes, kOfPage = 8;
  for (u32 page = blockIdx.x; page < num_pages; page += gridDim.x) {
    i32 difference = 0;
    for (u32 i = 0; i < kOfPage; ++i) {
      // Each second one of the other parity, all over the page.
      u32 piece = i / 2 * (kPieces / (kOfPage / 2));
      if ((__popc(piece * stream::kPieceBytes & mask) & 1) != i % 2) piece += 1;
      const auto cycles = static_cast<i32>(latency(
          reinterpret_cast<u32*>(memory + u64{page} * stream::kPageBytes + piece * stream::kPieceBytes + i * 128)));
      difference += i % 2 == 1 ? cycles : -cycles;
    }
    differences[page * 2] = difference / i32{kOfPage / 2};
    differences[page * 2 + 1] = static_cast<i32>(multiprocessor());
  }
}

}  // namespace megalith::kernels
