// A GPU's attention of many rows (warpgroup_per_token.cuh) and of prompts (query_tile.cuh) on a block of the host's
// threads, against f64. Copies are made when they are waited for, not before. And who writes the cache behind it
// (attention/kv_append.cuh).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_attention_rows
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 136 << 10, .area_bytes = 112 << 10, .stream_rows = 256};
}

#include "at_lines.h"
#include "megalith/kernels/cuda/attention/kv_append.cuh"
#include "megalith/kernels/cuda/attention/query_tile.cuh"
#include "megalith/kernels/cuda/attention/warpgroup_per_token.cuh"
#include "megalith/kernels/cuda/pipeline/copy_warp.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

/// A phase is counted when it ends.
bool barrier_passed(Barrier* barrier, u32 parity) {
  const auto is_one_of = [&](const auto& barriers) {
    return std::ranges::any_of(barriers, [&](const Barrier& other) { return &other == barrier; });
  };
  give_way();
  const u64 arrivals = __atomic_load_n(barrier, __ATOMIC_ACQUIRE), of_phase = is_one_of(key_ring.full)    ? kWarpLanes
                                                                              : is_one_of(key_ring.empty) ? kWarps
                                                                                                          : 1;
  return (arrivals / of_phase & 1) != parity;
}

namespace {

/// Heads of D values, of which kGroups groups of M share a key; at most kRows rows, of which a task has up to five and
/// two groups. Rows of the cache lie one behind the other, or heads in pairs.
template <int kHeadValues, int kHeads, bool kHasNorm, int kRowsOfAll, int kGroups, int kPage = 16,
          bool kInPairs = false>
struct Shape {
  static constexpr int D = kHeadValues, M = kHeads, kRows = kRowsOfAll, G = kGroups, B = kPage;
  static constexpr bool kNorm = kHasNorm, kPaired = kInPairs;
  static constexpr int W = D / 2;
  static constexpr bool kTakesTiles = attention::takes_query_tiles(kRows, D);
  using Table = f32;
};
/// With tables of other values and of so many columns.
template <class Of, class Value, int kColumns = Of::D>
struct Turned : Of {
  static constexpr int W = kColumns;
  using Table = Value;
};
void set(f32& to, f32 value) { to = value; }
void set(bf16& to, f32 value) { to = to_bf16(value); }
f64 number(f32 value) { return value; }
f64 number(bf16 value) { return to_f32(value); }

constexpr int kRequests = 3, kPositions = 320;
using Cache = std::vector<bf16, AtLines<bf16>>;
template <class Of, class T>
struct CacheOf {
  static constexpr i64 kElements = i64(kRequests) * kPositions * Of::G * Of::D;
  using Type = T*;
};
template <class Of, class T>
requires Of::kPaired struct CacheOf<Of, T> {
  static constexpr i64 kElements = i64(kRequests) * kPositions * Of::G * Of::D;
  using Type = Paired<T, kElements>;
  static_assert(head_pairs::fits(kRequests * kPositions / Of::B, Of::B, Of::G, Of::D * 2));
};

/// The operands of a `rope_attention_cached`.
template <class Of>
struct CachedTask {
  static constexpr i64 H = Of::D / 2, W = Of::W, M = Of::M, E = M + 2, G = Of::G, B = Of::B, Q = kPositions / B,
                       P = kRequests * Q, T_largest = Of::kRows;
  struct Checks {
    static constexpr u32 page_table = 0;
  };
  FaultNote faults{};  // of right data nobody notes one
  static constexpr f32 scale = 0.11f, eps = 1e-5f;
  i64 T, t_begin, t_end, g_begin, g_end;
  const bf16* qkv;                                          // (T, G, E, D)
  const bf16 *q_norm, *k_norm;                              // (D)
  const typename Of::Table *cosine, *sine;                  // (positions, W)
  typename CacheOf<Of, const bf16>::Type k_cache, v_cache;  // (pages, B, G, D)
  const i32* page_table;                                    // (requests, Q)
  bf16* y;                                                  // (T, G, M, D)
  Epoch epoch;
  static CachedTask of(const CachedTask& task) { return task; }
};
/// Those of a `rope_attention`, a part of the block for each row; or more parts of a block, with kEnough times as many rows apart as
/// need be, and of few rows among many if kByLoad.
template <class Of, int kEnough = 1, int kByLoad = 0>
struct Task : CachedTask<Of> {
  static constexpr i64 F = kEnough * ((Of::kRows + attention::kParts - 1) / attention::kParts);
  static constexpr f32 by_load = kByLoad;
  const Task* task;
  const i32* start;
  i64 r_begin, r_end;
  static Task of(const Task& task) { return task; }
};
template <class Of>
struct AllCachedTask : CachedTask<Of> {
  const AllCachedTask* task;
  static AllCachedTask of(const AllCachedTask& task) { return task; }
};
/// Of which those that stand alone have parts of the block.
template <class Of>
struct AloneTask : CachedTask<Of> {
  static constexpr f32 alone = 1;
  const AloneTask* task;
  static AloneTask of(const AloneTask& task) { return task; }
};

/// Those of a `rope_attention_chunk`: five chunks for each row that there may be.
template <class Of, bool kToAll>
struct ChunkTask : CachedTask<Of> {
  static constexpr i64 V = 5 * Of::kRows, U = kToAll ? Of::kRows : 0, L = 8, S = kPositions;
  const ChunkTask* task;
  const i32* start;
  i64 s_begin, s_end;
  Words<f32> part, softmax;  // (V, G, M, D) and (V, G, M, 2)
  static ChunkTask of(const ChunkTask& task) { return task; }
};

/// Those of a `rope_kv_append`.
template <class Of>
struct AppendTask {
  static constexpr i64 H = Of::D / 2, W = Of::W, E = Of::M + 2, G = Of::G, B = Of::B, Q = kPositions / B,
                       P = kRequests * Q, S = kPositions, R_largest = kRequests, T_largest = Of::kRows;
  struct Checks {
    static constexpr u32 page_table = 0, request = 1, position = 2;
  };
  FaultNote faults{};  // of right data nobody notes one
  static constexpr f32 eps = 1e-5f;
  i64 T, t_begin, t_end, g_begin, g_end;
  const bf16 *qkv, *k_norm;
  const typename Of::Table *cosine, *sine;
  const i32 *page_table, *request, *position;
  typename CacheOf<Of, bf16>::Type k_cache, v_cache;
  Epoch epoch;
};

template <class Of>
class AttentionRows : public ::testing::Test {
 protected:
  using Of_ = Task<Of>;
  static constexpr size_t D = Of::D, H = D / 2, W = Of::W, M = Of::M, E = M + 2, G = Of::G, B = Of::B, Q = Of_::Q;

  f32 normal() { return std::normal_distribution<f32>()(random_); }
  std::vector<bf16> some(size_t count, f32 size) {
    std::vector<bf16> values(count);
    for (bf16& value : values) value = to_bf16(size * normal());
    return values;
  }
  /// Where it is in the cache of keys or in that of values.
  size_t cached(size_t request, size_t position, size_t g, bool is_value) const {
    const auto page = static_cast<u32>(page_table_[request * Q + position / B]);
    if (!Of::kPaired) return ((page * B + position % B) * G + g) * D;
    // Runs of even heads lie one behind the other, and so do those of odd ones: each have a piece of every pair.
    const size_t byte = ((page * (G / 2) + g / 2) * B + position % B) * D * 2, pair = byte / 4096;
    const u32* const table = table_ + is_value * head_pairs::kTableWords;
    const auto in_memory_page = static_cast<u32>(pair % head_pairs::kPairsOfMemoryPage) & table[head_pairs::kMaskWord];
    const u32 turned = table[0] >> pair / head_pairs::kPairsOfMemoryPage & 1;  // no more than 32 memory pages here
    const size_t first = (static_cast<u32>(__builtin_popcount(in_memory_page)) + turned) % 2;
    return (2 * pair + (g % 2 + first) % 2) * 2048 + byte % 4096 / 2;
  }
  /// A cache for a task: its table is behind it.
  template <class T>
  static auto task_cache(std::vector<T, AtLines<T>>& cache) {
    return typename CacheOf<Of, T>::Type{cache.data()};
  }
  f64 of_qkv(size_t row, size_t g, size_t e, size_t d) const { return to_f32(qkv_[((row * G + g) * E + e) * D + d]); }

  /// Of each request how many positions are in the cache, and how many rows behind them: rows of requests in turn, so
  /// that those of one are not side by side; or all of one and then those of the next. What nobody may read is NaN.
  void make(const std::vector<size_t>& starts, const std::vector<size_t>& rows, f32 size, bool in_turn = true) {
    rows_.clear();
    for (size_t i = 0; i < *std::ranges::max_element(rows); ++i)
      for (size_t r = 0; r < rows.size(); ++r)
        if (i < rows[r]) rows_.push_back({r, starts[r] + i});
    if (!in_turn) std::ranges::stable_sort(rows_, {}, &Row::request);
    ASSERT_LE(rows_.size(), size_t{Of::kRows});
    qkv_ = some(rows_.size() * G * E * D, 1);
    q_norm_ = some(D, 1), k_norm_ = some(D, 1);
    cosine_.resize(Q * B * W), sine_.resize(cosine_.size());
    for (size_t i = 0; i < cosine_.size(); ++i) {
      const f32 angle = 3 * normal();
      set(cosine_[i], std::cos(angle)), set(sine_[i], std::sin(angle));
    }
    page_table_.resize(kRequests * Q);
    for (size_t i = 0; i < page_table_.size(); ++i) page_table_[i] = static_cast<i32>(i);
    std::ranges::shuffle(page_table_, random_);
    k_cache_.assign(page_table_.size() * B * G * D, bf16{0x7fff});
    v_cache_ = k_cache_;
    for (u32& word : table_) word = static_cast<u32>(random_());
    for (const bool is_value : {false, true}) {
      u32* const table = table_ + is_value * head_pairs::kTableWords;
      table[head_pairs::kMaskWord] = table_[head_pairs::kMaskWord] % head_pairs::kPairsOfMemoryPage;  // one for both
      const auto* const words = reinterpret_cast<const u16*>(table);
      Cache& cache = is_value ? v_cache_ : k_cache_;
      if (Of::kPaired)
        for (size_t i = 0; i < 2 * head_pairs::kTableWords; ++i) cache.push_back(bf16{words[i]});
    }
    for (size_t r = 0; r < starts.size(); ++r)
      for (size_t p = 0; p < starts[r]; ++p)
        for (size_t g = 0; g < G; ++g) {
          std::ranges::copy(some(D, size), &k_cache_[cached(r, p, g, false)]);
          std::ranges::copy(some(D, 1), &v_cache_[cached(r, p, g, true)]);
        }
    for (size_t t = 0; t < rows_.size(); ++t) {
      row_table().request[t] = static_cast<int>(rows_[t].request);
      row_table().start[t] = static_cast<int>(starts[rows_[t].request]);
      row_table().position[t] = static_cast<int>(rows_[t].position);
    }
  }
  /// As `kv_append` leaves the cache.
  void append() {
    for (size_t t = 0; t < rows_.size(); ++t)
      for (size_t g = 0; g < G; ++g) {
        const auto [request, position] = rows_[t];
        const size_t key_at = cached(request, position, g, false), value_at = cached(request, position, g, true);
        const std::vector<f64> key = turned(t, g, M, k_norm_);
        for (size_t d = 0; d < D; ++d) {
          k_cache_[key_at + d] = to_bf16(static_cast<f32>(key[d]));
          v_cache_[value_at + d] = to_bf16(static_cast<f32>(of_qkv(t, g, M + 1, d)));
        }
      }
  }
  /// The same by the block's threads, into copies.
  void run_append() {
    if (thread() == 0) {
      appended_keys_ = k_cache_, appended_values_ = v_cache_;
      requests_.clear(), positions_.clear();
      for (const Row& row : rows_) {
        requests_.push_back(static_cast<i32>(row.request));
        positions_.push_back(static_cast<i32>(row.position));
      }
    }
    block_sync();
    AppendTask<Of> task = {};
    task.T = static_cast<i64>(rows_.size()), task.g_end = static_cast<i64>(G);
    task.qkv = qkv_.data(), task.k_norm = k_norm_.data(), task.cosine = cosine_.data(), task.sine = sine_.data();
    task.page_table = page_table_.data(), task.request = requests_.data(), task.position = positions_.data();
    task.k_cache = task_cache(appended_keys_), task.v_cache = task_cache(appended_values_);
    task.epoch = {1, nullptr};
    // Two tasks, of which the second may have no row.
    for (const i64 end : {i64{3}, i64{1} << 20}) {
      task.t_begin = task.t_end, task.t_end = end;
      append_heads<Of::kNorm>(task);
    }
    block_sync();
  }
  /// A key is off by a rounding of bf16 at most, where it fell to the other side.
  void check_append() const {
    for (const auto& [found, wanted] : {std::pair(&appended_keys_, &k_cache_), {&appended_values_, &v_cache_}})
      for (size_t i = 0; i < wanted->size(); ++i) {
        const f32 got = to_f32((*found)[i]), want = to_f32((*wanted)[i]);
        if (std::isnan(want))
          ASSERT_TRUE(std::isnan(got)) << i;
        else
          ASSERT_NEAR(got, want, std::abs(want) / 64 + 1e-6f) << i;
      }
  }
  /// Of each request only its last row is this iteration's: the others are in the cache, as run_append() left it.
  void leave_last_rows() {
    k_cache_ = appended_keys_, v_cache_ = appended_values_;
    const std::vector<Row> all = std::exchange(rows_, {});
    const std::vector<bf16> qkv = std::exchange(qkv_, {}), y = std::exchange(y_, {});
    together_.clear();
    for (size_t t = 0; t < all.size(); ++t) {
      const auto is_behind = [&](const Row& row) {
        return row.request == all[t].request && row.position > all[t].position;
      };
      if (std::ranges::any_of(all, is_behind)) continue;
      row_table().request[rows_.size()] = static_cast<int>(all[t].request);
      row_table().start[rows_.size()] = row_table().position[rows_.size()] = static_cast<int>(all[t].position);
      rows_.push_back(all[t]);
      const auto line = [&](const std::vector<bf16>& of, size_t length) {
        return std::span(of).subspan(t * length, length);
      };
      std::ranges::copy(line(qkv, G * E * D), std::back_inserter(qkv_));
      std::ranges::copy(line(y, G * M * D), std::back_inserter(together_));
    }
  }
  void expect_same_as_together() const {
    const auto bits = [](const std::vector<bf16>& values) { return std::as_bytes(std::span(values)); };
    EXPECT_TRUE(std::ranges::equal(bits(y_), bits(together_)));
  }
  /// By every thread of the block: tasks of a few rows and two groups, as far as there are any. What is not written
  /// is NaN.
  template <class OfTask>
  void run(i64 task_rows = 5) {
    if (thread() == 0) {
      map_.begin = reinterpret_cast<const u8*>(std::min(k_cache_.data(), v_cache_.data()));
      map_.row_bytes = (Of::kPaired ? 1 : G) * D * sizeof(bf16);
      y_.assign(rows_.size() * G * M * D, bf16{0x7fff});
      std::memset(shared_area(), 0xff, kWorkerConfig.area_bytes);
    }
    block_sync();
    constexpr i64 kTaskGroups = 2;
    i64 end = static_cast<i64>(rows_.size());
    if constexpr (requires { OfTask::F; }) end = OfTask::F;
    for (i64 t = 0; t < end; t += task_rows)
      for (i64 g = 0; g < static_cast<i64>(G); g += kTaskGroups) {
        OfTask task = {};
        fill(task);
        task.t_begin = t, task.t_end = t + task_rows;  // of more rows than there are
        task.g_begin = g, task.g_end = std::min(g + kTaskGroups, static_cast<i64>(G));
        if constexpr (requires { OfTask::F; }) task.r_begin = t, task.r_end = std::min(t + task_rows, OfTask::F);
        if constexpr (requires { OfTask::F; })
          attend_rows_apart<Of::kNorm, OfTask>(&task);
        else if constexpr (kAllCached<OfTask> && Of::kTakesTiles)
          attend_query_tiles<Of::kNorm, OfTask>(&task);
        else
          attend_rows<Of::kNorm, OfTask>(&task);
        block_sync();
      }
  }

  /// The same by chunks, a few a task, which are put together then.
  template <bool kToAll>
  void run_chunks() {
    using OfTask = ChunkTask<Of, kToAll>;
    constexpr size_t kShares = OfTask::V, kHeads = G * M;
    if (thread() == 0) {
      y_.assign(rows_.size() * kHeads * D, bf16{0x7fff});
      part_.assign(kShares * kHeads * D, 0), softmax_.assign(kShares * kHeads * 2, 0);
      std::memset(shared_area(), 0xff, kWorkerConfig.area_bytes);
    }
    block_sync();
    constexpr i64 kTaskShares = 4;
    for (i64 s = 0; s < OfTask::V; s += kTaskShares) {
      OfTask task = {};
      fill(task);
      task.s_begin = s, task.s_end = std::min(s + kTaskShares, OfTask::V), task.g_end = static_cast<i64>(G);
      task.part = {part_.data()}, task.softmax = {softmax_.data()};
      attend_chunks<Of::kNorm, OfTask>(&task);
      block_sync();
    }
    if (thread() != 0) return;
    const size_t dealt = kToAll ? Of::kRows : rows_.size();
    for (size_t t = 0; t < rows_.size(); ++t)
      for (size_t head = 0; head < kHeads; ++head) {
        f64 top = -INFINITY, total = 0;
        std::vector<f64> sum(D);
        const auto each_share = [&](auto work) {
          for (size_t s = t; s < kShares && s / dealt < attention::kMaxChunks; s += dealt) work(s * kHeads + head);
        };
        each_share([&](size_t at) { top = std::max(top, written(softmax_[2 * at])); });
        each_share([&](size_t at) {
          const f64 weight = std::exp(written(softmax_[2 * at]) - top);
          total += weight * written(softmax_[2 * at + 1]);
          for (size_t d = 0; d < D; ++d) sum[d] += weight * written(part_[at * D + d]);
        });
        for (size_t d = 0; d < D; ++d) y_[(t * kHeads + head) * D + d] = to_bf16(static_cast<f32>(sum[d] / total));
      }
  }

  const runtime::CacheMap* map() const { return &map_; }

  /// Head e of a row as the scores want it.
  std::vector<f64> turned(size_t row, size_t g, size_t e, const std::vector<bf16>& norm) const {
    f64 squares = 0;
    for (size_t d = 0; d < D; ++d) squares += of_qkv(row, g, e, d) * of_qkv(row, g, e, d);
    std::vector<f64> normed(D), result(D);
    for (size_t d = 0; d < D; ++d)
      normed[d] = of_qkv(row, g, e, d) * (Of::kNorm ? to_f32(norm[d]) / std::sqrt(squares / D + Of_::eps) : 1);
    for (size_t h = 0; h < H; ++h) {
      const size_t at = rows_[row].position * W + h, of_partner = at + W - H;
      result[h] = normed[h] * number(cosine_[at]) - normed[H + h] * number(sine_[at]);
      result[H + h] = normed[H + h] * number(cosine_[of_partner]) + normed[h] * number(sine_[of_partner]);
    }
    return result;
  }
  /// Queries and weights are two bf16 each, so 2^-18 off at most, a score by that of its terms' sizes; a row's own keys
  /// count as the cache will have them, and results are rounded. Tiles of queries have them once rounded, of which one
  /// term's may go the other way, and weights are 2^-9 off.
  void check() {
    append();
    for (size_t t = 0; t < rows_.size(); ++t)
      for (size_t g = 0; g < G; ++g)
        for (size_t m = 0; m < M; ++m) check_head(t, g, m);
  }
  /// A row has the same bits whether it looks at positions together with another one or not.
  template <class OfTask>
  void check_alone() {
    if (thread() == 0) together_ = y_;
    block_sync();
    run<OfTask>(1);
    if (thread() == 0) expect_same_as_together();
    block_sync();
  }

 private:
  struct Row {
    size_t request, position;
  };

  template <class OfTask>
  void fill(OfTask& task) {
    task.task = &task, task.T = static_cast<i64>(rows_.size());
    task.qkv = qkv_.data(), task.y = y_.data();
    task.q_norm = q_norm_.data(), task.k_norm = k_norm_.data();
    task.cosine = cosine_.data(), task.sine = sine_.data();
    task.k_cache = {k_cache_.data()}, task.v_cache = {v_cache_.data()};
    task.page_table = page_table_.data();
    task.epoch = {1, nullptr};
  }
  static f64 written(u64 word) {
    EXPECT_EQ(word >> 32, 1u) << "not written";
    return __builtin_bit_cast(f32, static_cast<u32>(word));
  }

  void check_head(size_t t, size_t g, size_t m) const {
    std::vector<f64> query = turned(t, g, m, q_norm_);
    if (Of::kTakesTiles)
      for (f64& value : query) value = to_f32(to_bf16(static_cast<f32>(value)));
    const auto [request, position] = rows_[t];
    std::vector<f64> scores;
    f64 size = 0, largest_term = 0;
    for (size_t p = 0; p <= position; ++p) {
      f64 score = 0, size_of_score = 0;
      for (size_t d = 0; d < D; ++d) {
        const f64 term = query[d] * to_f32(k_cache_[cached(request, p, g, false) + d]) * Of_::scale;
        score += term;
        size_of_score += std::abs(term);
        largest_term = std::max(largest_term, std::abs(term));
      }
      scores.push_back(score);
      size = std::max(size, size_of_score);
    }
    const f64 top = *std::ranges::max_element(scores);
    f64 total = 0;
    std::vector<f64> wanted(D);
    for (size_t p = 0; p <= position; ++p) {
      const f64 weight = std::exp(scores[p] - top);
      total += weight;
      for (size_t d = 0; d < D; ++d) wanted[d] += weight * to_f32(v_cache_[cached(request, p, g, true) + d]);
    }
    f64 bound = 4 * (4 + 2 * size) / (1 << 18);
    if (Of::kTakesTiles) bound += 4 * (1.0 / (1 << 9) + largest_term / (1 << 8));
    for (size_t d = 0; d < D; ++d) {
      const f64 want = wanted[d] / total;
      ASSERT_NEAR(to_f32(y_[((t * G + g) * M + m) * D + d]), want, bound + std::abs(want) / 256)
          << "row " << t << ", group " << g << ", head " << m << ", value " << d;
    }
  }

  std::mt19937 random_{1};
  std::vector<Row> rows_;
  runtime::CacheMap map_ = {};
  std::vector<bf16> qkv_, q_norm_, k_norm_, y_, together_;
  Cache k_cache_, v_cache_, appended_keys_, appended_values_;
  std::vector<typename Of::Table> cosine_, sine_;
  std::vector<i32> page_table_, requests_, positions_;
  std::vector<u64> part_, softmax_;
  u32 table_[2 * head_pairs::kTableWords];  // of keys, of values
};

using Shapes = ::testing::Types<Shape<128, 4, true, 64, 2>, Shape<64, 1, false, 16, 3>, Shape<96, 3, true, 32, 1, 5>,
                                Shape<128, 8, false, 16, 1, 1>, Shape<160, 2, true, 16, 2, 70>,
                                Shape<128, 4, true, 64, 2, 16, true>, Shape<64, 2, false, 16, 4, 16, true>,
                                Shape<128, 1, false, 16, 16, 16, true>, Shape<128, 2, true, 16, 8, 4, true>,
                                Turned<Shape<128, 4, true, 64, 2>, bf16>, Turned<Shape<160, 2, true, 16, 2, 70>, f32>,
                                Turned<Shape<64, 1, false, 16, 3>, bf16, 32>>;
TYPED_TEST_SUITE(AttentionRows, Shapes);

// Requests with nothing in the cache, with less than a warp takes at once, and with more than all do; of one row and of
// several, which then count for each other.
TYPED_TEST(AttentionRows, IsThatOfExactArithmetic) {
  by_block([&] {
    for (const f32 size : {1.0f, 4.0f}) {
      if (thread() == 0) this->make({3, 0, 77}, {size == 1 ? 1u : 2u, size == 1 ? 2u : 9u, 1}, size);
      block_sync();
      this->template run<Task<TypeParam>>();
      this->run_append();
      if (thread() == 0) {
        this->check();  // which appends
        this->check_append();
      }
      block_sync();
      this->template run<AllCachedTask<TypeParam>>();
      if (thread() == 0) this->check();
      block_sync();
      this->template check_alone<AllCachedTask<TypeParam>>();
    }
  });
}

// Of so few rows, or of as few of many, each has two parts of the block, or all.
template <class Of>
class AttentionOfFewRows : public AttentionRows<Of> {};
using SharingShapes = ::testing::Types<Shape<128, 4, true, 64, 2>, Shape<96, 3, true, 32, 1, 5>,
                                       Shape<160, 2, true, 16, 2, 70>, Shape<64, 2, false, 16, 4, 16, true>>;
TYPED_TEST_SUITE(AttentionOfFewRows, SharingShapes);
TYPED_TEST(AttentionOfFewRows, IsThatOfExactArithmetic) {
  const auto attend = [&]<class OfTask>(std::type_identity<OfTask>, unsigned rows) {
    if (rows + 2 > TypeParam::kRows) return;
    if (thread() == 0) this->make({3, 0, 277}, {1, rows, 1}, 2);
    block_sync();
    this->template run<OfTask>();
    if (thread() == 0) this->check();
    block_sync();
  };
  by_block([&] {
    for (const unsigned rows : {1u, 4u, 9u, 20u}) {
      attend(std::type_identity<Task<TypeParam, 1, 1>>{}, rows);
      attend(std::type_identity<Task<TypeParam, 2>>{}, rows);
      attend(std::type_identity<Task<TypeParam, 4>>{}, rows);
    }
  });
}

// Of few rows each has many chunks, of many few; or as many as if all rows were there.
template <class Of>
class AttentionChunks : public AttentionRows<Of> {};
using ChunkShapes = ::testing::Types<Shape<128, 4, true, 64, 2>, Shape<96, 3, true, 32, 1, 5>,
                                     Shape<160, 2, true, 4, 2, 70>, Shape<128, 4, true, 64, 2, 16, true>>;
TYPED_TEST_SUITE(AttentionChunks, ChunkShapes);
TYPED_TEST(AttentionChunks, AreTogetherThoseOfExactArithmetic) {
  by_block([&] {
    for (const unsigned rows : {1u, 2u, 9u}) {
      if (rows + 2 > TypeParam::kRows) continue;
      for (const bool to_all : {false, true}) {
        if (thread() == 0) this->make({3, 0, 277}, {1, rows, 1}, 2);
        block_sync();
        if (to_all)
          this->template run_chunks<true>();
        else
          this->template run_chunks<false>();
        if (thread() == 0) this->check();
        block_sync();
      }
    }
  });
}

// Up to 128 rows, of which those of one request are in each 32.
template <class Of>
class AttentionOfManyRows : public AttentionRows<Of> {};
using ManyShapes = ::testing::Types<Shape<128, 4, true, 128, 1>, Shape<64, 2, false, 100, 4, 16, true>>;
TYPED_TEST_SUITE(AttentionOfManyRows, ManyShapes);
TYPED_TEST(AttentionOfManyRows, IsThatOfExactArithmetic) {
  by_block([&] {
    for (const bool in_turn : {true, false}) {
      if (thread() == 0) this->make({3, 0, 77}, {40, 50, 10}, 1, in_turn);
      block_sync();
      this->template run<Task<TypeParam>>();
      if (thread() == 0) this->check();
      block_sync();
    }
  });
}

// However much of a prompt an iteration takes: what stands before a row has the same bits from there and from the cache.
template <class Of>
class AttentionOfRows : public AttentionRows<Of> {};
using FewShapes =
    ::testing::Types<Shape<128, 4, true, 64, 2>, Shape<96, 3, true, 32, 1, 5>, Shape<64, 2, false, 16, 4, 16, true>>;
TYPED_TEST_SUITE(AttentionOfRows, FewShapes);
TYPED_TEST(AttentionOfRows, HasTheSameBitsWhereverTheIterationBegan) {
  by_block([&] {
    for (const size_t start : {3, 29}) {
      if (thread() == 0) this->make({start, 0}, {7, 2}, 3);
      block_sync();
      this->template run<Task<TypeParam>>();
      this->run_append();
      if (thread() == 0) this->leave_last_rows();
      block_sync();
      this->template run<Task<TypeParam>>();
      if (thread() == 0) this->expect_same_as_together();
      block_sync();
    }
  });
}

template <class Of>
class QueryTiles : public AttentionRows<Of> {
 protected:
  /// What make() takes.
  struct Sequences {
    std::vector<size_t> starts, rows;
    f32 size;
  };
  /// By all threads of the block, beside the warp that copies: run(is_in_turn) of sequences whose rows stand in turn, and of
  /// others whose rows stand side by side.
  template <class Run>
  void each_order(const Sequences& in_turn, const Sequences& side_by_side, Run run) {
    make_copied_rings();
    by_block_beside([this](auto is_over) { copy_warp_run(is_over, this->map()); },
                    [&] {
                      for (const bool is_in_turn : {true, false}) {
                        const Sequences& of = is_in_turn ? in_turn : side_by_side;
                        if (thread() == 0) {
                          this->make(of.starts, of.rows, of.size, is_in_turn);
                          this->append();
                        }
                        block_sync();
                        run(is_in_turn);
                        block_sync();
                      }
                    });
  }
};
using TiledShapes =
    ::testing::Types<Shape<128, 4, true, 256, 2>, Shape<64, 2, false, 144, 3>, Shape<96, 3, true, 256, 1, 5>,
                     Turned<Shape<32, 7, false, 256, 1, 70>, bf16>, Shape<128, 8, true, 256, 1>,
                     Shape<128, 4, true, 256, 2, 16, true>, Shape<64, 2, false, 144, 4, 16, true>>;
TYPED_TEST_SUITE(QueryTiles, TiledShapes);

// Of sequences whose tokens stand side by side or apart, one of them so long that both teams have several tiles of keys.
TYPED_TEST(QueryTiles, AreThoseOfExactArithmetic) {
  this->each_order({{3, 0, 77}, {2, 9, 1}, 4}, {{5, 150, 0}, {12, 19, 1}, 1}, [&](bool is_in_turn) {
    this->template run<AllCachedTask<TypeParam>>(is_in_turn ? 5 : 17);
    if (thread() == 0) this->check();
    block_sync();
    this->template check_alone<AllCachedTask<TypeParam>>();
  });
}

// Rows that decode stand in front of a prompt's in each task, behind them, or alone; more of them than the block has parts.
TYPED_TEST(QueryTiles, LeaveRowsThatStandAloneToPartsOfTheBlock) {
  this->each_order({{3, 0, 177}, {12, 5, 4}, 4}, {{150, 5, 0}, {1, 19, 1}, 1}, [&](bool) {
    for (const int task_rows : {17, 7}) {
      this->template run<AloneTask<TypeParam>>(task_rows);
      if (thread() == 0) this->check();
      block_sync();
    }
  });
}

}  // namespace
}  // namespace megalith::kernels
