// Where a worker's chunks come from. As a rule they lie one behind the other, or in runs where other workers take them, too.
// Where streams are dealt to the sides of the L2 (runtime/cuda/sides.h) chunk n is a half of block n of the worker's pair, the
// one that is next to the worker's multiprocessor; which of the two that is, and what hole is in it, says its kind
// (kernels/l2_layout.h).
#pragma once

#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

/// Of more rows of activations than a task multiplies several tasks take the same chunks.
inline constexpr bool kHasRuns = kernels::kWorkerConfig.stream_rows > stream::kTileRows;

class StreamSource {
 public:
  StreamSource(const Launch& launch, const Stream& stream)
      : scales_(launch.scales),
        maps_(kernels::kCopiesByMap ? static_cast<const u8*>(launch.sides.maps) : nullptr),
        runs_(launch.stream_runs + stream.first_run),
        first_(stream.first),
        num_chunks_(stream.num_chunks) {
    if (kHasRuns) next_run_ = runs_[0];
    if (maps_ == nullptr) {
      chunks_ = launch.streams;
      return;
    }
    kinds_ = launch.sides.chunks + stream.first_bits;
    next_word_ = kinds_[0];
    for (u32 kind = 0; kind < stream::kNumKinds; ++kind) kernels::map_is_written(map(kind));
  }

  /// Chunks are taken in order, round and round. `scales`: where those of the chunk go, if there are any.
  void copy_begin(void* to, void* scales, u64 chunk, kernels::Barrier* full) {
    if (kHasRuns && (chunk == 0 || chunk == run_end_)) begin_run();
    if (maps_ == nullptr) {
      kernels::copy_begin(to, chunks_ + (first_ + chunk) * stream::kChunkBytes, stream::kChunkBytes, full);
      return scales_begin(scales, first_ + chunk, full);
    }
    // The next word is asked for as many chunks before its time as it has.
    if (chunk % kChunksOfWord == 0) {
      word_ = next_word_;
      next_word_ = kinds_[chunk + kChunksOfWord < num_chunks_ ? chunk / kChunksOfWord + 1 : 0];
    }
    const u32 kind = kind_in(word_, chunk);
    kernels::copy_begin_by_map(to, map(kind), box(chunk),
                               static_cast<u32>(stream::chunk_bytes(static_cast<int>(kind / 2))), full);
    scales_begin(scales, 2 * u64{box(chunk)} + (kind & 1), full);
  }
  /// Into the L2; not where chunks lie in runs, of which this may be another one.
  void prefetch(u64 chunk) const {
    if (kHasRuns) return;
    if (maps_ == nullptr) {
      scales_ahead(first_ + chunk);
      return kernels::prefetch(chunks_ + (first_ + chunk) * stream::kChunkBytes, stream::kChunkBytes);
    }
    const u32 kind = kind_in(kinds_[chunk / kChunksOfWord], chunk);
    scales_ahead(2 * u64{box(chunk)} + (kind & 1));
    kernels::prefetch_by_map(map(kind), box(chunk));
  }

 private:
  /// The run behind it is asked for as long before its time.
  void begin_run() {
    first_ = next_run_.base;
    run_end_ = next_run_.end;
    run_ = run_end_ == num_chunks_ ? 0 : run_ + 1;
    next_run_ = runs_[run_];
  }

  static constexpr u32 kChunksOfWord = stream::kChunksOfWord;
  /// `number`: of all chunks, as kernels/stream_order.h counts them.
  void scales_begin(void* to, u64 number, kernels::Barrier* full) const {
    if constexpr (kernels::kScaleBytes > 0)
      kernels::copy_begin(to, scales_ + number * kernels::kScaleBytes, kernels::kScaleBytes, full);
  }
  void scales_ahead(u64 number) const {
    if constexpr (kernels::kScaleBytes > 0)
      kernels::prefetch(scales_ + number * kernels::kScaleBytes, kernels::kScaleBytes);
  }
  static u32 kind_in(u32 word, u64 chunk) { return word >> chunk % kChunksOfWord * stream::kKindBits & 15; }
  const u8* map(u32 kind) const { return maps_ + kind * kernels::kMapBytes; }
  u32 box(u64 chunk) const { return static_cast<u32>(first_ + chunk); }

  const u8* const scales_;
  const u8* const maps_;
  const StreamRun* const runs_;
  u64 first_;
  const u64 num_chunks_;
  u64 run_end_ = 0;
  u32 run_ = 0;  // next_run_
  StreamRun next_run_ = {0, 0};
  const u8* chunks_ = nullptr;
  const u32* kinds_ = nullptr;
  u32 word_ = 0, next_word_ = 0;
};

}  // namespace megalith::runtime
