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
/// rotation, for p = lane, lane + 32, ... `norm` and `cosine` may be null: then the head is neither normalised nor
/// rotated. put(d, value of d, value of d + 1) gets each pair.
template <int D, class X, class Put>
inline void each_head_pair(X x, int first, const bf16* norm, f32 eps, const f32* cosine, const f32* sine, Epoch epoch,
                           Put put) {
  constexpr int kHalf = D / 2, kPairs = D / 4, kPerLane = (kPairs + kWarpLanes - 1) / kWarpLanes;
  float2 low[kPerLane], high[kPerLane], c[kPerLane], s[kPerLane];
  u32 factors[kPerLane], more[kPerLane];
  f32 squares = 0;
  // All that is loaded is under way before anything is waited for.
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = min(lane() + i * kWarpLanes, kPairs - 1);
    factors[i] = more[i] = 0;
    c[i] = s[i] = {0, 0};
    if (norm != nullptr) {
      factors[i] = *reinterpret_cast<const u32*>(norm + 2 * p);
      more[i] = *reinterpret_cast<const u32*>(norm + kHalf + 2 * p);
    }
    if (cosine != nullptr) {
      c[i] = *reinterpret_cast<const float2*>(cosine + 2 * p);
      s[i] = *reinterpret_cast<const float2*>(sine + 2 * p);
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = lane() + i * kWarpLanes;
    low[i] = high[i] = {0, 0};
    if (p < kPairs) {
      u32 a, b;
      get_two_pairs(x, first + 2 * p, first + kHalf + 2 * p, epoch, a, b);
      low[i] = {low_f32(a), high_f32(a)};
      high[i] = {low_f32(b), high_f32(b)};
      squares += low[i].x * low[i].x + low[i].y * low[i].y + (high[i].x * high[i].x + high[i].y * high[i].y);
    }
  }
  f32 scale = 1;
  if (norm != nullptr) scale = fast_rsqrt(warp_all(squares, Add{}) * (1.0f / D) + eps);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int p = lane() + i * kWarpLanes;
    if (p < kPairs) {
      float2 a = low[i], b = high[i];
      if (norm != nullptr) {
        a = {a.x * scale * low_f32(factors[i]), a.y * scale * high_f32(factors[i])};
        b = {b.x * scale * low_f32(more[i]), b.y * scale * high_f32(more[i])};
      }
      if (cosine != nullptr) {
        const float2 turned = {a.x * c[i].x - b.x * s[i].x, a.y * c[i].y - b.y * s[i].y};
        b = {b.x * c[i].x + a.x * s[i].x, b.y * c[i].y + a.y * s[i].y};
        a = turned;
      }
      put(2 * p, a.x, a.y);
      put(kHalf + 2 * p, b.x, b.y);
    }
  }
}

/// Place e of group g in row t of `qkv`; `norm` and rotation only for queries and keys.
template <class Args, class Put>
inline void each_qkv_pair(const Args& args, int t, int g, int e, const bf16* norm, bool rotates, Put put) {
  constexpr int D = 2 * static_cast<int>(Args::H), G = static_cast<int>(Args::G), E = static_cast<int>(Args::E);
  f32 eps = 0;
  if constexpr (requires { Args::eps; }) eps = Args::eps;
  const int row = args.position[t] * (D / 2);
  each_head_pair<D>(args.qkv, ((t * G + g) * E + e) * D, norm, eps, rotates ? args.cosine + row : nullptr,
                    args.sine + row, args.epoch, put);
}

/// Past the first-level cache, which keeps what all layers ask for: the tables of the batch, cosines, sines.
inline uint4 load_once(const bf16* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

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
  /// All lanes of the warp call it; the group's position counts if `active`. `q`: [M, kStride] in shared memory, this
  /// lane's eight values.
  template <int kStride>
  void add(const f32* q, const f32 (&key)[8], const f32 (&value)[8], f32 scale, bool active) {
    f32 score[M];
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const float4 a = *reinterpret_cast<const float4*>(q + m * kStride);
      const float4 b = *reinterpret_cast<const float4*>(q + m * kStride + 4);
      score[m] = fma(a.x, key[0], fma(a.y, key[1], fma(a.z, key[2], a.w * key[3]))) +
                 fma(b.x, key[4], fma(b.y, key[5], fma(b.z, key[6], b.w * key[7])));
    }
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
#pragma unroll
      for (int m = 0; m < M; ++m) score[m] += from_lane(score[m], apart);
    if (!active) return;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const f32 s = score[m] * scale, larger = max(top[m], s);
      const f32 keep = fast_exp(top[m] - larger), weight = fast_exp(s - larger);
      top[m] = larger;
      total[m] = fma(total[m], keep, weight);
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
        const f32 other_top = from_lane(top[m], apart), larger = max(max(top[m], other_top), -1e30f);
        const f32 mine = fast_exp(top[m] - larger), other = fast_exp(other_top - larger);
        total[m] = total[m] * mine + from_lane(total[m], apart) * other;
        top[m] = max(top[m], other_top);
#pragma unroll
        for (int j = 0; j < 8; ++j) part[m][j] = part[m][j] * mine + from_lane(part[m][j], apart) * other;
      }
  }
};

/// Chunk c of the positions of one row (ops/attention_qkv.h). A worker's groups of lanes take a position each: first
/// the chunk's cached ones, which are loaded before anything is waited for, then those of this iteration's rows. What
/// the task's operands are is looked up where it is needed: kept from start to end, it would spill.
template <bool kNorm, class Args>
class ChunkAttention {
  static constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::M), kLanes = D / 8;
  static constexpr int L = static_cast<int>(Args::L), C = static_cast<int>(Args::C), B = static_cast<int>(Args::B);
  static constexpr int A = static_cast<int>(Args::G * Args::M);
  static constexpr int kGroups = kWarpLanes / kLanes, kAtOnce = kWarps * kGroups;
  static_assert(D % 8 == 0 && kLanes <= kWarpLanes && (kLanes & (kLanes - 1)) == 0 && M <= kWarps);
  // What warps hand to each other: per warp and head D values, the top and the total.
  static constexpr int kEntry = D + 2;

 public:
  ChunkAttention(decltype(Args::task) task, int t, int g, int c) : task_(task), t_(t), g_(g), c_(c) {}

  void run() {
    const int start = args().start[t_], request = args().request[t_];
    const int cycle = start / (C * L), rest = start % (C * L);
    const int cached = cycle * L + min(max(rest - c_ * L, 0), L);
    const int fresh = num_fresh(request), count = cached + fresh;
    if (count == 0) return put_nothing();
    uint4 next_key, next_value;
    load(0, cached, request, next_key, next_value);
    stage_heads(fresh);
    block_sync();
    inputs_are_ready(args().epoch);

    const f32* const q = heads() + lane() % kLanes * 8;
    OnlineSoftmax<M, kLanes> softmax;
    softmax.clear();
#pragma unroll 1
    for (int at = 0; at < count; at += kAtOnce) {
      f32 key[8], value[8];
      unpack(next_key, key);
      unpack(next_value, value);
      const int n = at + place();
      bool active = n < count;
      if (active && n >= cached) active = take_fresh(n - cached, request, key, value);
      load(at + kAtOnce, cached, request, next_key, next_value);
      softmax.template add<D>(q, key, value, Args::scale, active);
    }
    softmax.join_groups();
    put_joined(softmax);
  }

 private:
  static f32* heads() { return reinterpret_cast<f32*>(shared_area() + stream::kSumsBytes); }
  static f32* joined() { return heads() + (M + 2 * static_cast<int>(Args::T_largest)) * D; }
  static int place() { return warp() * kGroups + lane() / kLanes; }
  int result(int m) const { return (t_ * C + c_) * A + g_ * M + m; }
  Args args() const { return Args::of(*task_); }

  /// The chunk's cached position number at + place().
  void load(int at, int cached, int request, uint4& key, uint4& value) const {
    const int n = at + place();
    key = value = {0, 0, 0, 0};
    if (n >= cached) return;
    const int position = (n / L * C + c_) * L + n % L;
    const Args args = this->args();
    const int page = args.page_table[request * static_cast<int>(Args::Q) + position / B];
    const i64 element = ((i64(page) * B + position % B) * Args::G + g_) * D + lane() % kLanes * 8;
    key = load_once(args.k_cache + element);
    value = load_once(args.v_cache + element);
  }

  bool holds(int position) const { return position / L % C == c_; }
  /// Rows of this iteration to look at: all, if the chunk has one of this request's.
  int num_fresh(int request) const {
    const Args args = this->args();
    if constexpr (Args::T_largest == 1) {
      return holds(args.position[t_]) ? 1 : 0;
    } else {
      const int rows = static_cast<int>(args.T);
      bool any = false;
      for (int u = 0; u < rows; ++u) any = any || (args.request[u] == request && holds(args.position[u]));
      return any ? rows : 0;
    }
  }

  // This row's queries; the keys and values of `fresh` rows of the iteration.
  void stage_heads(int fresh) const {
    const Args args = this->args();
    const int num_heads = M + 2 * fresh;
#pragma unroll 1
    for (int h = warp(); h < num_heads; h += kWarps) {
      const bool is_query = h < M, is_value = !is_query && (h - M) % 2 == 1;
      const bf16* norm = nullptr;
      if constexpr (kNorm) norm = is_query ? args.q_norm : is_value ? nullptr : args.k_norm;
      each_qkv_pair(args, is_query ? t_ : (h - M) / 2, g_, is_query ? h : M + (h - M) % 2, norm, !is_value,
                    [&](int d, f32 a, f32 b) {
                      *reinterpret_cast<float2*>(heads() + h * D + d) = {a, b};
                    });
    }
  }

  /// Row u's key and value, if it counts for this one.
  bool take_fresh(int u, int request, f32 (&key)[8], f32 (&value)[8]) const {
    if constexpr (Args::T_largest > 1) {
      const Args args = this->args();
      const int position = args.position[u];
      if (args.request[u] != request || position > args.position[t_] || !holds(position)) return false;
    }
    const f32* const from = heads() + (M + 2 * u) * D + lane() % kLanes * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      key[j] = from[j];
      value[j] = from[D + j];
    }
    return true;
  }

  void put_nothing() const {
    const Args args = this->args();
#pragma unroll 1
    for (int i = 2 * thread(); i < M * D; i += 2 * kThreads)
      put_two(args.part, result(0) * D + i, 0.0f, 0.0f, args.epoch);
    if (thread() < M) {
      put(args.top, result(thread()), -kInfinity, args.epoch);
      put(args.total, result(thread()), 0.0f, args.epoch);
    }
  }

  // A head at a time by so many warps that each thread has one or more pairs of values.
  void put_joined(const OnlineSoftmax<M, kLanes>& softmax) const {
    if (lane() < kLanes) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        f32* const to = joined() + (warp() * M + m) * kEntry;
#pragma unroll
        for (int j = 0; j < 8; j += 2)
          *reinterpret_cast<float2*>(to + lane() * 8 + j) = {softmax.part[m][j], softmax.part[m][j + 1]};
        if (lane() == 0) *reinterpret_cast<float2*>(to + D) = {softmax.top[m], softmax.total[m]};
      }
    }
    block_sync();
    constexpr int kWarpsPerHead = kWarps / M, kPairs = D / 2;
    const int m = warp() / kWarpsPerHead;
    if (m < M) {
      const Args args = this->args();
      const f32* const from = joined() + m * kEntry;
      float2 one = {-kInfinity, 0};
      if (lane() < kWarps) one = *reinterpret_cast<const float2*>(from + lane() * (M * kEntry) + D);
      const f32 top = warp_all(one.x, Larger{}), weight = fast_exp(one.x - top);
      const f32 total = warp_all(weight * one.y, Add{});
#pragma unroll 1
      for (int p = warp() % kWarpsPerHead * kWarpLanes + lane(); p - lane() < kPairs; p += kWarpsPerHead * kWarpLanes) {
        float2 part = {0, 0};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const f32 share = __shfl_sync(0xffffffffu, weight, w);
          if (p < kPairs) {
            const float2 of_warp = *reinterpret_cast<const float2*>(from + w * (M * kEntry) + 2 * p);
            part.x = fma(share, of_warp.x, part.x);
            part.y = fma(share, of_warp.y, part.y);
          }
        }
        if (p < kPairs) put_two(args.part, result(m) * D + 2 * p, part.x, part.y, args.epoch);
      }
      if (warp() % kWarpsPerHead == 0 && lane() == 0) {
        put(args.top, result(m), top, args.epoch);
        put(args.total, result(m), total, args.epoch);
      }
    }
    block_sync();
  }

  const decltype(Args::task) task_;
  const int t_, g_, c_;
};

template <bool kNorm, class Args>
inline void attention_chunks(const Args& args) {
  const auto task = args.task;
  int t = static_cast<int>(args.t_begin), g = static_cast<int>(args.g_begin), c = static_cast<int>(args.c_begin);
  if (t >= rows_of(args)) return;
  for (;;) {
    ChunkAttention<kNorm, Args>(task, t, g, c).run();
    const Args bounds = Args::of(*task);
    if (++c < bounds.c_end) continue;
    c = static_cast<int>(bounds.c_begin);
    if (++g < bounds.g_end) continue;
    g = static_cast<int>(bounds.g_begin);
    if (++t >= min(bounds.t_end, rows_of(bounds))) return;
  }
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
  float2* const sums = reinterpret_cast<float2*>(shared_area() + stream::kSumsBytes);  // [kGroups, kPairs]
  const int p = thread() % kPairs, group = thread() / kPairs;
  const int t_end = static_cast<int>(min(args.t_end, rows_of(args))), a_end = static_cast<int>(args.a_end);
#pragma unroll 1
  for (int t = static_cast<int>(args.t_begin); t < t_end; ++t)
#pragma unroll 1
    for (int a = static_cast<int>(args.a_begin); a < a_end; ++a) {
      decltype(look_two(args.part, 0)) seen[kPerGroup];
#pragma unroll
      for (int i = 0; i < kPerGroup; ++i) {
        const int c = group + i * kGroups;
        seen[i] = look_two(args.part, ((t * C + (c < C ? c : 0)) * A + a) * D + 2 * p);
      }
      f32 top = -kInfinity, total = 0;
      if (lane() < C) {
        const int of_lane = (t * C + lane()) * A + a;
        const auto top_seen = look(args.top, of_lane);
        const auto total_seen = look(args.total, of_lane);
        top = get(top_seen, args.top, of_lane, args.epoch);
        total = get(total_seen, args.total, of_lane, args.epoch);
      }
      const f32 weight = fast_exp(top - warp_all(top, Larger{})), all = warp_all(weight * total, Add{});
      inputs_are_ready(args.epoch);
      float2 sum = {0, 0};
#pragma unroll
      for (int i = 0; i < kPerGroup; ++i) {
        const int c = group + i * kGroups;
        const f32 share = __shfl_sync(0xffffffffu, weight, c % kWarpLanes);
        if (c < C) {
          const float2 part = get_two(seen[i], args.part, ((t * C + c) * A + a) * D + 2 * p, args.epoch);
          sum.x = fma(share, part.x, sum.x);
          sum.y = fma(share, part.y, sum.y);
        }
      }
      sums[group * kPairs + p] = sum;
      block_sync();
      if (thread() < kPairs) {
        float2 y = {0, 0};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          y.x += sums[i * kPairs + p].x;
          y.y += sums[i * kPairs + p].y;
        }
        const f32 factor = fast_divide(1.0f, all);
        put_pair(args.y, (t * A + a) * D + 2 * p, y.x * factor, y.y * factor, args.epoch);
      }
      block_sync();
    }
}

/// Writes the keys and values of this iteration's rows into the cache, behind everybody who reads it: a head a warp.
template <bool kNorm, class Args>
inline void append_heads(const Args& args) {
  constexpr int D = 2 * static_cast<int>(Args::H), M = static_cast<int>(Args::E) - 2, B = static_cast<int>(Args::B);
  const int groups = static_cast<int>(args.g_end - args.g_begin), num_heads = 2 * static_cast<int>(args.T) * groups;
#pragma unroll 1
  for (int h = warp(); h < num_heads; h += kWarps) {
    const int g = static_cast<int>(args.g_begin) + h / 2 % groups, t = h / (2 * groups), position = args.position[t];
    const int page = args.page_table[args.request[t] * static_cast<int>(Args::Q) + position / B];
    bf16* const to = (h % 2 == 0 ? args.k_cache : args.v_cache) + ((i64(page) * B + position % B) * Args::G + g) * D;
    const bf16* norm = nullptr;
    if constexpr (kNorm) norm = h % 2 == 0 ? args.k_norm : nullptr;
    each_qkv_pair(args, t, g, M + h % 2, norm, h % 2 == 0,
                  [&](int d, f32 a, f32 b) { *reinterpret_cast<u32*>(to + d) = pack_bf16(a, b); });
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
