// Activations that come by a ring of their own (pipeline/activation_ring.cuh), as gemm_own_rows.cuh takes them: the first operand
// of a multiplication, read by the tensor cores where it lies.
#pragma once

#include "megalith/kernels/cuda/arch/wgmma.cuh"
#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/pipeline/activation_ring.cuh"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/row_blocks.h"

namespace megalith::kernels {

/// A task's blocks: those of all columns of some rows of `x`. All compute warps call all of it.
template <class T, i64 kRows, i64 kColumns>
class ActivationRing {
  static constexpr u32 kTileBytes = 1024, kBlockBytes = static_cast<u32>(kRows) / row_blocks::kRows * kTileBytes,
                       kSlotBlockBytes = activation_block_bytes(kBlockBytes);

 public:
  ActivationRing() : slot_(activation_ring.slot), parity_(activation_ring.parity) {}

  /// By the block, to which the inputs are there: `turns` times the next `slots` slots, of `rows` rows from `first` on.
  static void request(Blocked<const T, kRows, kColumns> x, int first, int rows, int columns, int slots, int turns) {
    if (thread() == 0)
      activation_ring.request = {
          reinterpret_cast<const u8*>(x.at) + static_cast<u32>(first / row_blocks::kRows) * kTileBytes,
          max(rows + row_blocks::kRows - 1, row_blocks::kRows) / row_blocks::kRows * kTileBytes,
          kBlockBytes,
          slots,
          columns / row_blocks::kColumns - 1,
          turns};
    if (kEveryThreadArrives) fence_reads_before_copies();
    request_copies(Copied::activations);
  }
  /// The next slot, once it is there. All of them, in order.
  void take() {
    while (!all_of_warp(barrier_passed(&activation_ring.full[slot_], parity_))) {}
    if (kLanesCopyActivations) fence_writes_before_multiply();
    taken_ = shared_address(activation_slot(slot_, kSlotBlockBytes));
    next_activation_slot(slot_, parity_);
  }
  /// Of the slot that was taken, of rows from `first` on, columns of step `step`, a constant.
  SharedMatrix of_step(int first, u32 step) const {
    return shared_matrix(taken_ + static_cast<u32>(first / row_blocks::kRows) * kTileBytes,
                         step / 2 * kSlotBlockBytes + step % 2 * (kTileBytes / 4), kTileBytes / 8, kTileBytes / 2);
  }
  /// Gives the slot that was taken back, behind what uses it (pipeline/barrier.cuh).
  void give_back() {
    if (kEveryThreadArrives) fence_reads_before_copies();
    warp_sync();
    warp_arrive(&activation_ring.empty[slot_ > 0 ? slot_ - 1 : kActivationSlots - 1]);
  }
  /// The next slot, of which the warp needs nothing.
  void pass() {
    take();
    give_back();
  }
  /// Behind the last slot, by one thread, when all have begun the task.
  void end() const {
    activation_ring.slot = slot_;
    activation_ring.parity = parity_;
  }

 private:
  u32 slot_, parity_;  // the next one
  u32 taken_ = 0;      // where the last one lies
};

/// A warpgroup's activations, 64 rows of a task's.
template <int kChunkRows, int kSpans, Half T, i64 kRows, i64 kColumns>
class ActivationsFromRing {
 public:
  static constexpr bool kAreShared = true;
  static constexpr int kSlots = stream::wide_columns(kChunkRows) / stream::kSlotColumns;  // of a span

  ActivationsFromRing(Blocked<const T, kRows, kColumns> x, int first, int rows, int columns, int turns)
      : chunks_((columns - 1) / (kSpans * kSlots * stream::kSlotColumns) + 1) {
    ring_.request(x, first, rows, columns, chunks_ * kSpans * kSlots, turns);
  }

  /// Chunks of a group.
  int count() const { return chunks_; }
  void take() { ring_.take(); }
  SharedMatrix of_step(int step) const { return ring_.of_step(warp() / 4 * stream::kWideRows, static_cast<u32>(step)); }
  void give_back() { ring_.give_back(); }
  /// Those of a chunk, of which the warp needs nothing.
  void pass_chunk() {
#pragma unroll 1
    for (int slot = 0; slot < kSpans * kSlots; ++slot) ring_.pass();
  }
  void end() const { ring_.end(); }

 private:
  const int chunks_;
  ActivationRing<T, kRows, kColumns> ring_;
};

}  // namespace megalith::kernels
