// Attention of a decoder on a GPU, with everything that stands around it folded in: q/k norm and rotation are worked
// out by whoever needs a head, because that costs less than another exchange between workers. The tensor `qkv` has, for
// each group of query heads, the M heads, then their key, then their value.
//
// Keys and values of earlier iterations come from the cache; those of this iteration's rows from `qkv` itself, so that
// nobody waits for the cache to be written. Loads of the cache are under way before the first wait.
#pragma once

#include "megalith/kernels/cuda/reduce.cuh"
#include "megalith/kernels/cuda/ring.cuh"
#include "megalith/kernels/cuda/words.cuh"

namespace megalith::kernels {

/// One head of one row by one warp: each lane has values 2 p, 2 p + 1 and, half a head further, their partners in the
/// rotation, for p = lane, lane + 32, ...
template <int D>
struct HeadLanes {
  static constexpr int kHalf = D / 2, kPairs = D / 4, kPerLane = (kPairs + kWarpLanes - 1) / kWarpLanes;
  float2 low[kPerLane], high[kPerLane];

  template <class X>
  void load(X x, i64 first, Epoch epoch) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = lane() + i * kWarpLanes;
      low[i] = high[i] = {0, 0};
      if (p >= kPairs) continue;
      const u32 a = get_pair(x, first + 2 * p, epoch), b = get_pair(x, first + kHalf + 2 * p, epoch);
      low[i] = {low_f32(a), high_f32(a)};
      high[i] = {low_f32(b), high_f32(b)};
    }
  }
  void normalise(const bf16* weight, f32 eps) {
    f32 squares = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      squares += low[i].x * low[i].x + low[i].y * low[i].y + (high[i].x * high[i].x + high[i].y * high[i].y);
    const f32 scale = rsqrt(warp_all(squares, Add{}) / static_cast<f32>(D) + eps);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = lane() + i * kWarpLanes;
      if (p >= kPairs) continue;
      low[i].x *= scale * to_f32(weight[2 * p]);
      low[i].y *= scale * to_f32(weight[2 * p + 1]);
      high[i].x *= scale * to_f32(weight[kHalf + 2 * p]);
      high[i].y *= scale * to_f32(weight[kHalf + 2 * p + 1]);
    }
  }
  /// `cosine`, `sine`: the row of the tables for the position.
  void rotate(const f32* cosine, const f32* sine) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = lane() + i * kWarpLanes;
      if (p >= kPairs) continue;
      const float2 c = *reinterpret_cast<const float2*>(cosine + 2 * p), s = *reinterpret_cast<const float2*>(sine + 2 * p);
      const float2 a = low[i], b = high[i];
      low[i] = {a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y};
      high[i] = {b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y};
    }
  }
  /// put(d, value of d, value of d + 1) for each pair.
  template <class Put>
  void each_pair(Put put) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int p = lane() + i * kWarpLanes;
      if (p >= kPairs) continue;
      put(2 * p, low[i].x, low[i].y);
      put(kHalf + 2 * p, high[i].x, high[i].y);
    }
  }
};

/// A head of `qkv` as attention wants it: place e of group g, of row t.
template <bool kNorm, bool kRotate, class Args>
inline auto load_head(const Args& args, int t, i64 g, int e, const bf16* norm) {
  constexpr int D = 2 * static_cast<int>(Args::H);
  HeadLanes<D> head;
  head.load(args.qkv, ((t * Args::G + g) * Args::E + e) * D, args.epoch);
  if constexpr (kNorm) head.normalise(norm, Args::eps);
  if constexpr (kRotate) {
    const i64 row = args.position[t] * Args::H;
    head.rotate(args.cosine + row, args.sine + row);
  }
  return head;
}

/// Keys and values that a group of lanes holds of one position, eight of D each.
struct KeyValue {
  uint4 key, value;
};
inline void unpack(uint4 from, f32 (&to)[8]) {
  to[0] = low_f32(from.x), to[1] = high_f32(from.x), to[2] = low_f32(from.y), to[3] = high_f32(from.y);
  to[4] = low_f32(from.z), to[5] = high_f32(from.z), to[6] = low_f32(from.w), to[7] = high_f32(from.w);
}

/// softmax(q k^T) v, as far as a group of kLanes lanes has come: the M query heads of one key head.
template <int M, int kLanes>
struct OnlineSoftmax {
  f32 top[M], total[M], part[M][8];

  void clear() {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      top[m] = -kInfinity;
      total[m] = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) part[m][j] = 0;
    }
  }
  /// All lanes of the warp call it; the group's position counts if `active`.
  void add(const f32 (&q)[M][8], const f32 (&key)[8], const f32 (&value)[8], bool active) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      f32 score = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) score = fma(q[m][j], key[j], score);
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) score += from_lane(score, apart);
      if (!active) continue;
      const f32 larger = max(top[m], score), keep = __expf(top[m] - larger), weight = __expf(score - larger);
      top[m] = larger;
      total[m] = total[m] * keep + weight;
#pragma unroll
      for (int j = 0; j < 8; ++j) part[m][j] = fma(weight, value[j], part[m][j] * keep);
    }
  }
  /// Joins the warp's groups: afterwards the first one has what all had.
  void join_groups() {
#pragma unroll
    for (int apart = kLanes; apart < kWarpLanes; apart *= 2)
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const f32 other_top = from_lane(top[m], apart), other_total = from_lane(total[m], apart);
        const f32 larger = max(top[m], other_top);
        const f32 mine = top[m] == -kInfinity ? 0.0f : __expf(top[m] - larger);
        const f32 other = other_top == -kInfinity ? 0.0f : __expf(other_top - larger);
        top[m] = larger;
        total[m] = total[m] * mine + other_total * other;
#pragma unroll
        for (int j = 0; j < 8; ++j) part[m][j] = part[m][j] * mine + from_lane(part[m][j], apart) * other;
      }
  }
};

/// Chunk c of the positions of one row (ops/attention_partial_qkv.cpp).
template <bool kNorm, class Args>
class ChunkAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::M), kLanes = D / 8;
  static constexpr int kGroups = kWarpLanes / kLanes, kAtOnce = kWarps * kGroups;
  static_assert(D % 8 == 0 && kLanes <= kWarpLanes && (kLanes & (kLanes - 1)) == 0);
  using Softmax = OnlineSoftmax<M, kLanes>;

 public:
  ChunkAttention(const Args& args, int t, i64 g, i64 c)
      : args_(args), t_(t), g_(g), c_(c), request_(args.request[t]), start_(args.start[t]) {
    heads_ = reinterpret_cast<f32*>(args.area);
    joined_ = heads_ + (M + 2 * Args::T_largest) * D;
  }

  void run() {
    const i64 cycle = start_ / (Args::C * Args::L), rest = start_ % (Args::C * Args::L);
    const int count = static_cast<int>(cycle * Args::L + clamp(rest - c_ * Args::L, i64(0), i64(Args::L)));
    if (count == 0 && c_ != 0) return put_nothing();
    KeyValue next = load(0, count);
    stage_heads();
    block_sync();

    const int first = (lane() % kLanes) * 8;
    f32 q[M][8];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int j = 0; j < 8; ++j) q[m][j] = heads_[m * D + first + j] * Args::scale;
    Softmax softmax;
    softmax.clear();
    for (int at = 0; at < count; at += kAtOnce) {
      const KeyValue now = next;
      next = load(at + kAtOnce, count);
      f32 key[8], value[8];
      unpack(now.key, key);
      unpack(now.value, value);
      softmax.add(q, key, value, at + place() < count);
    }
    if (c_ == 0) add_fresh(softmax, q, first);
    softmax.join_groups();
    put_joined(softmax, first);
  }

 private:
  int place() const { return warp() * kGroups + lane() / kLanes; }

  /// The chunk's cached position number at + place().
  KeyValue load(int at, int count) const {
    const int n = at + place();
    if (n >= count) return {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const i64 position = (n / Args::L * Args::C + c_) * Args::L + n % Args::L;
    const i64 page = args_.page_table[request_ * Args::Q + position / Args::B];
    const i64 element = ((page * Args::B + position % Args::B) * Args::G + g_) * D + (lane() % kLanes) * 8;
    return {*reinterpret_cast<const uint4*>(args_.k_cache + element),
            *reinterpret_cast<const uint4*>(args_.v_cache + element)};
  }

  // This row's queries; for chunk 0 the keys and values of all rows of the iteration.
  void stage_heads() {
    const int num_heads = M + (c_ == 0 ? 2 * static_cast<int>(args_.T) : 0);
    for (int h = warp(); h < num_heads; h += kWarps) {
      const auto put = [&](int d, f32 a, f32 b) {
        heads_[h * D + d] = a;
        heads_[h * D + d + 1] = b;
      };
      const int u = (h - M) / 2;
      if (h < M)
        load_head<kNorm, true>(args_, t_, g_, h, query_norm()).each_pair(put);
      else if ((h - M) % 2 == 0)
        load_head<kNorm, true>(args_, u, g_, M, key_norm()).each_pair(put);
      else
        load_head<false, false>(args_, u, g_, M + 1, nullptr).each_pair(put);
    }
  }
  const bf16* query_norm() const {
    if constexpr (kNorm) return args_.q_norm;
    return nullptr;
  }
  const bf16* key_norm() const {
    if constexpr (kNorm) return args_.k_norm;
    return nullptr;
  }

  void add_fresh(Softmax& softmax, const f32 (&q)[M][8], int first) const {
    const int rows = static_cast<int>(args_.T);
    for (int base = 0; base < rows; base += kAtOnce) {
      const int u = base + place();
      const bool active = u < rows && args_.request[u] == request_ && args_.position[u] <= args_.position[t_];
      f32 key[8], value[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        key[j] = active ? heads_[(M + 2 * u) * D + first + j] : 0.0f;
        value[j] = active ? heads_[(M + 2 * u + 1) * D + first + j] : 0.0f;
      }
      softmax.add(q, key, value, active);
    }
  }

  void put_nothing() const {
    for (int i = thread(); i < M * D; i += kThreads) put(args_.part, result(i / D) * D + i % D, 0.0f, args_.epoch);
    if (thread() < M) {
      put(args_.top, result(thread()), -kInfinity, args_.epoch);
      put(args_.total, result(thread()), 0.0f, args_.epoch);
    }
  }
  i64 result(int m) const { return (t_ * Args::C + c_) * (Args::G * Args::M) + g_ * Args::M + m; }

  // All warps' parts into one: shared memory holds, per warp and head, D values, the top and the total.
  void put_joined(const Softmax& softmax, int first) {
    constexpr int kEntry = D + 2;
    if (lane() < kLanes) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        f32* const to = joined_ + (warp() * M + m) * kEntry;
#pragma unroll
        for (int j = 0; j < 8; ++j) to[first + j] = softmax.part[m][j];
        if (lane() == 0) {
          to[D] = softmax.top[m];
          to[D + 1] = softmax.total[m];
        }
      }
    }
    block_sync();
    for (int i = thread(); i < M * D; i += kThreads) {
      const int m = i / D, d = i % D;
      const f32* const from = joined_ + m * kEntry;
      f32 top = -kInfinity, total = 0, part = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) top = max(top, from[w * M * kEntry + D]);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const f32* const one = from + w * M * kEntry;
        const f32 weight = one[D] == -kInfinity ? 0.0f : __expf(one[D] - top);
        total += weight * one[D + 1];
        part += weight * one[d];
      }
      put(args_.part, result(m) * D + d, part, args_.epoch);
      if (d == 0) {
        put(args_.top, result(m), top, args_.epoch);
        put(args_.total, result(m), total, args_.epoch);
      }
    }
    block_sync();
  }

  const Args& args_;
  const int t_;
  const i64 g_, c_, request_, start_;
  f32 *heads_, *joined_;
};

template <bool kNorm, class Args>
inline void attention_chunks(const Args& args) {
  for (i64 t = args.t_begin; t < min(args.t_end, i64(args.T)); ++t)
    for (i64 g = args.g_begin; g < args.g_end; ++g)
      for (i64 c = args.c_begin; c < args.c_end; ++c)
        ChunkAttention<kNorm, Args>(args, static_cast<int>(t), g, c).run();
}
template <class Args>
inline void attention_partial_norm(const Args& args) {
  attention_chunks<true>(args);
}
template <class Args>
inline void attention_partial_plain(const Args& args) {
  attention_chunks<false>(args);
}

/// Puts the chunks of one head together: every warp works out their weights, groups of threads sum a share each.
template <class Args>
inline void merge_chunks(const Args& args) {
  constexpr int D = static_cast<int>(Args::D), C = static_cast<int>(Args::C), A = static_cast<int>(Args::A);
  constexpr int kPairs = D / 2, kGroups = kThreads / kPairs, kPerGroup = (C + kGroups - 1) / kGroups;
  static_assert(C <= kWarpLanes && kThreads % kPairs == 0);
  float2* const sums = reinterpret_cast<float2*>(args.area);  // [kGroups, kPairs]
  const int p = thread() % kPairs, group = thread() / kPairs;
  for (i64 t = args.t_begin; t < min(args.t_end, i64(args.T)); ++t)
    for (i64 a = args.a_begin; a < args.a_end; ++a) {
      f32 top = -kInfinity, total = 0;
      if (lane() < C) {
        const i64 at = (t * C + lane()) * A + a;
        top = get(args.top, at, args.epoch);
        total = get(args.total, at, args.epoch);
      }
      const f32 largest = warp_all(top, Larger{});
      const f32 weight = top == -kInfinity ? 0.0f : __expf(top - largest);
      const f32 all = warp_all(weight * total, Add{});
      float2 sum = {0, 0};
#pragma unroll
      for (int i = 0; i < kPerGroup; ++i) {
        const int c = group + i * kGroups;
        const f32 share = __shfl_sync(0xffffffffu, weight, c % kWarpLanes);
        if (c >= C || share == 0) continue;
        const i64 at = ((t * C + c) * A + a) * D + 2 * p;
        sum.x = fma(share, get(args.part, at, args.epoch), sum.x);
        sum.y = fma(share, get(args.part, at + 1, args.epoch), sum.y);
      }
      sums[group * kPairs + p] = sum;
      block_sync();
      if (thread() < kPairs) {
        float2 y = {0, 0};
        for (int i = 0; i < kGroups; ++i) {
          y.x += sums[i * kPairs + p].x;
          y.y += sums[i * kPairs + p].y;
        }
        put_pair(args.y, (t * A + a) * D + 2 * p, y.x / all, y.y / all, args.epoch);
      }
      block_sync();
    }
}

/// Writes the keys and values of this iteration's rows into the cache, behind everybody who reads it.
template <bool kNorm, class Args>
inline void append_heads(const Args& args) {
  const int M = static_cast<int>(Args::E) - 2;
  for (i64 g = args.g_begin; g < args.g_end; ++g)
    for (int h = warp(); h < 2 * static_cast<int>(args.T); h += kWarps) {
      const int t = h / 2;
      const i64 position = args.position[t];
      const i64 page = args.page_table[args.request[t] * Args::Q + position / Args::B];
      const i64 first = ((page * Args::B + position % Args::B) * Args::G + g) * (2 * Args::H);
      auto put = [&](bf16* cache) {
        return [=](int d, f32 a, f32 b) { *reinterpret_cast<u32*>(cache + first + d) = pack_bf16(a, b); };
      };
      if (h % 2 == 0) {
        const bf16* norm = nullptr;
        if constexpr (kNorm) norm = args.k_norm;
        load_head<kNorm, true>(args, t, g, M, norm).each_pair(put(args.k_cache));
      } else {
        load_head<false, false>(args, t, g, M + 1, nullptr).each_pair(put(args.v_cache));
      }
    }
}
template <class Args>
inline void append_norm(const Args& args) {
  append_heads<true>(args);
}
template <class Args>
inline void append_plain(const Args& args) {
  append_heads<false>(args);
}

}  // namespace megalith::kernels
