// A cache whose pages lie in pairs (kernels/page_pairs.h), and one whose pages lie one behind the other.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/page_pairs.h"

namespace megalith::kernels {

/// A cache of kElements elements in pairs of pages, with its table behind it.
template <class T, i64 kElements>
struct Paired {
  T* at;

  const u32* table() const { return reinterpret_cast<const u32*>(at + kElements); }
};
template <class Cache>
inline constexpr bool kIsPaired = requires(Cache cache) {
  cache.table();
};

/// Where the cache begins.
template <class T>
inline T* cache_begin(T* cache) {
  return cache;
}
template <class T, i64 kElements>
inline T* cache_begin(Paired<T, kElements> cache) {
  return cache.at;
}
/// Where a head of a position on a page begins; of kGroups groups, D values each, kPage positions a page.
template <int kPage, int kGroups, int D, class T>
inline T* cached_head(T* cache, int page, int place, int g) {
  return cache + ((i64(page) * kPage + place) * kGroups + g) * D;
}
template <int kPage, int kGroups, int D, class T, i64 kElements>
inline T* cached_head(Paired<T, kElements> cache, int page, int place, int g) {
  const u32 byte = (place * kGroups + g) * (D * sizeof(T)),
            pair = page_pairs::pair_of(page, byte, kPage * kGroups * D * sizeof(T));
  const u32* const table = cache.table();
  const u32 first =
      page_pairs::side_of_first(pair, table[page_pairs::kMaskWord], table[page_pairs::memory_page(pair) / 32]);
  const u32 piece = page_pairs::piece_of(page, pair, first);
  return cache.at + i64(piece) * (page_pairs::kPieceBytes / sizeof(T)) + byte % page_pairs::kPieceBytes / sizeof(T);
}

}  // namespace megalith::kernels
