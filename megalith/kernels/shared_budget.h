// How a block's shared memory is divided: what the compiler and the block's variables take, the workspace of the bodies,
// and the ring of weight tiles that fills the rest.
#pragma once

#include "megalith/kernels/stream_limits.h"

namespace megalith::stream {

/// Shared memory that is no ring and no scratch: what the compiler keeps there, a few words, and variables of the block
/// (kernels/cuda/common/shared_variables.cuh): frames, barriers, sums of reductions. Each begins at a multiple of 1024.
constexpr int kStaticBytes = 1024, kVariablesBytes = 6144;
/// Of more than kFewTableRows rows more: where each stands (kernels/cuda/scheduler/position_table.cuh).
constexpr long long kFewTableRows = 512, kTableRowBytes = 6;
constexpr long long more_variables_bytes(long long rows) {
  return rows > kFewTableRows ? (rows - kFewTableRows) * kTableRowBytes : 0;
}
/// What the system keeps before all that, which counts for none of it: from sm_80 on a kilobyte (CUDA C++ Programming
/// Guide, shared memory of compute capability 8.x and 9.0).
[[maybe_unused]] constexpr int kSystemBytes = 1024;
constexpr long long kReservedBytes = 8192;
static_assert(kStaticBytes + 1023 + kVariablesBytes < kReservedBytes);
/// Copies of a stream that are under way at a time. When one is begun all but the last kMaxCopies - 1 are in, however
/// they overtake each other.
constexpr int kMaxCopies = 4;
/// Parts of a block that take chunks in turn, with many rows of activations.
constexpr int kMaxParts = 4;
/// Slots of the ring in `shared_bytes` of shared memory, beside `scratch_bytes`, with at most `rows` rows of
/// activations: as many as there is room for, 0 if that is too few. What is in the ring when a worker begins to wait is
/// what memory does meanwhile.
///
/// A barrier tells a phase from the one before and the one behind it, no more. So who asks for chunk n must know that
/// chunk n - slots is in. With few rows every warp takes all chunks in order. With many a part has had chunk
/// n - kMaxParts, and when that was begun all up to n - kMaxParts - ring_copies() were in: with as many slots that is
/// enough. With fewer it is chunk n - kMaxParts itself, or one before it, that has to be the slot's.
/// `scale_bytes`: beside each chunk (kernels/int8_layout.h).
constexpr int ring_slots(long long shared_bytes, long long scratch_bytes, long long rows, long long scale_bytes = 0) {
  const long long room =
      (shared_bytes - kReservedBytes - more_variables_bytes(rows) - scratch_bytes) / (kChunkBytes + scale_bytes);
  const int slots = room >= 12 ? 12 : room >= 2 ? static_cast<int>(room) : 0;
  return rows > kMaxRows && slots < kMaxParts + kMaxCopies - 1 ? slots / kMaxParts * kMaxParts : slots;
}
/// Copies under way in a ring of so many slots, at most: one less is worth a longer ring.
constexpr int ring_copies(long long slots, long long rows) {
  const bool is_short = rows > kMaxRows && slots == kMaxParts + kMaxCopies - 1;
  const long long most = is_short ? kMaxCopies - 1 : kMaxCopies;
  return static_cast<int>(slots < most ? slots : most);
}

/// Whether warpgroups may have groups of their own, in a ring of so many slots: who asks for chunk n has had one of the
/// kMaxParts before it then, and as said above knows of all that came ring_copies() before that one.
constexpr bool is_n_parallel(long long slots) { return slots > kMaxParts; }

}  // namespace megalith::stream
