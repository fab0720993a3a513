// Where a worker's chunks come from. As a rule they lie one behind the other. Where streams are dealt to the sides of the
// L2 (runtime/cuda/sides.h) chunk n is a half of block n of the worker's pair, the one that is next to the worker's
// multiprocessor; which of the two that is, says a bit.
#pragma once

#include "megalith/kernels/cuda/ring.cuh"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

class StreamSource {
 public:
  StreamSource(const Launch& launch, const Stream& stream)
      : maps_(kernels::kCopiesByMap ? static_cast<const u8*>(launch.sides.maps) : nullptr),
        first_(stream.first),
        num_chunks_(stream.num_chunks) {
    if (maps_ == nullptr) {
      chunks_ = launch.streams + first_ * stream::kChunkBytes;
      return;
    }
    halves_ = launch.sides.halves + stream.first_half;
    next_word_ = halves_[0];
    for (u32 half = 0; half < 2; ++half) kernels::map_is_written(map(half));
  }

  /// Chunks are taken in order, round and round.
  void copy_begin(void* to, u64 chunk, kernels::Barrier* full) {
    if (maps_ == nullptr)
      return kernels::copy_begin(to, chunks_ + chunk * stream::kChunkBytes, stream::kChunkBytes, full);
    // The next word is asked for 32 chunks before its time.
    if (chunk % 32 == 0) {
      word_ = next_word_;
      next_word_ = halves_[chunk + 32 < num_chunks_ ? chunk / 32 + 1 : 0];
    }
    kernels::copy_begin_by_map(to, map(word_ >> chunk % 32 & 1), box(chunk), stream::kChunkBytes, full);
  }
  /// Into the L2.
  void prefetch(u64 chunk) const {
    if (maps_ == nullptr) return kernels::prefetch(chunks_ + chunk * stream::kChunkBytes, stream::kChunkBytes);
    kernels::prefetch_by_map(map(halves_[chunk / 32] >> chunk % 32 & 1), box(chunk));
  }

 private:
  const u8* map(u32 half) const { return maps_ + half * kernels::kMapBytes; }
  u32 box(u64 chunk) const { return static_cast<u32>(first_ + chunk); }

  const u8* const maps_;
  const u64 first_, num_chunks_;
  const u8* chunks_ = nullptr;
  const u32* halves_ = nullptr;
  u32 word_ = 0, next_word_ = 0;
};

}  // namespace megalith::runtime
