// The two sides of a GPU's L2. On Hopper each multiprocessor is next to one half of the L2, and what belongs to the other
// half comes through a link between them, which takes longer and costs power: an H200 that reads all its memory needs
// 700 W at a lower clock, and 660 W at the full one if each multiprocessor reads what is near (tools/baselines/sides.cu).
// Which side a piece of 4 KB belongs to is the parity of some bits of its physical address; of those below 2 MB, which a
// program sees, the same ones everywhere, and each page of 2 MB turns it round or not.
//
// So it is measured, when a model is loaded: how long atomics take from each multiprocessor to each piece of a page, and
// from some to each page. A stream's chunks are then four pieces each, all near (runtime/cuda/streams.h). A mistake in
// what is found here costs time and nothing else: who packs a chunk and who copies it go by the same bits, whatever they
// say. Where nothing is found, because another program disturbs, or because a GPU is different, chunks lie one behind
// the other.
//
// That there are such sides and how to find them was described by Arun Demeure (cuda-side-boost, 2025).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/protocol.h"

namespace megalith::runtime {

struct SideMap {
  std::vector<u8> of_multiprocessor;  // 0 or 1
  u32 mask = 0;                       // of the bits of an address in a page that count
  std::vector<u8> of_page;            // the side of its first piece

  /// The side of the half 0 of the block at byte `at` of the memory.
  u8 of_block(u64 at) const;
  /// Which worker is for each multiprocessor: those of side 0 get even numbers, those of side 1 odd ones, as long as
  /// there are any.
  std::vector<u32> worker_of_sm() const;
};

/// From the cycles that atomics take, `cycles[multiprocessor][piece]` of one page: the sides of multiprocessors, and the
/// mask. None if multiprocessors do not fall into two kinds, or pieces do not go by such a mask as half_piece() is for
/// (kernels/stream_layout.h).
std::optional<SideMap> sides_of_multiprocessors(std::span<const u32> cycles, size_t num_multiprocessors);

/// By how many cycles the pieces of a page of the wrong parity are farther, and who measured it.
struct PageProbe {
  i32 difference, multiprocessor;
};
/// Fills in the pages. False if for too many of them the difference says nothing.
bool add_sides_of_pages(SideMap& sides, std::span<const PageProbe> probes);

/// By the kernels megalith_probe_* of `module`, for `bytes` at `memory`, which stay as they are. For as many
/// multiprocessors as the GPU has.
std::optional<SideMap> find_sides(const jit::CudaDeviceInfo& device, jit::CudaModule module, jit::CudaAddress memory,
                                  int64_t bytes);

/// The maps of `num_blocks` blocks at `memory`: 128 bytes for each kind of chunk, as Sides::maps has them. None if the
/// driver refuses them.
std::vector<u8> maps_of_chunks(jit::CudaAddress memory, u64 num_blocks);

}  // namespace megalith::runtime
