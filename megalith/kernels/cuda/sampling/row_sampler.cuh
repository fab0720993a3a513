// A token of a row of logits, drawn by a block: that of kernels/cpu/sampling.h, found by passes of all threads.
//
// Which token is the k-th, where the share of top-p ends, and which one is drawn are one question: the first token,
// in some order, with which a running sum exceeds a target. It is answered like a look into a dictionary: a pass adds
// up the sums of 2048 bins, picks the bin that holds the target, and the next one lists the tokens of that bin, so few
// that each can work out what stands before it.
//
// Weights are whole numbers, in units of 2^-44 of the largest one. Those add up to the same in any order, so that
// threads may add to a bin as they come, and a text has the same bits every time.
//
// A block alone looks at all tokens, so a pass takes as long as its instructions, and atomics on one word take turns.
// That is why tokens that are drawn in the order of their numbers are summed in registers, why a few top ones are
// found without bins, and why a token is mostly one atomic.
#pragma once

#include "megalith/kernels/cpu/sampling.h"
#include "megalith/kernels/cuda/common/reduce.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/sampling_layout.h"

namespace megalith::kernels {

/// A token among others: larger logits come first, of equals the lower token.
struct Place {
  f32 logit;
  i32 token;  // below 0: none

  bool is_before(Place other) const { return logit > other.logit || (logit == other.logit && token < other.token); }
};
inline constexpr Place kNoPlace = {-kInfinity, -1}, kLastPlace = {-kInfinity, 0x7fffffff};

struct SamplingArea {
  u32 low[sampling::kBins], high[sampling::kBins];  // the words of a bin's sum
  Place listed[sampling::kMaxListed];
  u64 listed_sum[sampling::kMaxListed], sum_of_warp[kWarps], left, kept;
  Place of_warp[kWarps], found;
  f32 farthest_of_warp[kWarps];
  i32 bin;
  u32 num_listed;
};

inline SamplingArea& sampling_area() { return *reinterpret_cast<SamplingArea*>(shared_area()); }

/// Of all threads, a whole number in 64 bits.
template <class T, class Combine>
inline T block_whole(T value, Combine combine) {
  SamplingArea& area = sampling_area();
  value = warp_all(value, combine);
  if (lane() == 0) area.sum_of_warp[warp()] = static_cast<u64>(value);
  block_sync();
  value = static_cast<T>(area.sum_of_warp[0]);
  for (int w = 1; w < kWarps; ++w) value = combine(value, static_cast<T>(area.sum_of_warp[w]));
  block_sync();
  return value;
}

/// The first of all threads' places; its token, or 0 if nobody has one of the vocabulary.
inline i32 block_first(Place place, i32 vocabulary) {
  static_assert(kWarps <= kWarpLanes);
  SamplingArea& area = sampling_area();
#pragma unroll 1
  for (bool is_of_warps = false;; is_of_warps = true) {
#pragma unroll 1
    for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
      const Place other = {from_lane(place.logit, apart), from_lane(place.token, apart)};
      if (other.is_before(place)) place = other;
    }
    if (is_of_warps) break;
    if (lane() == 0) area.of_warp[warp()] = place;
    block_sync();
    place = area.of_warp[lane() % kWarps];
  }
  block_sync();
  return place.token < vocabulary ? place.token : 0;
}

inline constexpr u32 kWholeBits = 44;
/// A weight of at most 1 in whole numbers of 2^-bits.
inline u64 whole_weight(f32 weight, u32 bits) {
  return static_cast<u64>(weight * __builtin_bit_cast(f32, (127 + bits) << 23));
}

/// Of a thread, under way together.
inline constexpr int kLoads = 8;

/// action(i, loaded[i]) for all, so many side by side: where much is done with each it would stand in the code for each of
/// them, and compilers take as long for that as for the rest of a kernel. Those that are left move up, since registers have
/// no index.
template <int kSideBySide, class T, int kCount, class Action>
inline void each_loaded(T (&loaded)[kCount], Action action) {
  static_assert(kCount % kSideBySide == 0);
#pragma unroll 1
  for (int first = 0; first < kCount; first += kSideBySide) {
#pragma unroll
    for (int i = 0; i < kSideBySide; ++i) action(first + i, loaded[i]);
#pragma unroll
    for (int i = 0; i + kSideBySide < kCount; ++i) loaded[i] = loaded[i + kSideBySide];
  }
}

/// action(n, load(n)) for n = first, first + apart, ... below num.
template <class Load, class Action>
inline void each_of(i32 num, i32 first, i32 apart, Load load, Action action) {
#pragma unroll 1
  for (i32 from = first; from < num; from += kLoads * apart) {
    decltype(load(from)) loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) loaded[i] = load(min(from + i * apart, num - 1));
    each_loaded<2>(loaded, [&](int i, const auto& value) {
      if (from + i * apart < num) action(from + i * apart, value);
    });
  }
}

/// The bin with which the sum of all before it exceeds a target, and what of the target is left for it.
struct PickedBin {
  i32 bin;  // below 0: all bins do not exceed it
  u64 left;
};

/// One row of logits, of which one token is drawn. Lies in shared memory, since registers are few: thread 0 makes and
/// changes it, and all threads call all functions.
class RowSampler {
 public:
  /// Behind the area.
  static RowSampler& of_block() { return *reinterpret_cast<RowSampler*>(&sampling_area() + 1); }

  /// `room` has a word for each token.
  RowSampler(const f32* logits, i32 vocabulary, i32 best, f32 temperature, Cuts cuts, double uniform, i32* room)
      : logits_(logits),
        num_(vocabulary),
        best_(best),
        largest_(logits[best]),
        scale_(1.0f / temperature),
        cuts_(cuts),
        uniform_(uniform),
        room_(room) {}

  i32 draw() {
    const bool has_limit = cuts_.top_k > 0 && cuts_.top_k < num_, has_share = cuts_.top_p < 1.0f;
    if (!has_limit && !has_share) {
      if (thread() == 0) least_ = cuts_.min_p;
      block_sync();
      return token_of(first_by_number());
    }
    if (has_limit && cuts_.top_k <= kThreads && num_ > sampling::kMaxListed) list_top_k();
#pragma unroll 1
    for (int step = kTopK;; ++step) {  // compiled once for all three
      if ((step == kTopK && !has_limit) || (step == kTopP && !has_share)) continue;
      if (step == kDraw && cuts_.min_p > 0.0f && thread() == 0) {
        least_ = cuts_.min_p;
        has_bins_ = false;
      }
      block_sync();
      const Place found = first_beyond(step);
      if (step == kDraw) return token_of(found);
      if (found.token >= 0 && thread() == 0) last_ = found;
      block_sync();
      if (step == kTopK && cuts_.top_k <= kFew && !is_listed_) list_tokens();
    }
  }

 private:
  enum Step { kTopK, kTopP, kDraw };
  // Beyond that a weight is nothing.
  static constexpr f32 kFarthest = 31.0f;
  static constexpr i32 kFew = 8 * kThreads;  // once top-k left no more, nobody looks at all tokens again
  // A token's number in the code that orders tokens; above it is how far from the largest it is, in 2^-27.
  static constexpr int kTokenBits = 22;
  static_assert(sampling::kMaxTokens <= 1 << kTokenBits);
  // Of octaves_: bins' sums in units of 2^-44.
  static constexpr u32 kAllOctaves = 20 << 16;
  static constexpr int kOwnBins = sampling::kBins / kThreads;  // of a thread

  // Which tokens are looked at: all; those of a bin; or of these the ones with 2^shift codes from `begin`.
  struct Part {
    f32 from = -kInfinity, to = kInfinity;  // in bins
    i64 begin = 0;
    int shift = 63;
  };

  i32 token_of(Place found) const { return found.token < 0 ? best_ : found.token; }
  f32 distance(f32 logit) const { return (largest_ - logit) * scale_; }
  // In one go, without the branches of && and ||.
  bool is_asked(Place at, f32 away) const {
    const bool is_kept = (at.logit > last_.logit) | ((at.logit == last_.logit) & (at.token <= last_.token));
    return (at.token >= 0) & (away < kFarthest) & is_kept;
  }
  // What a token that is asked for adds to a sum.
  u64 measure(int step, i32 token, f32 away, u32 bits = kWholeBits) const {
    if (step == kTopK) return 1;
    const f32 share = exp_normal(-away);
    return ((share < least_) & (token != best_)) ? 0 : whole_weight(share, bits);
  }
  // A sum exceeds the target with the last token that top-k or top-p keep, or with the one that is drawn.
  u64 target(int step, u64 total) const {
    if (step == kTopK) return static_cast<u64>(cuts_.top_k) - 1;
    const double wanted = (step == kTopP ? static_cast<double>(cuts_.top_p) : uniform_) * static_cast<double>(total);
    u64 whole = wanted > 0 ? static_cast<u64>(wanted) : 0;
    if (step == kTopP && static_cast<double>(whole) >= wanted && whole > 0) --whole;
    return whole;
  }

  i32 bin_of(f32 away) const {
    return static_cast<i32>(min(max(away, 0.0f) * bins_per_unit_, static_cast<f32>(sampling::kBins - 1)));
  }
  // Weights of a bin have 24 bits each, so they are all multiples of what the lowest of the least one may be: sums are
  // kept in units of 2^-bits, in which a weight hardly ever reaches the high word.
  u32 bits_of(i32 bin) const {
    const u32 bits = 25 + (static_cast<u32>(bin + 1) * octaves_ >> 16);
    return bin == sampling::kBins - 1 || bits > kWholeBits ? kWholeBits : bits;
  }
  static i64 code_of(i32 token, f32 away) {
    return static_cast<i64>(static_cast<u32>(max(away, 0.0f) * 0x1p27f)) << kTokenBits | token;
  }
  bool is_in(Part part, i32 token, f32 away) const {
    const f32 at = away * bins_per_unit_;
    return at >= part.from && at < part.to && (code_of(token, away) - part.begin) >> part.shift == 0;
  }

  // By all lanes of a warp together: those that have no token have one below 0.
  template <int kSideBySide = kLoads, class Action>
  void each(Action action) const {
    const f32* const logits = logits_;
    const i32* const room = is_listed_ ? room_ : nullptr;
    const i32 num = num_, own = thread();
#pragma unroll 1
    for (i32 first = 0; first < num; first += kLoads * kThreads) {
      Place at[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const i32 wanted = first + i * kThreads + own, n = min(wanted, num - 1);
        const i32 token = room == nullptr ? n : room[n];
        at[i] = {logits[token], wanted < num ? token : -1};
      }
      each_loaded<kSideBySide>(at, [&](int, Place place) { action(place); });
    }
  }

  // ---- bins ----

  static void clear_bins() {
    SamplingArea& area = sampling_area();
    for (int bin = thread(); bin < sampling::kBins; bin += kThreads) area.low[bin] = area.high[bin] = 0;
    block_sync();
  }
  static void add_to_bin(i32 bin, u64 amount) {
    SamplingArea& area = sampling_area();
    if (amount == 0) return;
    const u32 low = static_cast<u32>(amount), before = atomic_add(&area.low[bin], low);
    const u32 high = static_cast<u32>(amount >> 32) + (before + low < before ? 1 : 0);
    if (high != 0) atomic_add(&area.high[bin], high);
  }
  // By all lanes of a warp together: if they all have the same bin, it is added to once.
  static void add_to_bin_together(i32 bin, u64 amount) {
    if (warp_all(bin, Larger{}) != warp_all(bin, Smaller{}))
      add_to_bin(bin, amount);
    else if (amount = warp_all(amount, Add{}); lane() == 0)
      add_to_bin(bin, amount);
  }

  // What all bins come to, those before a thread's own, and its own.
  struct BinSums {
    u64 total, before, own;
  };
  u64 sum_of_bin(i32 bin) const {
    const SamplingArea& area = sampling_area();
    return (static_cast<u64>(area.high[bin]) << 32 | area.low[bin]) << (kWholeBits - bits_of(bin));
  }
  BinSums sum_bins() const {
    SamplingArea& area = sampling_area();
    u64 sum = 0, before = 0;
    for (int i = 0; i < kOwnBins; ++i) sum += sum_of_bin(thread() * kOwnBins + i);
    const u64 own = sum;
    for (int apart = 1; apart < kWarpLanes; apart *= 2) {
      const u64 other = from_lane(sum, apart);
      if ((lane() & apart) != 0) before += other;
      sum += other;
    }
    if (lane() == 0) area.sum_of_warp[warp()] = sum;
    block_sync();
    u64 total = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp()) before += total;
      total += area.sum_of_warp[w];
    }
    return {total, before, own};
  }
  PickedBin pick_bin(BinSums bins, u64 wanted) const {
    SamplingArea& area = sampling_area();
    if (wanted >= bins.total) {
      block_sync();
      return {-1, 0};
    }
    if (bins.before <= wanted && wanted - bins.before < bins.own) {
      u64 left = wanted - bins.before;
      i32 bin = thread() * kOwnBins;
#pragma unroll 1
      for (const i32 last = bin + kOwnBins - 1; bin < last; ++bin) {
        const u64 sum = sum_of_bin(bin);
        if (left < sum) break;
        left -= sum;
      }
      area.bin = bin;
      area.left = left;
    }
    block_sync();
    const PickedBin picked = {area.bin, area.left};
    block_sync();
    return picked;
  }

  // ---- in the order of their numbers ----

  Place first_by_number() const {
    SamplingArea& area = sampling_area();
    const RowSampler row = *this;
    // The row in runs, each summed by a warp; then a run token by token.
    constexpr i32 kStep = kLoads * kWarpLanes;
    const i32 run = (row.num_ + kStep * sampling::kBins - 1) / (kStep * sampling::kBins) * kStep;
    const auto weight = [&](i32 token, f32 logit) {
      const f32 away = row.distance(logit);
      return away < kFarthest ? row.measure(kDraw, token, away) : 0;
    };
    const auto set_bin = [&](i32 bin, u64 sum) {
      area.low[bin] = static_cast<u32>(sum);
      area.high[bin] = static_cast<u32>(sum >> 32);
    };
    clear_bins();
#pragma unroll 1
    for (i32 bin = warp(); bin * run < row.num_; bin += kWarps) {
      u64 sum = 0;
      each_of(
          min((bin + 1) * run, row.num_), bin * run + lane(), kWarpLanes, [&](i32 v) { return row.logits_[v]; },
          [&](i32 v, f32 logit) { sum += weight(v, logit); });
      sum = warp_all(sum, Add{});
      if (lane() == 0) set_bin(bin, sum);
    }
    block_sync();
    i32 begin = 0;
    u64 left = 0;
#pragma unroll 1
    for (bool is_token = false;; is_token = true) {
      const BinSums bins = sum_bins();
      const PickedBin picked = pick_bin(bins, is_token ? left : row.target(kDraw, bins.total));
      if (picked.bin < 0) return kNoPlace;  // of tokens: after an abort
      if (is_token) return {0, begin + picked.bin};
      begin = picked.bin * run, left = picked.left;
#pragma unroll 1
      for (i32 bin = thread(); bin < sampling::kBins; bin += kThreads) {
        const i32 v = begin + bin;
        set_bin(bin, bin < run && v < row.num_ ? weight(v, row.logits_[v]) : 0);
      }
      block_sync();
    }
  }

  // ---- in order ----

  // The first token with which the sum exceeds the target; none if all tokens' does not.
  Place first_beyond(int step) {
    SamplingArea& area = sampling_area();
    // Top-p's bins are the draw's, too, which ends before what top-p leaves out.
    const bool has_few = num_ <= sampling::kMaxListed, is_again = step == kDraw && has_bins_;
    if (!has_few && !is_again) spread_bins(step);
    Part part;
    PickedBin picked = {-1, 0};
    u64 wanted = 0;
    i64 least = 0;
    int shift = 0;
#pragma unroll 1
    for (bool is_first = true;; is_first = false) {  // each part compiled once
      if (!has_few) {
        if (!is_first || !is_again) fill_bins(step, is_first, part, least, shift);
        const BinSums bins = sum_bins();
        u64 target_of_bins = picked.left;
        if (is_first) {
          wanted = target(step, is_again ? area.kept : bins.total);
          if (step == kTopP && thread() == 0) area.kept = bins.total;
          target_of_bins = is_again && wanted >= area.kept ? bins.total : wanted;
        }
        picked = pick_bin(bins, target_of_bins);
        if (picked.bin < 0) return kNoPlace;  // of a part: after an abort, when others write what is read here
        if (!is_first) {
          part.begin = least + (static_cast<i64>(picked.bin) << shift);
          part.shift = shift;
        } else {
          if (picked.bin > 0) part.from = static_cast<f32>(picked.bin);
          if (picked.bin < sampling::kBins - 1) part.to = static_cast<f32>(picked.bin + 1);
        }
      }
      least = kHighest;
      i64 most = 0;
      const u32 count = list_part(step, part, least, most);
      if (has_few) {
        u64 sum = 0;
        for (u32 i = static_cast<u32>(thread()); i < count; i += kThreads) sum += area.listed_sum[i];
        const u64 total = block_whole(sum, Add{});
        picked.left = target(step, total);
        if (picked.left >= total) return kNoPlace;
      }
      if (count <= sampling::kMaxListed) return first_of_list(static_cast<int>(count), picked.left, wanted);
      // The codes that there are, in as many bins.
      least = block_whole(least, Smaller{}), most = block_whole(most, Larger{});
      shift = 0;
      while ((most - least) >> shift >= sampling::kBins) ++shift;
      if (thread() == 0) {
        octaves_ = kAllOctaves;
        is_crowded_ = (most - least) >> kTokenBits == 0;
        has_bins_ = false;
      }
      block_sync();
    }
  }

  // As many bins as there are over what tokens here and there take: what lies farther away is in the last one.
  void spread_bins(int step) {
    SamplingArea& area = sampling_area();
    const i32 n = static_cast<i32>(static_cast<i64>(thread()) * num_ / kThreads);
    f32 farthest = distance(logits_[is_listed_ ? room_[n] : n]);
    farthest = warp_all(farthest < kFarthest ? farthest : 0.0f, Larger{});
    if (lane() == 0) area.farthest_of_warp[warp()] = farthest;
    block_sync();
    if (thread() == 0) {
      for (int w = 0; w < kWarps; ++w) farthest = max(farthest, area.farthest_of_warp[w]);
      is_crowded_ = farthest < 0x1p-10f;
      farthest = max(farthest, 0x1p-10f);
      bins_per_unit_ = static_cast<f32>(sampling::kBins - 1) / farthest;
      constexpr f32 kOctaves = 1.442696f * 65536;  // a unit's, in 2^-16
      octaves_ = step == kTopK ? kAllOctaves : static_cast<u32>(kOctaves / bins_per_unit_) + 1;
      has_bins_ = step == kTopP;
    }
    block_sync();
  }

  // With all tokens by bin_of(), or with a part of them by their codes from `least`.
  void fill_bins(int step, bool all, Part part, i64 least, int shift) const {
    const RowSampler row = *this;
    clear_bins();
    struct Addend {
      i32 bin = 0;
      u64 amount = 0;
    };
    const auto addend = [&](bool of_all, Place at) {
      const f32 away = row.distance(at.logit);
      Addend to;
      if (row.is_asked(at, away) && (of_all || row.is_in(part, at.token, away))) {
        to.bin = of_all ? row.bin_of(away) : static_cast<i32>((code_of(at.token, away) - least) >> shift);
        to.amount = row.measure(step, at.token, away, row.bits_of(to.bin));
      }
      return to;
    };
    const auto add = [&](bool of_all, Place at) {
      const Addend to = addend(of_all, at);
      add_to_bin(to.bin, to.amount);
    };
    // 32 lanes that add to one word take turns; where that is to be expected, they look first. What is usual, all tokens, has a
    // loop of its own, side by side.
    if (row.is_crowded_)
      each<1>([&](Place at) {
        const Addend to = addend(all, at);
        add_to_bin_together(to.bin, to.amount);
      });
    else if (all)
      each([&](Place at) { add(true, at); });
    else
      each<1>([&](Place at) { add(false, at); });
    block_sync();
  }

  // How many there are, of which kMaxListed are listed; the codes of a thread's.
  u32 list_part(int step, Part part, i64& least, i64& most) const {
    SamplingArea& area = sampling_area();
    const RowSampler row = *this;
    if (thread() == 0) area.num_listed = 0;
    block_sync();
    each([&](Place at) {
      const f32 away = row.distance(at.logit);
      if (!row.is_in(part, at.token, away) || !row.is_asked(at, away)) return;  // most are in another bin
      const u64 amount = row.measure(step, at.token, away);
      if (amount == 0) return;
      const i64 code = code_of(at.token, away);
      least = min(least, code), most = max(most, code);
      const u32 place = atomic_add(&area.num_listed, 1u);
      if (place >= sampling::kMaxListed) return;
      area.listed[place] = at;
      area.listed_sum[place] = amount;
    });
    block_sync();
    return area.num_listed;
  }

  Place first_of_list(int count, u64 left, u64 wanted) const {
    SamplingArea& area = sampling_area();
    if (thread() == 0) area.found = kNoPlace;
    block_sync();
    for (int i = thread(); i < count; i += kThreads) {
      const Place own = area.listed[i];
      u64 before = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j)
        if (area.listed[j].is_before(own)) before += area.listed_sum[j];
      if (before > left || left - before >= area.listed_sum[i]) continue;
      area.found = own;
      area.kept = wanted - left + before + area.listed_sum[i];
    }
    block_sync();
    return area.found;
  }

  // Before top-k of at most as many as there are threads: of the first token of each of many groups the k-th. Those
  // that are not behind it are k at least, and seldom many more.
  void list_top_k() {
    SamplingArea& area = sampling_area();
    Place first = kLastPlace;
    each([&](Place at) {
      if (at.token >= 0 && at.is_before(first)) first = at;
    });
    int lanes = 1;  // of a group
    for (; lanes < kWarpLanes && kThreads / (2 * lanes) >= 4 * cuts_.top_k; lanes *= 2) {
      const Place other = {from_lane(first.logit, lanes), from_lane(first.token, lanes)};
      if (other.is_before(first)) first = other;
    }
    if (lane() % lanes == 0) area.listed[thread() / lanes] = first;
    if (thread() == 0) area.found = kLastPlace;
    block_sync();
    const int num_groups = kThreads / lanes;
    for (int i = thread(); i < num_groups; i += kThreads) {
      const Place own = area.listed[i];
      int before = 0;
#pragma unroll 4
      for (int j = 0; j < num_groups; ++j) before += area.listed[j].is_before(own) ? 1 : 0;
      if (before == cuts_.top_k - 1 && own.token != kLastPlace.token) area.found = own;
    }
    block_sync();
    if (thread() == 0) last_ = area.found;
    block_sync();
    list_tokens();
  }

  // Those that are not behind the last one are few, so nobody looks at all tokens again.
  void list_tokens() {
    SamplingArea& area = sampling_area();
    const RowSampler row = *this;
    if (thread() == 0) area.num_listed = 0;
    block_sync();
    each([&](Place at) {
      if (row.is_asked(at, row.distance(at.logit))) room_[atomic_add(&area.num_listed, 1u)] = at.token;
    });
    block_sync();
    if (thread() == 0) {
      num_ = static_cast<i32>(area.num_listed);
      is_listed_ = true;
    }
    block_sync();
  }

  const f32* logits_;
  i32 num_;  // of the row, or of the list
  i32 best_;
  f32 largest_, scale_;
  Cuts cuts_;
  double uniform_;
  i32* room_;
  f32 bins_per_unit_ = 0;
  u32 octaves_ = kAllOctaves;  // of a bin, in 2^-16
  bool is_crowded_ = false, is_listed_ = false;
  bool has_bins_ = false;    // of top-p, over all tokens
  Place last_ = kLastPlace;  // those behind it are left out
  f32 least_ = 0;            // and those that weigh less
};
static_assert(sizeof(SamplingArea) + sizeof(RowSampler) <= sampling::area_bytes() && alignof(RowSampler) <= 8);

}  // namespace megalith::kernels
