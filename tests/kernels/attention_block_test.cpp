// A GPU's attention by a whole block for each row (attention/block_per_token.cuh) on a block of the host's threads,
// against f64: every lane's share of what tensor cores take and give is where the PTX ISA has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_attention_block
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 96 << 10, .area_bytes = 48 << 10, .stream_rows = 1};
}

#include "at_lines.h"
#include "megalith/kernels/cuda/attention/block_per_token.cuh"
#include "megalith/kernels/shared_budget.h"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// Rows of the cache lie one behind the other, or heads in pairs.
template <int kHeadValues, int kHeads, bool kHasNorm, int kRowsOfAll = 1, int kOfBlock = 3, bool kInPairs = false>
struct Shape {
  static constexpr int D = kHeadValues, M = kHeads, kRows = kRowsOfAll, L = kOfBlock;
  static constexpr bool kNorm = kHasNorm, kPaired = kInPairs;
  static constexpr int W = D / 2;
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

/// The operands of an `attention_qkv` of one row, of the second of two requests; or of several, of which the first is
/// of the first request unless there are two, all others of the second, and the last but one is looked at. Positions are dealt to two
/// chunks, three by three or eight by eight; pages lie anywhere. What nobody may read is NaN.
template <class Of, int kOfRow = 2>
struct Task {
  static constexpr i64 H = Of::D / 2, W = Of::W, M = Of::M, E = M + 2, G = 2, L = Of::L, B = 16, Q = 560, P = 2 * Q,
                       S = Q * B, T_largest = Of::kRows, V = kOfRow * T_largest, U = 0;
  struct Checks {
    static constexpr u32 page_table = 0;
  };
  FaultNote faults{};  // of right data nobody notes one
  static constexpr f32 scale = 0.11f, eps = 1e-5f;
  const Task* task;
  i64 T, s_begin, s_end, g_begin, g_end;
  Words<bf16> qkv;                          // (T, G, E, D)
  const bf16 *q_norm, *k_norm;              // (D)
  const typename Of::Table *cosine, *sine;  // (positions, W)
  static constexpr i64 kElements = P * B * G * Of::D;
  using Cache = std::conditional_t<Of::kPaired, Paired<const bf16, kElements>, const bf16*>;
  static_assert(!Of::kPaired || head_pairs::fits(P, B, G, Of::D * 2));
  Cache k_cache, v_cache;    // (pages, B, G, D)
  const i32* page_table;     // (2, Q)
  Words<f32> part, softmax;  // (V, G, M, D) and (V, G, M, 2)
  Epoch epoch;
  static Task of(const Task& task) { return task; }
};

constexpr u32 kEpoch = 7;
u64 word(u32 payload) { return static_cast<u64>(kEpoch) << 32 | payload; }
f64 value_in(u64 word) {
  EXPECT_EQ(word >> 32, kEpoch) << "not written";
  return __builtin_bit_cast(f32, static_cast<u32>(word));
}

template <class Of>
class AttentionBlock : public ::testing::Test {
 protected:
  using Of_ = Task<Of>;
  using OfMany = Task<Of, Of::kRows == 2 ? 4 : 5>;  // of two rows they are dealt by shifts
  static constexpr size_t D = Of::D, H = D / 2, W = Of::W, M = Of::M, E = M + 2, G = Of_::G, C = 2, V = OfMany::V,
                          B = Of_::B, Q = Of_::Q;
  static constexpr size_t kGroup = 1, kRequest = 1;
  // Rows, of which `kFirst` is the request's first and `kRow` is looked at.
  static constexpr size_t T = Of::kRows, kFirst = T > 2 ? 1 : 0, kRow = T > 1 ? T - 2 : 0;
  static_assert(kRow >= kFirst && attention::row_alone_bytes(T, Of::M, Of::D) <= kWorkerConfig.area_bytes);

  f32 normal() { return std::normal_distribution<f32>()(random_); }
  std::vector<bf16> some(size_t count, f32 size) {
    std::vector<bf16> values(count);
    for (bf16& value : values) value = to_bf16(size * normal());
    return values;
  }
  size_t cached(size_t position, bool is_value) const {
    const auto page = static_cast<size_t>(page_table_[kRequest * Q + position / B]);
    if (!Of::kPaired) return ((page * B + position % B) * G + kGroup) * D;
    // The second of two heads has every other piece, after those of the first one, or before.
    const size_t byte = (page * B + position % B) * D * 2, pair = byte / 4096;
    const u32 in_memory_page = pair % 256 & tables_[is_value][head_pairs::kMaskWord];
    const u32 turned = tables_[is_value][0] >> pair / 256 & 1;  // no more than 32 memory pages here
    const size_t first = (static_cast<u32>(__builtin_popcount(in_memory_page)) + turned) % 2;
    return (2 * pair + (kGroup + first) % 2) * 2048 + byte % 4096 / 2;
  }
  f64 of_qkv(size_t row, size_t e, size_t d) const { return to_f32(qkv_[((row * G + kGroup) * E + e) * D + d]); }

  /// A text of `start` positions in the cache, and its rows.
  void make(size_t start, f32 size) {
    start_ = start;
    qkv_ = some(T * G * E * D, 1);
    q_norm_ = some(D, 1), k_norm_ = some(D, 1);
    cosine_.resize((start + T) * W), sine_.resize(cosine_.size());
    for (size_t i = 0; i < cosine_.size(); ++i) {
      const f32 angle = 3 * normal();
      set(cosine_[i], std::cos(angle)), set(sine_[i], std::sin(angle));
    }
    page_table_.resize(2 * Q);
    for (size_t i = 0; i < page_table_.size(); ++i) page_table_[i] = static_cast<i32>(i);
    std::ranges::shuffle(page_table_, random_);
    k_cache_.assign(page_table_.size() * B * G * D, bf16{0x7fff});
    v_cache_ = k_cache_;
    for (auto& table : tables_)
      for (u32& word : table) word = static_cast<u32>(of_tables_());
    tables_[0][head_pairs::kMaskWord] = tables_[1][head_pairs::kMaskWord] %= head_pairs::kPairsOfMemoryPage;
    if (Of::kPaired)
      for (const bool is_value : {false, true}) {
        const auto* const halves = reinterpret_cast<const u16*>(tables_[is_value]);
        for (size_t i = 0; i < 2 * head_pairs::kTableWords; ++i)
          (is_value ? v_cache_ : k_cache_).push_back(bf16{halves[i]});
      }
    for (size_t p = 0; p < start; ++p) {
      std::ranges::copy(some(D, size), &k_cache_[cached(p, false)]);
      std::ranges::copy(some(D, 1), &v_cache_[cached(p, true)]);
    }
    words_.clear();
    for (size_t i = 0; i < qkv_.size(); i += 2)
      words_.push_back(word(qkv_[i].bits | static_cast<u32>(qkv_[i + 1].bits) << 16));
    part_.assign(V * G * M * D, 0), softmax_.assign(V * G * M * 2, 0);
    row_table().request[0] = row_table().position[0] = row_table().start[0] = 0;
    for (size_t row = kFirst; row < T; ++row) {
      row_table().request[row] = kRequest;
      row_table().start[row] = static_cast<int>(start);
      row_table().position[row] = static_cast<int>(start + row - kFirst);
    }
  }
  template <class Args>
  void fill(Args& task) {
    task.task = &task, task.T = T;
    task.qkv = {words_.data()}, task.part = {part_.data()}, task.softmax = {softmax_.data()};
    task.q_norm = q_norm_.data(), task.k_norm = k_norm_.data();
    task.cosine = cosine_.data(), task.sine = sine_.data();
    task.k_cache = typename Args::Cache{k_cache_.data()}, task.v_cache = typename Args::Cache{v_cache_.data()};
    task.page_table = page_table_.data();
    task.epoch = {kEpoch, nullptr};
  }
  /// By every thread of the block.
  void run(int c) {
    Of_ task = {};
    fill(task);
    const Attended one = {kRow, kGroup, static_cast<int>(kRow + static_cast<size_t>(c) * T), {c, C}};
    if (thread() == 0) attended() = one;
    block_sync();
    ChunkAttention<Of::kNorm, Of_>(&task, one).run();
  }
  /// All chunks of so many rows, by every thread of the block.
  void run_all(i64 rows) {
    OfMany task = {};
    fill(task);
    task.T = rows;
    task.g_begin = kGroup, task.g_end = kGroup + 1;
    task.s_begin = 0, task.s_end = OfMany::V;
    attend_rows_alone<Of::kNorm, OfMany>(task, &task);
  }

  /// Head e of a row as the scores want it.
  std::vector<f64> turned(size_t row, size_t e, const std::vector<bf16>& norm) const {
    f64 squares = 0;
    for (size_t d = 0; d < D; ++d) squares += of_qkv(row, e, d) * of_qkv(row, e, d);
    std::vector<f64> normed(D), result(D);
    for (size_t d = 0; d < D; ++d)
      normed[d] = of_qkv(row, e, d) * (Of::kNorm ? to_f32(norm[d]) / std::sqrt(squares / D + Of_::eps) : 1);
    for (size_t h = 0; h < H; ++h) {
      const size_t at = (start_ + row - kFirst) * W + h, of_partner = at + W - H;
      result[h] = normed[h] * number(cosine_[at]) - normed[H + h] * number(sine_[at]);
      result[H + h] = normed[H + h] * number(cosine_[of_partner]) + normed[h] * number(sine_[of_partner]);
    }
    return result;
  }
  /// What the body gave of chunk c. Queries and weights are two bf16 each, so 2^-18 off at most; a score, and the
  /// largest that it is compared with, by that of its terms' sizes.
  void check(size_t c, size_t share, size_t chunks = C) const {
    std::vector<std::vector<f64>> fresh_keys;
    for (size_t row = kFirst; row <= kRow; ++row) fresh_keys.push_back(turned(row, M, k_norm_));
    for (size_t m = 0; m < M; ++m) {
      const std::vector<f64> query = turned(kRow, m, q_norm_);
      const size_t at = (share * G + kGroup) * M + m;
      const f64 top = value_in(softmax_[2 * at]), total = value_in(softmax_[2 * at + 1]);
      f64 largest = -INFINITY, size = 0, wanted_total = 0;
      std::vector<f64> wanted(D);
      for (size_t p = 0; p <= start_ + kRow - kFirst; ++p) {
        if (p / Of_::L % chunks != c) continue;
        const bool is_fresh = p >= start_;
        f64 score = 0, size_of_score = 0;
        for (size_t d = 0; d < D; ++d) {
          // A row's own key counts as the cache will have it.
          const bf16 key =
              is_fresh ? to_bf16(static_cast<f32>(fresh_keys[p - start_][d])) : k_cache_[cached(p, false) + d];
          const f64 term = query[d] * to_f32(key) * Of_::scale;
          score += term;
          size_of_score += std::abs(term);
        }
        largest = std::max(largest, score);
        size = std::max(size, size_of_score);
        const f64 weight = std::exp(score - top);
        wanted_total += weight;
        for (size_t d = 0; d < D; ++d)
          wanted[d] +=
              weight * (is_fresh ? of_qkv(kFirst + p - start_, M + 1, d) : to_f32(v_cache_[cached(p, true) + d]));
      }
      if (largest == -INFINITY) {
        EXPECT_EQ(top, -INFINITY);
        EXPECT_EQ(total, 0);
        for (size_t d = 0; d < D; ++d) EXPECT_EQ(value_in(part_[at * D + d]), 0);
        continue;
      }
      const f64 bound = (4 + 2 * size) / (1 << 18);
      EXPECT_NEAR(top, largest, bound);
      EXPECT_NEAR(total / wanted_total, 1, bound);
      for (size_t d = 0; d < D; ++d)
        ASSERT_NEAR(value_in(part_[at * D + d]) / wanted_total, wanted[d] / wanted_total, bound);
    }
  }

 private:
  std::mt19937 random_{1}, of_tables_{2};
  size_t start_ = 0;
  std::vector<bf16> qkv_, q_norm_, k_norm_;
  std::vector<bf16, AtLines<bf16>> k_cache_, v_cache_;
  u32 tables_[2][head_pairs::kTableWords];  // of keys, of values
  std::vector<typename Of::Table> cosine_, sine_;
  std::vector<i32> page_table_;
  std::vector<u64> words_, part_, softmax_;
};

using Shapes =
    ::testing::Types<Shape<64, 1, false>, Shape<64, 8, true>, Shape<96, 3, true>, Shape<128, 2, true>,
                     Shape<128, 4, false>, Shape<128, 4, true, 4>, Shape<64, 1, false, 3>, Shape<96, 5, true, 8>,
                     Shape<64, 1, false, 1, 8>, Shape<128, 4, true, 1, 8>, Shape<128, 7, true, 8, 8>,
                     Shape<96, 3, true, 3, 8>, Shape<128, 2, true, 2, 8>, Turned<Shape<128, 2, true>, bf16>,
                     Turned<Shape<96, 3, true, 3, 8>, f32>, Turned<Shape<64, 1, false>, bf16, 32>,
                     Shape<128, 2, true, 1, 8, true>, Shape<64, 1, false, 1, 8, true>, Shape<128, 4, true, 2, 8, true>,
                     Shape<128, 4, true, 4, 3, true>>;
TYPED_TEST_SUITE(AttentionBlock, Shapes);

TYPED_TEST(AttentionBlock, IsThatOfExactArithmetic) {
  // Cached positions of the first chunk, which has the row itself; the second has those that make three or eight, and
  // no row. From none to more than the warps take at once; and, of tiles on one page, than they have looked up pages for.
  constexpr size_t L = TypeParam::L;
  by_block([&] {
    for (const size_t count : {0, 1, 7, 8, 33, 129, 300, 4300}) {
      if (count > 4000 && L % attention::kTilePositions != 0) continue;
      if (thread() == 0) this->make(count / L * 2 * L + count % L, count % 2 == 0 ? 1.0f : 4.0f);
      for (const int c : {0, 1}) {
        if (thread() == 0) std::memset(ring_slot(0), 0xff, sizeof dynamic_shared - stream::kVariablesBytes);
        block_sync();
        this->run(c);
        block_sync();
        SCOPED_TRACE(testing::Message() << count << " positions, chunk " << c);
        if (thread() == 0) this->check(static_cast<size_t>(c), this->kRow + static_cast<size_t>(c) * this->T);
      }
    }
  });
}

// However few rows there are, every chunk is somebody's: of share s row s mod rows has chunk s / rows.
TYPED_TEST(AttentionBlock, DealsAllChunksToTheRowsThatThereAre) {
  constexpr size_t kMine = TestFixture::kRow, kShares = TestFixture::OfMany::V;
  by_block([&] {
    for (const size_t start : {5, 77, 1300})
      for (size_t rows = kMine + 1; rows <= TestFixture::T; ++rows) {
        if (thread() == 0) this->make(start, 1.0f);
        if (thread() == 0) std::memset(ring_slot(0), 0xff, sizeof dynamic_shared - stream::kVariablesBytes);
        block_sync();
        this->run_all(static_cast<i64>(rows));
        block_sync();
        if (thread() != 0) continue;
        const size_t chunks = (kShares - kMine + rows - 1) / rows;
        for (size_t c = 0; c < chunks; ++c) {
          SCOPED_TRACE(testing::Message()
                       << start << " positions, " << rows << " rows, chunk " << c << " of " << chunks);
          this->check(c, kMine + c * rows, chunks);
        }
      }
  });
}

TEST(DealtRows, AreDividedAsWholeNumbersAre) {
  for (int b = 1; b <= 128; ++b)
    for (int a = 0; a < 1 << 20; a += a % b == 0 || a % b == b - 1 ? 1 : std::max(b - 1 - a % b, 1))
      ASSERT_EQ(quick_divide(a, b), a / b) << a << " / " << b;
}

}  // namespace
}  // namespace megalith::kernels
