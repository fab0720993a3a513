// A GPU's projections for few rows (mainloop/gemv.cuh) on a block of the host's threads, against f64: weights lie
// in the ring as kernels/stream_layout.h has them, and nobody has to wait for them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "megalith/engine/quantize.h"
namespace host = megalith;

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#define megalith megalith_linear_block
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {
    .shared_bytes = 266 << 10, .area_bytes = 52 << 10, .stream_rows = 8, .scale_bytes = 1024};
}

#include "megalith/kernels/cuda/epilogue/finished.cuh"
#include "megalith/kernels/cuda/mainloop/gemv.cuh"
#include "megalith/kernels/cuda/mainloop/pack_weights.cuh"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

// The gate of a SwiGLU MLP, as it is generated.
struct SwiGlu {
  f32 finish(f32 gate, f32 up, i64, i64) const { return fast_divide(gate, 1.0f + fast_exp(-gate)) * up; }
};

enum class Kind { normed, residual, gate_up };

/// The operands of a projection of at most kMaxRows rows, and a task of kGroups groups of its columns, of kSpans spans
/// each, the last of them not full. What nobody may read is NaN. `kParts`: with norms in parts. `Of`: bf16 or f16. `W`:
/// weights of them as they are, or in int8. `kStages`: chunks of activations in shared memory at a time, where others are
/// usual, or 0.
template <Kind kOf, i64 kMaxRows, int kSpansOf = kOf == Kind::gate_up ? 2 : 3, int kGroupsOf = 3, bool kParts = false,
          class Of = bf16, class W = const Of*, int kStages = 0>
struct Task {
  using Half = Of;
  static constexpr bool kInt8 = WeightsOf<W>::kAreInt8;
  static constexpr Kind kKind = kOf;
  static constexpr bool kInParts = kParts;
  // What is left for the last span is more than half of one of two slices, or little: then it is one slice of a few rows.
  static constexpr i64 T_largest = kMaxRows, N = 80,
                       K = (kSpansOf - 1) * stream::chunk_columns(stream::slices(kMaxRows)) +
                           (kInParts                                ? 64
                            : kOf == Kind::residual || kSpansOf > 3 ? 600
                                                                    : 40);
  static constexpr bool kTravelsAsWords = kMaxRows <= stream::kMaxRowsOfWords;
  static constexpr int kSlices = kTravelsAsWords && K % stream::chunk_columns(2) <= stream::chunk_columns(1)
                                     ? 1
                                     : stream::slices(kMaxRows),
                       kGroup = stream::group_rows(kSlices);
  static constexpr int kStreams = kOf == Kind::gate_up ? 2 : 1,
                       kSpans = static_cast<int>(stream::chunks_per_group(K, kSlices)),
                       kChunks = kInt8 ? static_cast<int>(int8::chunks(kSpans)) : kSpans,
                       kGroups =
                           std::min({kGroupsOf, static_cast<int>(kRingSlots) / (kStreams * kChunks), 64 / kGroup});
  static constexpr bool kSplits = kOf == Kind::residual,
                        kHoldsActivations =
                            kStages == 0 && !kTravelsAsWords && (kSpans <= stream::kMaxHeldChunks || kSplits);
  static constexpr i64 kMaxPart = kStages > 0         ? kStages
                                  : kHoldsActivations ? kSpans <= stream::kMaxHeldChunks ? kSpans : stream::kPartChunks
                                                      : 65536 / (kMaxRows * stream::chunk_columns(kSlices) * 2);
  static constexpr stream::Order kStream =
      stream::few_order(kMaxRows, K, kSlices, kSplits ? std::min<i64>(kSpans, kMaxPart) : kSpans);
  static constexpr i64 L = kGroup, C = kKind == Kind::residual ? N / L : 37;  // of squares
  static constexpr f32 eps = 1e-5f, factor = Pair<Of>::kNormed;
  using Plain = std::conditional_t<kTravelsAsWords, Words<Of>, const Of*>;
  std::conditional_t<kInParts, Blocked<const Of, kMaxRows, K>, Plain> x;     // (T, K)
  const Of* norm;                                                            // (K), or what the copy has: (N)
  std::conditional_t<kKind == Kind::residual, f32*, const f32*> squares;     // (T, C)
  W weight, gate;                                                            // (N, K)
  const f32* residual;                                                       // (T, N)
  std::conditional_t<kOf == Kind::gate_up, Finished<f32*, SwiGlu>, f32*> y;  // (T, N)
  std::conditional_t<kInParts, Blocked<Of, kMaxRows, N>, f32*> copy;         // (T, N)
  i64 T, n_begin = 16, n_end = n_begin + kGroups * kGroup - (kInParts ? 0 : 4);
  i64 c_begin = n_begin / L, c_end = c_begin + kGroups;
  RingPlace ring = {kRingSlots - 5, 0};
  Epoch epoch = {7, nullptr};
  const Task* task = nullptr;

  static const Task& of(const Task& task) { return task; }
  void run() {
    task = this;
    if constexpr (kInParts && kOf == Kind::normed)
      gemv_deferred_rmsnorm_linear(*this);
    else if constexpr (kInParts && kOf == Kind::residual)
      gemv_linear_residual_rmsnorm_parts(*this);
    else if constexpr (kInParts)
      gemv_deferred_rmsnorm_gate_up(*this);
    else if constexpr (kOf == Kind::normed)
      gemv_rmsnorm_linear(*this);
    else if constexpr (kOf == Kind::residual)
      gemv_linear_residual_copy(*this);
    else
      gemv_rmsnorm_gate_up(*this);
  }
};

template <class Of>
class LinearBlock : public ::testing::Test {
 protected:
  using Half = typename Of::Half;
  static constexpr Half kNan = {0x7fff};  // of either kind
  static constexpr size_t K = Of::K, N = Of::N, kQuantColumns = Of::T_largest % 2 == 0 ? 96 : 32;
  static_assert(Of::kStreams * Of::kChunks * Of::kGroups <= kRingSlots);

  static Half rounded(f32 x) {
    if constexpr (std::is_same_v<Half, bf16>)
      return to_bf16(x);
    else
      return to_f16(x);
  }
  std::vector<Half> some(size_t count) {
    std::vector<Half> values(count);
    for (Half& value : values) value = rounded(std::normal_distribution<f32>()(random_));
    return values;
  }
  void make(i64 rows) {
    task_.T = rows;
    x_ = some(static_cast<size_t>(std::max<i64>(rows, 1)) * K), norm_ = some(std::max(K, N)),
    weights_ = some(Of::kStreams * N * K);
    if (Of::kInt8) quantize();
    words_.clear();
    for (size_t i = 0; i < x_.size(); i += 2)
      words_.push_back(static_cast<u64>(task_.epoch.value) << 32 | static_cast<u32>(x_[i + 1].bits) << 16 | x_[i].bits);
    residual_.clear();
    for (const Half value : some(static_cast<size_t>(rows) * N)) residual_.push_back(to_f32(value));
    y_.assign(residual_.size(), NAN), copy_ = y_;
    squares_.clear();
    for (const Half value : some(static_cast<size_t>(rows * Of::C)))
      squares_.push_back(Of::kKind == Kind::residual ? NAN : std::abs(to_f32(value)));
    task_.squares = squares_.data();
    if constexpr (Of::kInParts) {
      blocks_.assign(static_cast<size_t>(Of::T_largest) * K, kNan);
      for (size_t i = 0; i < x_.size(); ++i)
        blocks_[row_blocks::index(static_cast<u32>(i / K), i % K, Of::T_largest)] = x_[i];
      copied_.assign(2 * static_cast<size_t>(Of::T_largest) * N, kNan);
      task_.x = {blocks_.data()}, task_.copy = {copied_.data()};
    } else {
      if constexpr (Of::kTravelsAsWords)
        task_.x = {words_.data()};
      else
        task_.x = x_.data();
      task_.copy = copy_.data();
    }
    task_.norm = norm_.data(), task_.residual = residual_.data(), task_.y = {y_.data()};
    std::memset(ring_slot(0), 0xff, sizeof dynamic_shared - stream::kVariablesBytes);
    std::memset(ring_barriers().empty, 0, sizeof ring_barriers().empty);
    fill_ring();
  }
  /// Turn by turn, of a turn part by part of the columns, of a part group by group, of each its matrices.
  void fill_ring() {
    stream::Order order = Of::kStream;
    if (Of::kInt8) order.part = int8::chunks(order.part);
    const int turn = order.turn == 0 ? Of::kGroups : static_cast<int>(order.turn), part = static_cast<int>(order.part);
    RingPlace ring = task_.ring;
    for (int first = 0; first < Of::kGroups; first += turn)
      for (int begin = 0; begin < Of::kChunks; begin += part)
        for (int group = first; group < min(first + turn, Of::kGroups); ++group)
          for (int matrix = 0; matrix < Of::kStreams; ++matrix)
            for (int chunk = begin; chunk < min(begin + part, Of::kChunks); ++chunk, ring = ring + 1)
              if constexpr (Of::kInt8)
                pack(ring.slot, matrix, group, chunk);
              else
                fill_chunk(reinterpret_cast<Half*>(ring_slot(ring.slot)), matrix, group, chunk);
  }
  void fill_chunk(Half* to, int matrix, int group, int chunk) {
    for (int w = 0; w < kWarps; ++w)
      for (int j = 0; j < 2; ++j)
        for (int l = 0; l < kWarpLanes; ++l)
          for (int i = 0; i < 8; ++i, ++to) {
            const int tile_row = l / 4 + i / 2 % 2 * 8, slice = Of::kSlices == 2 ? tile_row / 8 : 0;
            const i64 row = task_.n_begin + group * Of::kGroup + tile_row % Of::kGroup;
            const int column = ((chunk * kWarps + w) * Of::kSlices + slice) * stream::kRunColumns + 8 * (l % 4) +
                               4 * j + i / 4 * 2 + i % 2;
            if (row < task_.n_end) *to = column < Of::K ? weight(matrix, row, column) : Half{0};
          }
  }
  void pack(u32 slot, int matrix, int group, int chunk) {
    const i64 row = task_.n_begin + group * Of::kGroup;
    pack_chunk(ring_slot(slot),
               {.weights = &weights_[static_cast<size_t>(matrix) * N * K].bits,
                .chunk = 0,
                .columns = K,
                .first_row = static_cast<u64>(row),
                .num_rows = static_cast<u32>(min(i64{Of::kGroup}, task_.n_end - row)),
                .column_chunk = static_cast<u32>(chunk),
                .slices = Of::kSlices,
                .group = Of::kGroup,
                .matrix = static_cast<u32>(matrix),
                .matrices = Of::kStreams,
                .quant_columns = kQuantColumns,
                .is_f16 = std::is_same_v<Half, f16>,
                .scales = ring_scales(slot)},
               false);
  }
  /// What a CPU makes of the weights.
  void quantize() {
    constexpr size_t kScales = (K + kQuantColumns - 1) / kQuantColumns;
    std::vector<int8_t> numbers(weights_.size());
    std::vector<uint16_t> scales(weights_.size() / K * kScales);
    host::engine::quantize_rows(numbers.data(), scales.data(), weights_.data(),
                                std::is_same_v<Half, f16> ? host::DType::f16 : host::DType::bf16, K, kQuantColumns, 0,
                                static_cast<int64_t>(weights_.size() / K));
    values_.clear();
    for (size_t i = 0; i < numbers.size(); ++i)
      values_.push_back(numbers[i] * to_f32(bf16{scales[i / K * kScales + i % K / kQuantColumns]}));
  }
  f32 value(int matrix, i64 row, i64 column) const {
    if (!Of::kInt8) return to_f32(weight(matrix, row, column));
    return values_[(static_cast<size_t>(matrix) * N + static_cast<size_t>(row)) * K + static_cast<size_t>(column)];
  }
  Half weight(int matrix, i64 row, i64 column) const {
    return weights_[(static_cast<size_t>(matrix) * N + static_cast<size_t>(row)) * K + static_cast<size_t>(column)];
  }

  struct Sum {
    f64 value = 0, size = 0;
  };
  Sum sum(int matrix, i64 t, i64 n) const {
    Sum result;
    f64 squares = 0;
    for (size_t k = 0; k < K; ++k) {
      const f32 x = to_f32(x_[static_cast<size_t>(t) * K + k]);
      const bool has_norm = Of::kKind != Kind::residual && !Of::kInParts;
      const f32 part = Of::factor;
      const f64 term = (has_norm ? f64(to_f32(rounded(x * to_f32(norm_[k]) * part))) / part : f64(x)) *
                       value(matrix, n, static_cast<i64>(k));
      result.value += term, result.size += std::abs(term), squares += f64(x) * x;
    }
    if (Of::kKind == Kind::residual) return result;
    if (Of::kInParts) {
      squares = 0;
      for (i64 c = 0; c < Of::C; ++c) squares += squares_[static_cast<size_t>(t * Of::C + c)];
    }
    const f64 scale = 1 / std::sqrt(squares / K + Of::eps);
    return {result.value * scale, result.size * scale};
  }
  /// Activations are rounded as the reference's are, so there is nothing but the rounding of sums in f32.
  void check() const {
    for (i64 t = 0; t < task_.T; ++t)
      for (i64 n = 0; n < Of::N; ++n) {
        const size_t at = static_cast<size_t>(t) * N + static_cast<size_t>(n);
        SCOPED_TRACE(testing::Message() << "row " << t << " of " << task_.T << ", column " << n);
        if (n < task_.n_begin || n >= task_.n_end) {
          ASSERT_TRUE(std::isnan(y_[at]) && std::isnan(copy_of(t, n))) << "of another task";
          continue;
        }
        Sum wanted = sum(0, t, n);
        if (Of::kKind == Kind::residual) wanted.value += residual_[at];
        if (Of::kKind == Kind::gate_up) {
          const Sum up = sum(1, t, n);
          const f64 silu = wanted.value / (1 + std::exp(-wanted.value));
          wanted = {silu * up.value, 1.1 * wanted.size * std::abs(up.value) + std::abs(silu) * up.size};
        }
        ASSERT_NEAR(y_[at], wanted.value, 1e-6 * wanted.size);
        if (Of::kKind != Kind::residual) continue;
        const f32 factor = Of::kInParts ? to_f32(norm_[static_cast<size_t>(n)]) * Of::factor : 1;
        ASSERT_EQ(copy_of(t, n), Of::kInParts ? to_f32(rounded(y_[at] * factor)) : y_[at]);
      }
    if (Of::kInParts && Of::kKind == Kind::residual) check_squares();
    // Every warp has given back every chunk.
    u32 arrivals = 0;
    for (int i = 0; i < Of::kGroups * Of::kChunks * Of::kStreams; ++i)
      EXPECT_EQ(ring_barriers().empty[(task_.ring + i).slot], kWarps);
    for (const Barrier barrier : ring_barriers().empty) arrivals += static_cast<u32>(barrier);
    EXPECT_EQ(arrivals, Of::kGroups * Of::kChunks * Of::kStreams * kWarps);
  }

  f32 copy_of(i64 t, i64 n) const {
    if constexpr (Of::kInParts)
      return to_f32(copied_[row_blocks::index(static_cast<u32>(t), static_cast<u32>(n), Of::T_largest)]);
    else
      return copy_[static_cast<size_t>(t) * N + static_cast<size_t>(n)];
  }
  void check_squares() const {
    for (i64 t = 0; t < task_.T; ++t)
      for (i64 c = 0; c < Of::C; ++c) {
        const f32 squares = squares_[static_cast<size_t>(t * Of::C + c)];
        if (c < task_.c_begin || c >= task_.c_end) {
          ASSERT_TRUE(std::isnan(squares)) << "of another task";
          continue;
        }
        f64 wanted = 0;
        for (i64 l = 0; l < Of::L; ++l) {
          const f64 y = y_[static_cast<size_t>(t * Of::N + c * Of::L + l)] * Of::factor;
          wanted += y * y;
        }
        ASSERT_NEAR(squares, wanted, 1e-6 * wanted);
      }
  }

  Of task_ = {};

 private:
  std::mt19937 random_{1};
  std::vector<Half> x_, norm_, weights_, blocks_, copied_;
  std::vector<u64> words_;
  std::vector<f32> squares_, residual_, y_, copy_, values_;
};

// A single row of more than four chunks is asked for in two steps; of several rows more than eight come in parts.
template <Kind kOf, i64 kMaxRows, int kChunks = kOf == Kind::gate_up ? 2 : 3>
using InParts = Task<kOf, kMaxRows, kChunks, 3, true>;
template <Kind kOf, i64 kMaxRows, int kChunks = 2, bool kInParts = false>
using OfF16 = Task<kOf, kMaxRows, kChunks, 2, kInParts, f16>;
template <Kind kOf, i64 kMaxRows, int kSpans, int kGroups, bool kInParts = false, class Of = bf16>
using OfInt8 = Task<kOf, kMaxRows, kSpans, kGroups, kInParts, Of, Int8<Of>>;
using Tasks = ::testing::Types<
    Task<Kind::normed, 1>, Task<Kind::normed, 1, 1, 5>, Task<Kind::normed, 1, 5, 2>, Task<Kind::residual, 1, 2, 5>,
    Task<Kind::normed, 1, 1, 1>, Task<Kind::normed, 1, 1, 2>, Task<Kind::residual, 1, 1, 3>,
    Task<Kind::normed, 1, 1, 4>, Task<Kind::normed, 1, 2, 2>, Task<Kind::residual, 1, 4, 2>,
    Task<Kind::residual, 1, 6, 1>, Task<Kind::normed, 1, 7, 1>, Task<Kind::residual, 1, 5, 2>, Task<Kind::gate_up, 1>,
    Task<Kind::gate_up, 1, 1, 5>, Task<Kind::normed, 4>, Task<Kind::normed, 8>, Task<Kind::residual, 2>,
    Task<Kind::residual, 4>, Task<Kind::residual, 8>, Task<Kind::residual, 4, 3, 3, false, bf16, const bf16*, 1>,
    Task<Kind::residual, 4, 5, 2, false, bf16, const bf16*, 2>,
    Task<Kind::residual, 1, 3, 3, false, bf16, const bf16*, 1>,
    Task<Kind::residual, 2, 5, 2, false, bf16, const bf16*, 3>, Task<Kind::gate_up, 2>, Task<Kind::gate_up, 4>,
    Task<Kind::gate_up, 8>, InParts<Kind::normed, 3>, InParts<Kind::normed, 8>, InParts<Kind::residual, 4>,
    InParts<Kind::residual, 8>, InParts<Kind::gate_up, 4>, InParts<Kind::gate_up, 8>, Task<Kind::residual, 8, 10, 1>,
    Task<Kind::residual, 8, 10, 1, true>, OfF16<Kind::normed, 1>, OfF16<Kind::normed, 1, 5>, OfF16<Kind::residual, 2>,
    OfF16<Kind::gate_up, 4>, OfF16<Kind::normed, 3, 2, true>, OfF16<Kind::residual, 8, 3, true>,
    OfF16<Kind::gate_up, 8, 2, true>, Task<Kind::residual, 8, 10, 1, true, f16>, OfInt8<Kind::normed, 1, 3, 3>,
    OfInt8<Kind::normed, 1, 2, 5>, OfInt8<Kind::normed, 1, 1, 5>, OfInt8<Kind::residual, 1, 8, 2>,
    OfInt8<Kind::residual, 1, 17, 1>, OfInt8<Kind::gate_up, 1, 4, 3>, OfInt8<Kind::residual, 2, 5, 3>,
    OfInt8<Kind::gate_up, 2, 2, 3>, OfInt8<Kind::normed, 3, 4, 3, true>, OfInt8<Kind::normed, 8, 8, 2, true>,
    OfInt8<Kind::gate_up, 4, 3, 3, true>, OfInt8<Kind::gate_up, 8, 2, 3, true>, OfInt8<Kind::residual, 4, 3, 3, true>,
    OfInt8<Kind::residual, 8, 11, 2, true>, OfInt8<Kind::normed, 4, 4, 2>, OfInt8<Kind::normed, 1, 4, 3, false, f16>,
    OfInt8<Kind::residual, 8, 11, 1, true, f16>>;
static_assert(Task<Kind::normed, 1>::kSlices == 1 && Task<Kind::residual, 1>::kSlices == 2, "both are tested");
TYPED_TEST_SUITE(LinearBlock, Tasks);

TYPED_TEST(LinearBlock, IsThatOfExactArithmetic) {
  for (const i64 rows : {TypeParam::T_largest, (TypeParam::T_largest + 2) / 2, i64{0}}) {
    if (rows == 0 && TypeParam::T_largest == 1) continue;  // it is taken to be there (rows_of())
    this->make(rows);
    by_block([&] { this->task_.run(); });
    this->check();
  }
}

// f16 ends at 65504, and what is multiplied behind a norm goes on: nothing becomes infinite, and what is up to four times
// as large counts as it is.
TEST(F16, IsTheLargestNumberBeyondItsRange) {
  const auto back = [](u32 pair) { return std::pair(Pair<f16>::low(pair), Pair<f16>::high(pair)); };
  EXPECT_EQ(back(Pair<f16>::of(1e9f, -1e9f)), std::pair(65504.0f, -65504.0f));
  f32 squares = 0;
  const u32 large = Pair<f16>::of(60000, -50000), four = Pair<f16>::of(4, 4);
  const uint2 product = normed<f16>({large, large}, {four, four}, squares);
  EXPECT_EQ(back(product.x), std::pair(60000.0f, -49984.0f));  // as f16 has 50000
  EXPECT_EQ(squares, 2 * (60000.0f * 60000.0f + 49984.0f * 49984.0f));
}

// Whoever waits for the one row that there is room for does so before there is one, however long it is.
TEST(LinearTask, OfOneRowIsThereInTheFirstIterationToo) {
  const auto check = [](auto task) {
    EXPECT_EQ(rows_of(task), 1);
    task.T = 1;
    EXPECT_EQ(rows_of(task), 1);
  };
  check(Task<Kind::residual, 1, 3>{});
  check(Task<Kind::residual, 1, 17>{});  // more columns than are looked at together
  EXPECT_EQ(rows_of(Task<Kind::residual, 2>{}), 0);
}

}  // namespace
}  // namespace megalith::kernels
