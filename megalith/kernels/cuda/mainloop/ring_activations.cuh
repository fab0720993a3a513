// Activations that come by a ring of their own (pipeline/activation_ring.cuh), as gemm_own_rows.cuh takes them: the first operand
// of a multiplication, in registers.
#pragma once

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
  /// Block `block` of the next slot: what a lane multiplies of 16 rows from 16 `tile` on. All of them, in order.
  void take(Quads& quads, int tile, int block) {
    // Rows past the last are nobody's: what stands for them is taken from the block, too.
    if constexpr (kRows < kWarps * row_blocks::kRows) tile = min(tile, static_cast<int>(kRows) / row_blocks::kRows - 1);
    if (block == 0) wait();
    const u32 at = shared_address(activation_slot(slot_, kSlotBlockBytes)) + static_cast<u32>(block) * kSlotBlockBytes +
                   static_cast<u32>(tile) * kTileBytes + lane() * 16;
    quads = {load_shared(at), load_shared(at + kTileBytes / 2)};
    if (block == stream::kSlotBlocks - 1) next_activation_slot(slot_, parity_);
  }
  /// Gives the last kCount slots back that were taken, behind what uses them (pipeline/barrier.cuh).
  template <u32 kCount>
  void give_back() {
    if (kEveryThreadArrives) fence_reads_before_copies();
    warp_sync();
#pragma unroll
    for (u32 i = kCount; i > 0; --i)
      warp_arrive(&activation_ring.empty[slot_ >= i ? slot_ - i : slot_ + kActivationSlots - i]);
  }
  /// The next slot, of which the warp needs nothing.
  void pass() {
    wait();
    next_activation_slot(slot_, parity_);
    give_back<1>();
  }
  /// Behind the last slot, by one thread, when all have begun the task.
  void end() const {
    activation_ring.slot = slot_;
    activation_ring.parity = parity_;
  }

 private:
  void wait() const {
    while (!all_of_warp(barrier_passed(&activation_ring.full[slot_], parity_))) {}
  }

  u32 slot_, parity_;  // the next one
};

/// A warp's activations where sums leave registers for a few blocks of them: it takes some when those before are multiplied.
/// Meanwhile other warpgroups multiply. With as many as there are registers for, `qkv` of Qwen3-8B takes 31 us for 256
/// tokens on an H100 instead of 36 with two blocks at a time, gate and up 83 instead of 90 with one.
template <int kChunkRows, int kSpans, Half T, i64 kRows, i64 kColumns>
class ActivationsFromRing {
 public:
  static constexpr bool kAreAhead = false;
  static constexpr int kBlocks = stream::wide_columns(kChunkRows) / row_blocks::kColumns;  // of a span
  static constexpr int kAtOnce = kChunkRows > 96 ? 1 : kChunkRows > 48 ? 2 : 4;
  static_assert(kBlocks % stream::kSlotBlocks == 0 && kBlocks % kAtOnce == 0);

  ActivationsFromRing(Blocked<const T, kRows, kColumns> x, int first, int rows, int columns, int turns)
      : chunks_((columns / row_blocks::kColumns - 1) / (kSpans * kBlocks) + 1) {
    ring_.request(x, first, rows, columns, chunks_ * kSlots, turns);
  }

  /// Chunks of a group.
  int count() const { return chunks_; }
  void chunk_begins(int, bool) {}
  void span_begins(int) {}
  /// The next kAtOnce blocks of the span, from `block` on.
  void take(int block) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) ring_.take(quads_[i], warp(), (block + i) % stream::kSlotBlocks);
  }
  /// What take() took.
  const Quads& operator[](int block) const { return quads_[block % kAtOnce]; }
  /// Behind the multiplications of what take() took, of which `block` is the last block.
  void are_used(int block) {
    if constexpr (kAtOnce >= static_cast<int>(stream::kSlotBlocks))
      ring_.template give_back<kAtOnce / stream::kSlotBlocks>();
    else if ((block + 1) % static_cast<int>(stream::kSlotBlocks) == 0)
      ring_.template give_back<1>();
  }
  void replace(int) {}
  /// Those of a chunk, of which the warp needs nothing.
  void pass_chunk() {
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) ring_.pass();
  }
  void end() const { ring_.end(); }

 private:
  static constexpr int kSlots = kSpans * kBlocks / stream::kSlotBlocks;  // of a chunk

  const int chunks_;
  ActivationRing<T, kRows, kColumns> ring_;
  Quads quads_[kAtOnce];
};

}  // namespace megalith::kernels
