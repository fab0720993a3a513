// A cache whose heads lie in pairs (kernels/head_pairs.h), and one whose rows lie one behind the other.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/head_pairs.h"

namespace megalith::kernels {

/// A cache of kElements elements in pairs of heads, with its table behind it.
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
inline T* cached_head(T* cache, int page, int position, int g) {
  return cache + ((i64(page) * kPage + position) * kGroups + g) * D;
}
template <int kPage, int kGroups, int D, class T, i64 kElements>
inline T* cached_head(Paired<T, kElements> cache, int page, int position, int g) {
  constexpr head_pairs::PageShape kShape = {kPage, kGroups, D * sizeof(T)};
  const head_pairs::Place place = head_pairs::place_of(kShape, page, position, g);
  const u32* const table = cache.table();
  const u32 first = head_pairs::side_of_first(place.pair, table[head_pairs::kMaskWord],
                                              table[head_pairs::memory_page(place.pair) / 32]);
  return cache.at + i64(head_pairs::piece_of(g, place.pair, first)) * (head_pairs::kPieceBytes / sizeof(T)) +
         place.byte / sizeof(T);
}

/// A row of a head where heads lie in pairs, of both caches: its number in that of keys, with kIsOther if that of its values is in the
/// other piece of the pair.
template <u32 kRowBytes>
struct RowInPairs {
  static constexpr u32 kRowsOfPiece = head_pairs::kPieceBytes / kRowBytes, kIsOther = 1u << 31;

  /// `word(i)`: of both tables, those of values behind those of keys.
  template <class Word>
  static u32 find(u32 positions, u32 heads, u32 page, u32 position, u32 head, Word word) {
    const head_pairs::Place place = head_pairs::place_of({positions, heads, kRowBytes}, page, position, head);
    const u32 memory = head_pairs::memory_page(place.pair), mask = word(head_pairs::kMaskWord),
              keys = word(memory / 32), values = word(head_pairs::kTableWords + memory / 32);
    const u32 piece = head_pairs::piece_of(head, place.pair, head_pairs::side_of_first(place.pair, mask, keys));
    return (piece * kRowsOfPiece + place.byte / kRowBytes) | ((keys ^ values) >> memory % 32 & 1) * kIsOther;
  }
  /// From keys to their values.
  static u32 of_values(u32 row) { return row ^ (row / kIsOther) * kRowsOfPiece; }
  static u32 number(u32 row) { return row & ~kIsOther; }
};

/// A row of a head in both caches.
template <int kPage, int kGroups, int D, bool kPaired>
class CachedRow {
  using InPairs = RowInPairs<D * sizeof(bf16)>;

 public:
  /// From a position to the next one on a page.
  static constexpr int kStride = kPaired ? D : kGroups * D;

  CachedRow() = default;
  /// `word`: as RowInPairs::find() wants it.
  template <class Word>
  inline CachedRow(int page, u32 position, int g, [[maybe_unused]] Word word) {
    if constexpr (kPaired)
      row_ = InPairs::find(kPage, kGroups, static_cast<u32>(page), position, static_cast<u32>(g), word);
    else
      row_ = (static_cast<u32>(page) * kPage + position) * kGroups + static_cast<u32>(g);
  }

  i64 element(bool is_value) const {
    if constexpr (!kPaired) return i64(row_) * D;
    return i64(InPairs::number(is_value ? InPairs::of_values(row_) : row_)) * D;
  }

 private:
  u32 row_ = 0;
};

/// Both caches' tables, a word a lane, asked for before anything else; and one of them.
template <class Args>
inline u32 word_of_tables([[maybe_unused]] const Args& args) {
  constexpr int kWords = head_pairs::kTableWords;
  if constexpr (kIsPaired<decltype(Args::k_cache)>)
    return lane() < kWords ? args.k_cache.table()[lane()] : args.v_cache.table()[lane() - kWords];
  else
    return 0;
}
inline u32 of_tables(u32 words, u32 word) { return __shfl_sync(0xffffffffu, words, static_cast<int>(word)); }

}  // namespace megalith::kernels
