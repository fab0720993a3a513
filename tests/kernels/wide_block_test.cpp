// A GPU's projections for many rows (mainloop/gemm_wgmma.cuh) on a block of the host's threads, against f64. One thread
// more lays weights out as pack_weights.cuh does and hands them to the block, chunk by chunk, by a ring of few slots:
// late, and in as wild an order as copies may come in. wide_short_ring_test.cpp does the same with fewer slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

// What is __shared__ is a variable here, and a block has other lanes than another test's, so names are this file's own.
#ifndef MEGALITH_WIDE_ROOM  // slots that there is room for
#include "megalith/engine/quantize.h"
namespace host = megalith;
#define MEGALITH_WIDE_ROOM 9
#define megalith megalith_wide_block
#endif
#define MEGALITH_BLOCK_WARPS 16
#define MEGALITH_BLOCK_LANES 32
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {
    .shared_bytes = (8 << 10) + (152 << 10) + MEGALITH_WIDE_ROOM * (17 << 10),
    .area_bytes = 152 << 10,
    .stream_rows = 256,
    .scale_bytes = 1024};
}

#include "megalith/kernels/cuda/epilogue/finished.cuh"
#include "megalith/kernels/cuda/mainloop/gemm_wgmma.cuh"
#include "megalith/kernels/cuda/mainloop/pack_weights.cuh"
#include "megalith/kernels/cuda/pipeline/copy_warp.cuh"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_order.h"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

/// A phase is counted when it ends.
bool barrier_passed(Barrier* barrier, u32 parity) {
  give_way();
  const u64 arrivals = __atomic_load_n(barrier, __ATOMIC_ACQUIRE);
  const auto& empty = activation_ring.empty;
  const bool is_of_warps = std::ranges::any_of(empty, [&](const Barrier& other) { return &other == barrier; });
  return ((is_of_warps ? arrivals / kWarps : arrivals) & 1) != parity;
}

namespace {

static_assert(kRingSlots == (MEGALITH_WIDE_ROOM < 7 ? 4 : MEGALITH_WIDE_ROOM) &&
              stream::wide_bytes(64) <= kWorkerConfig.area_bytes &&
              stream::wide_own_bytes(256, true) <= kWorkerConfig.area_bytes);

// The gate of a SwiGLU MLP, as it is generated.
struct SwiGlu {
  f32 finish(f32 gate, f32 up, i64, i64) const { return fast_divide(gate, 1.0f + fast_exp(-gate)) * up; }
};

enum class Kind { plain, scaled, residual, gate_up, argmax, part };

template <Kind kOf>
struct Slices {
  static constexpr i64 kNumSlices = 1, kSlice = 0;
};
/// The second of two split-K slices.
template <>
struct Slices<Kind::part> {
  static constexpr i64 S = 2, kNumSlices = S, kSlice = 1;
  f32* part;  // (S, T, N)
  i64 s_begin = kSlice;
};

/// The operands of a projection, and a task of two and a half groups of its rows of weights; of a head of up to five.
/// `kTurn`: of groups at most, through a long ring. `kShares`: half of a group's rows, the other half of which is its partner's.
template <Kind kOf, i64 kMaxRows, i64 kRowsOfWeights, i64 kColumns, int kGroupRows, int kTurn, class Of = bf16,
          class W = const Of*, bool kShares = false>
struct Task : Slices<kOf> {
  using Half = Of;
  static constexpr bool kInt8 = WeightsOf<W>::kAreInt8;
  static constexpr Kind kKind = kOf;
  static constexpr int kMatrices = kKind == Kind::gate_up ? 2 : 1;
  static constexpr i64 T_largest = kMaxRows, N = kRowsOfWeights, K = kColumns, V = N;
  static constexpr int kGroup = kGroupRows, kNParallel = wide_most_groups(kTurn);
  static constexpr bool kHasPartner = kShares;
  static constexpr i64 kTaken = K / Task::kNumSlices;  // columns
  static constexpr stream::Order kStream = stream::wide_order(kTaken, kGroup, kMatrices, kTurn, kHasPartner);
  // Of chunks, of the logits or of squares, of which there are C; or of a slice.
  static constexpr i64 L = kKind == Kind::part ? kTaken : kKind == Kind::residual ? 32 : i64{kGroup};
  static constexpr i64 C = kKind == Kind::residual || kKind == Kind::argmax ? (N + L - 1) / L : 37;
  static constexpr i64 kGroupsOfHead = C > 6 ? 5 : C - 1;
  static constexpr f32 eps = 1e-5f, factor = Pair<Of>::kNormed;
  static constexpr bool kInBlocks = K % row_blocks::kColumns == 0;
  std::conditional_t<kInBlocks, Blocked<const Of, kMaxRows, K>, const Of*> x;
  std::conditional_t<kKind == Kind::residual, f32*, const f32*> squares;  // (T, C)
  W weight, gate;                                                         // (N, K)
  const Of* norm;                                                         // (N)
  const f32* residual;                                                    // (T, N)
  // (T, N); in blocks of the most rows.
  static constexpr bool kPutsBlocks = kKind == Kind::scaled && kMaxRows == 512;
  std::conditional_t<kKind == Kind::gate_up, Finished<f32*, SwiGlu>,
                     std::conditional_t<kPutsBlocks, Blocked<Of, kMaxRows, N>, f32*>>
      y;
  Blocked<Of, kMaxRows, kKind == Kind::residual ? N : 32> copy;  // (T, N)
  f32* logits;                                                   // (T, V)
  f32* value;                                                    // (T, C)
  i32* index;                                                    // (T, C)
  i64 T, n_begin = kHasPartner ? kGroup + kGroup / 2 : kGroup,
         n_end = kHasPartner               ? 2 * kGroup
                 : kKind == Kind::residual ? 3 * kGroup - kGroup / 64 * 32
                 : kKind == Kind::argmax   ? min((kGroupsOfHead + 1) * L, N)
                 : kPutsBlocks             ? N
                                           : 3 * kGroup + kGroup / 2;
  i64 c_begin = n_begin / L, c_end = kKind == Kind::argmax ? kGroupsOfHead + 1 : n_end / L;
  // Of the second tile of them where there is one.
  i64 t_begin = kMaxRows > stream::kTileRows ? stream::kTileRows : 0, t_end = kMaxRows;
  static constexpr u64 kFirstChunk = 5;
  RingPlace ring = RingPlace{0, 0}.any_further(kFirstChunk);
  Epoch epoch = {7, nullptr};
  const Task* task = nullptr;  // as it was handed out

  static const Task& of(const Task& task) { return task; }
  void run() const {
    if constexpr (kKind == Kind::plain) gemm_linear(*this);
    if constexpr (kKind == Kind::part) gemm_linear_splitk(*this);
    if constexpr (kKind == Kind::scaled) gemm_deferred_rmsnorm_linear(*this);
    if constexpr (kKind == Kind::residual) gemm_linear_residual_rmsnorm_parts(*this);
    if constexpr (kKind == Kind::gate_up) gemm_deferred_rmsnorm_gate_up(*this);
    if constexpr (kKind == Kind::argmax) gemm_linear_argmax(*this);
  }
};

template <class Of>
class WideBlock : public ::testing::Test {
 protected:
  static constexpr size_t K = Of::K, N = Of::N;
  static constexpr size_t kBefore = static_cast<size_t>(Of::kSlice * Of::T_largest) * N;  // results of slices

  using Half = typename Of::Half;
  static constexpr Half kNan = {0x7fff};  // of either kind
  static constexpr u32 kQuantColumns = Of::T_largest > 64 ? 96 : 32;

  static Half rounded(f32 x) {
    if constexpr (std::is_same_v<Half, bf16>)
      return to_bf16(x);
    else
      return to_f16(x);
  }
  Half one() { return rounded(std::normal_distribution<f32>()(random_)); }
  void make(i64 rows) {
    task_.T = rows;
    task_.task = &task_;
    x_.assign(static_cast<size_t>(Of::T_largest) * K, kNan);
    plain_ = x_;
    for (size_t i = 0; i < static_cast<size_t>(rows) * K; ++i) {
      plain_[i] = one();
      x_[Of::kInBlocks ? row_blocks::index(static_cast<u32>(i / K), i % K, Of::T_largest) : i] = plain_[i];
    }
    if constexpr (Of::kInBlocks)
      task_.x = {x_.data()};
    else
      task_.x = x_.data();
    // Nobody reads the rows of another task.
    weights_.assign(Of::kMatrices * N * K, kNan);
    for (int matrix = 0; matrix < Of::kMatrices; ++matrix)
      for (i64 n = Of::kHasPartner ? Of::kGroup : task_.n_begin; n < task_.n_end; ++n)
        for (size_t k = 0; k < K; ++k)
          weights_[(static_cast<size_t>(matrix) * N + static_cast<size_t>(n)) * K + k] = one();
    if (Of::kInt8) quantize();
    squares_.assign(static_cast<size_t>(Of::T_largest * Of::C), NAN);
    if (Of::kKind != Kind::residual)
      for (i64 i = 0; i < rows * Of::C; ++i) squares_[static_cast<size_t>(i)] = std::abs(to_f32(one()));
    norm_.clear(), residual_.clear();
    for (size_t n = 0; n < N; ++n) norm_.push_back(one());
    for (size_t i = 0; i < static_cast<size_t>(rows) * N; ++i) residual_.push_back(to_f32(one()));
    y_.assign(kBefore + static_cast<size_t>(rows) * N, NAN);
    if constexpr (Of::kKind == Kind::part) task_.part = y_.data();
    if (Of::kKind == Kind::residual) copy_.assign(static_cast<size_t>(Of::T_largest) * N, kNan);
    task_.squares = squares_.data(), task_.norm = norm_.data(), task_.residual = residual_.data();
    largest_.assign(static_cast<size_t>(rows * Of::C), NAN);
    column_of_largest_.assign(largest_.size(), -1);
    if constexpr (Of::kPutsBlocks) {
      blocks_.assign(static_cast<size_t>(Of::T_largest) * N, kNan);
      task_.y = {blocks_.data()};
    } else {
      task_.y = {y_.data()};
    }
    task_.logits = y_.data(), task_.copy = {copy_.data()};
    task_.value = largest_.data(), task_.index = column_of_largest_.data();
  }
  /// What int8 leaves of the weights, rounded once more: tensor cores multiply floats of 16 bits.
  void quantize() {
    raw_ = weights_;
    std::vector<int8_t> numbers(K);
    std::vector<uint16_t> scales((K + kQuantColumns - 1) / kQuantColumns);
    for (size_t first = 0; first < weights_.size(); first += K) {
      if (std::isnan(to_f32(raw_[first]))) continue;
      host::engine::quantize_rows(numbers.data(), scales.data(), &raw_[first],
                                  std::is_same_v<Half, f16> ? host::DType::f16 : host::DType::bf16, K, kQuantColumns, 0,
                                  1);
      for (size_t k = 0; k < K; ++k) {
        const f32 scale = to_f32(bf16{scales[k / kQuantColumns]});
        weights_[first + k] = rounded(numbers[k] * to_f32(rounded(scale)));
      }
    }
  }
  /// As a producer does, each chunk once its slot is free and all but the last few are in, but those in the wrong
  /// order.
  void stream() {
    self = 0;
    RingBarriers& barriers = ring_barriers();
    for (u64 s = 0; s < kRingSlots; ++s) {
      barriers.full[s] = (Of::kFirstChunk + kRingSlots - 1 - s) / kRingSlots;
      barriers.empty[s] = 0;
    }
    ready_ = true;
    ready_.notify_all();
    constexpr int kChunkRows = Of::kGroup * Of::kMatrices,
                  kWidth = stream::wide_columns(kChunkRows) * (Of::kInt8 ? int8::kSpans : 1);
    // As runtime/cuda/streams.cpp has them: of groups that are N-parallel a chunk each, in turn.
    std::vector<std::pair<i64, u32>> chunks;  // first row, chunk of the columns
    if (Of::kHasPartner) {                    // those of both, and half of the columns
      constexpr u32 kHalf = static_cast<u32>(Of::kStream.chunks) / (Of::kInt8 ? int8::kSpans : 1);
      for (u32 chunk = 0; chunk < kHalf; ++chunk)
        chunks.emplace_back(Of::kGroup, chunk + (task_.n_begin % Of::kGroup == 0 ? 0 : kHalf));
    }
    for (i64 row = task_.n_begin; row < task_.n_end && !Of::kHasPartner;) {
      const i64 left = (task_.n_end - row + Of::kGroup - 1) / Of::kGroup;
      const int n_parallel = stream::wide_turn(static_cast<int>(left), Of::kNParallel);
      constexpr u32 kFirst = static_cast<u32>(Of::kSlice * Of::kTaken) / kWidth;
      for (u32 chunk = 0; chunk * kWidth < static_cast<u32>(Of::kTaken); ++chunk)
        for (int i = 0; i < n_parallel; ++i) chunks.emplace_back(row + i * Of::kGroup, kFirst + chunk);
      row += n_parallel * Of::kGroup;
    }
    const auto slot_of = [](u64 chunk) { return (Of::kFirstChunk + chunk) % kRingSlots; };
    const auto come = [&](u64 chunk) {
      const auto [row, column_chunk] = chunks[chunk];
      // Each third one lies on a side of the L2: one half of a block or the other, of which the copy takes the pieces.
      alignas(16) u8 block[stream::kBlockBytes];
      const bool on_sides = chunk % 3 == 2;
      const u64 half = chunk / 3 % 2;
      u8* const slot = ring_slot(static_cast<u32>(slot_of(chunk)));
      for (u32 matrix = 0; matrix < Of::kMatrices; ++matrix)
        pack_chunk(
            on_sides ? block : slot,
            {.weights = &(Of::kInt8 ? raw_ : weights_)[matrix * N * K].bits,
             .chunk = on_sides ? half : 0,
             .columns = K,
             .first_row = static_cast<u64>(row),
             .num_rows = static_cast<u32>(Of::kHasPartner ? Of::kGroup : min(i64{Of::kGroup}, task_.n_end - row)),
             .column_chunk = column_chunk,
             .slices = 0,
             .group = Of::kGroup,
             .matrix = matrix,
             .matrices = Of::kMatrices,
             .quant_columns = Of::kInt8 ? kQuantColumns : 0,
             .is_f16 = std::is_same_v<Half, f16>,
             .scales = ring_scales(static_cast<u32>(slot_of(chunk))) - (on_sides ? half * kScaleBytes : 0)},
            on_sides);
      constexpr int kPieceBytes = stream::piece_bytes(stream::chunk_size(kChunkRows));
      for (int i = 0; on_sides && i < stream::kChunkPieces; ++i)
        std::memcpy(slot + i * kPieceBytes, block + stream::half_piece(static_cast<int>(half), i) * stream::kPieceBytes,
                    kPieceBytes);
      __atomic_fetch_add(&barriers.full[slot_of(chunk)], 1, __ATOMIC_RELEASE);
    };
    const u64 num_chunks = chunks.size();
    const auto times_free = [&](u64 chunk) {
      return __atomic_load_n(&barriers.empty[slot_of(chunk)], __ATOMIC_ACQUIRE) / kWarps;
    };
    for (u64 first = 0; first < num_chunks;) {
      // The last ones may be waiting for a slot.
      const u64 most = std::min(first + stream::ring_copies(kRingSlots, kWorkerConfig.stream_rows), num_chunks);
      u64 end = first;
      while (end < most && times_free(end) >= end / kRingSlots) ++end;
      if (end == first) {
        std::this_thread::yield();
        continue;
      }
      for (u64 chunk = end; --chunk > first;) come(chunk);
      // The oldest one comes when all others have been taken, or nobody gets on without it, and who took them has had
      // the time to ask for more.
      const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      for (u64 chunk = first + 1; chunk < end; ++chunk)
        while (times_free(chunk) <= chunk / kRingSlots && std::chrono::steady_clock::now() < enough)
          std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      come(first);
      first = end;
    }
    num_chunks_ = num_chunks;
  }
  void run() {
    if constexpr (Of::kHasPartner) run_partner();
    run_task();
  }
  /// What it hands over does not depend on what it is handed. What it writes is nobody's.
  void run_partner() {
    const Of own = task_;
    const i64 rows = own.n_end - own.n_begin;
    std::vector<f32> y(y_.size()), squares(squares_.size());
    std::vector<Half> copy(copy_.size());
    task_.n_begin -= rows, task_.n_end -= rows, task_.c_begin -= rows / Of::L, task_.c_end -= rows / Of::L;
    task_.y = {y.data()}, task_.squares = squares.data(), task_.copy = {copy.data()};
    handed_to_partner.clear(), handed_by_partner.clear();
    run_task();
    task_ = own;
    handed_by_partner = handed_to_partner;
  }
  void run_task() {
    ready_ = false;
    std::jthread producer([this] { stream(); });
    ready_.wait(false);
    make_copied_rings();
    make_partner_state();
    by_block_beside([](auto is_over) { copy_warp_run(is_over); }, [this] { task_.run(); });
  }

  struct Sum {
    f64 value = 0, size = 0;
  };
  Sum sum(size_t matrix, i64 t, i64 n) const {
    Sum result;
    for (size_t k = Of::kSlice * Of::kTaken; k < (Of::kSlice + 1) * Of::kTaken; ++k) {
      const f64 term = f64(to_f32(plain_[static_cast<size_t>(t) * K + k])) *
                       to_f32(weights_[(matrix * N + static_cast<size_t>(n)) * K + k]);
      result.value += term, result.size += std::abs(term);
    }
    if (Of::kKind != Kind::scaled && Of::kKind != Kind::gate_up) return result;
    f64 squares = 0;
    for (i64 c = 0; c < Of::C; ++c) squares += squares_[static_cast<size_t>(t * Of::C + c)];
    const f64 scale = 1 / std::sqrt(squares / K + Of::eps);
    return {result.value * scale, result.size * scale};
  }
  void check() {
    for (size_t i = 0; Of::kPutsBlocks && i < y_.size(); ++i)
      y_[i] = to_f32(blocks_[row_blocks::index(static_cast<u32>(i / N), i % N, Of::T_largest)]);
    for (i64 t = 0; t < task_.T; ++t)
      for (i64 n = 0; n < Of::N; ++n) {
        const size_t at = kBefore + static_cast<size_t>(t) * N + static_cast<size_t>(n);
        if (t < task_.t_begin || n < task_.n_begin || n >= task_.n_end) {
          ASSERT_TRUE(std::isnan(y_[at])) << "row " << t << ", column " << n << " is another task's";
          continue;
        }
        SCOPED_TRACE(testing::Message() << "row " << t << " of " << task_.T << ", column " << n);
        Sum wanted = sum(0, t, n);
        if (Of::kKind == Kind::residual) wanted.value += residual_[at];
        if (Of::kKind == Kind::gate_up) {
          const Sum up = sum(1, t, n);
          const f64 silu = wanted.value / (1 + std::exp(-wanted.value));
          wanted = {silu * up.value, 1.1 * wanted.size * std::abs(up.value) + std::abs(silu) * up.size};
        }
        ASSERT_NEAR(y_[at], wanted.value, 1e-6 * wanted.size + (Of::kPutsBlocks ? std::abs(wanted.value) / 256 : 0));
      }
    if constexpr (Of::kKind == Kind::residual) check_copy();
    if constexpr (Of::kKind == Kind::argmax) check_largest();
    // Who has a chunk gives it back, for as many as the ring waits for.
    for (u64 s = 0; s < kRingSlots; ++s) {
      const u64 first = (s + kRingSlots - Of::kFirstChunk % kRingSlots) % kRingSlots;
      EXPECT_EQ(ring_barriers().empty[s], (num_chunks_ + kRingSlots - 1 - first) / kRingSlots * kWarps);
    }
  }
  void check_largest() const {
    for (i64 t = 0; t < task_.T; ++t)
      for (i64 c = 0; c < Of::C; ++c) {
        const size_t at = static_cast<size_t>(t * Of::C + c);
        SCOPED_TRACE(testing::Message() << "row " << t << " of " << task_.T << ", chunk " << c);
        if (c < task_.c_begin || c >= task_.c_end) {
          ASSERT_EQ(column_of_largest_[at], -1) << "of another task";
          continue;
        }
        const auto row = y_.begin() + t * Of::N;
        const auto largest = std::max_element(row + c * Of::L, row + min((c + 1) * Of::L, Of::N));
        ASSERT_EQ(column_of_largest_[at], largest - row);
        ASSERT_EQ(largest_[at], *largest);
      }
  }
  void check_copy() const {
    for (i64 t = task_.T; t < Of::T_largest; ++t)
      for (u32 n = 0; n < N; ++n)
        ASSERT_TRUE(std::isnan(to_f32(copy_[row_blocks::index(static_cast<u32>(t), n, Of::T_largest)]))) << "no row";
    for (i64 t = 0; t < task_.T; ++t)
      for (i64 c = 0; c < Of::C; ++c) {
        const f32 squares = squares_[static_cast<size_t>(t * Of::C + c)];
        const bool is_mine = t >= task_.t_begin && c >= task_.c_begin && c < task_.c_end;
        f64 wanted = 0;
        for (i64 n = c * Of::L; n < (c + 1) * Of::L; ++n) {
          const f32 y = y_[static_cast<size_t>(t * Of::N + n)],
                    copy = to_f32(copy_[row_blocks::index(static_cast<u32>(t), static_cast<u32>(n), Of::T_largest)]);
          wanted += f64(y) * y * Of::factor * Of::factor;
          if (is_mine)
            ASSERT_EQ(copy, to_f32(rounded(y * Of::factor * to_f32(norm_[static_cast<size_t>(n)]))));
          else
            ASSERT_TRUE(std::isnan(copy)) << "of another task";
        }
        if (is_mine)
          ASSERT_NEAR(squares, wanted, 1e-6 * wanted);
        else
          ASSERT_TRUE(std::isnan(squares)) << "of another task";
      }
  }

  Of task_ = {};

 private:
  std::mt19937 random_{1};
  std::atomic<bool> ready_{false};
  u64 num_chunks_ = 0;
  std::vector<Half> x_, plain_, norm_, weights_, raw_, copy_, blocks_;
  std::vector<f32> squares_, residual_, y_, largest_;
  std::vector<i32> column_of_largest_;
};

// Of 64, 48 and 32 rows of weights, N-parallel and not; of fewer chunks than there are warpgroups and of more; of up to
// 16, 64, 128, 256 and 512 rows.
template <Kind kOf, i64 kMaxRows, i64 kRowsOfWeights, i64 kColumns, int kGroupRows, int kTurn, class Of = bf16>
using OfInt8 = Task<kOf, kMaxRows, kRowsOfWeights, kColumns, kGroupRows, kTurn, Of, Int8<Of>>;
template <i64 kMaxRows, i64 kColumns, int kGroupRows, class Of = bf16, class W = const Of*>
using OfPartners = Task<Kind::residual, kMaxRows, 3 * kGroupRows, kColumns, kGroupRows, 1, Of, W, true>;
#ifdef MEGALITH_WIDE_FEW
using Tasks =
    ::testing::Types<Task<Kind::plain, 16, 32770, 168, 64, 4>, Task<Kind::scaled, 64, 6150, 832, 48, 1>,
                     Task<Kind::residual, 128, 128, 768, 32, 1>, Task<Kind::argmax, 48, 6150, 416, 48, 4>,
                     Task<Kind::gate_up, 128, 12288, 168, 32, 2>, Task<Kind::part, 128, 8192, 768, 64, 2>,
                     OfInt8<Kind::gate_up, 48, 12288, 672, 32, 4>, OfInt8<Kind::argmax, 128, 32770, 168, 64, 2>,
                     Task<Kind::plain, 256, 450, 160, 128, 1>, Task<Kind::gate_up, 208, 170, 96, 48, 1, f16>,
                     OfInt8<Kind::plain, 256, 450, 160, 128, 1>, Task<Kind::residual, 512, 192, 288, 64, 1>,
                     OfPartners<512, 256, 64>, OfPartners<256, 384, 128>>;
#else
using Tasks =
    ::testing::Types<Task<Kind::plain, 16, 32770, 168, 64, 4>, Task<Kind::plain, 64, 6150, 416, 48, 1>,
                     Task<Kind::plain, 128, 200, 1312, 32, 1>, Task<Kind::scaled, 64, 6150, 832, 48, 1>,
                     Task<Kind::scaled, 128, 200, 288, 32, 1>, Task<Kind::residual, 32, 128, 1312, 32, 1>,
                     Task<Kind::residual, 128, 128, 768, 32, 1>, Task<Kind::residual, 16, 96, 2848, 32, 1>,
                     Task<Kind::gate_up, 48, 12288, 672, 32, 4>, Task<Kind::gate_up, 128, 3072, 352, 24, 1>,
                     Task<Kind::gate_up, 64, 70, 264, 16, 1>, Task<Kind::argmax, 64, 118, 416, 32, 4>,
                     Task<Kind::argmax, 48, 6150, 416, 48, 4>, Task<Kind::argmax, 128, 32770, 168, 64, 2>,
                     Task<Kind::gate_up, 128, 12288, 168, 32, 2>, Task<Kind::part, 128, 8192, 768, 64, 2>,
                     Task<Kind::part, 16, 600, 1536, 32, 1>, Task<Kind::plain, 16, 200, 168, 32, 1, f16>,
                     Task<Kind::scaled, 64, 6150, 832, 48, 1, f16>, Task<Kind::residual, 128, 128, 768, 32, 1, f16>,
                     Task<Kind::gate_up, 48, 12288, 672, 32, 4, f16>, Task<Kind::argmax, 64, 118, 416, 32, 4, f16>,
                     OfInt8<Kind::plain, 16, 32770, 168, 64, 4>, OfInt8<Kind::plain, 128, 200, 1312, 32, 1>,
                     OfInt8<Kind::scaled, 64, 6150, 832, 48, 1>, OfInt8<Kind::residual, 32, 128, 1312, 32, 1>,
                     OfInt8<Kind::residual, 128, 128, 768, 32, 1>, OfInt8<Kind::gate_up, 48, 12288, 672, 32, 4>,
                     OfInt8<Kind::gate_up, 128, 3072, 352, 24, 1>, OfInt8<Kind::argmax, 48, 6150, 416, 48, 4>,
                     OfInt8<Kind::argmax, 128, 32770, 168, 64, 2>, OfInt8<Kind::part, 128, 8192, 1024, 64, 2>,
                     OfInt8<Kind::scaled, 128, 200, 288, 32, 1, f16>, Task<Kind::plain, 256, 450, 200, 128, 1>,
                     Task<Kind::scaled, 256, 340, 168, 96, 1>, Task<Kind::part, 144, 450, 512, 128, 1>,
                     Task<Kind::gate_up, 256, 240, 168, 64, 1>, Task<Kind::gate_up, 208, 170, 96, 48, 1, f16>,
                     Task<Kind::residual, 256, 128, 288, 32, 1>, Task<Kind::argmax, 160, 230, 168, 64, 1>,
                     OfInt8<Kind::plain, 256, 450, 160, 128, 1>, OfInt8<Kind::gate_up, 256, 170, 128, 48, 1>,
                     Task<Kind::residual, 512, 192, 288, 64, 1>, Task<Kind::residual, 304, 288, 96, 96, 1, f16>,
                     Task<Kind::scaled, 512, 352, 160, 96, 1>, Task<Kind::gate_up, 400, 170, 96, 48, 1>,
                     Task<Kind::part, 272, 450, 512, 128, 1>, OfInt8<Kind::residual, 336, 192, 96, 64, 1>,
                     OfPartners<256, 384, 128>, OfPartners<512, 256, 64>, OfPartners<304, 128, 128, f16>,
                     OfPartners<192, 512, 128, bf16, Int8<bf16>>, OfPartners<336, 512, 64, f16, Int8<f16>>>;
#endif
TYPED_TEST_SUITE(WideBlock, Tasks);

TYPED_TEST(WideBlock, IsThatOfExactArithmetic) {
  for (const i64 rows : {TypeParam::T_largest, (TypeParam::T_largest + 2) / 2}) {
    this->make(rows);
    this->run();
    this->check();
  }
}

/// The operands of an `sum_slices_rmsnorm_parts`, and a task of two chunks of columns and all but a few rows.
template <i64 kNumSlices, i64 kMaxRows>
struct AddTask {
  static constexpr i64 S = kNumSlices, T_largest = kMaxRows, C = 4, L = 32;
  static constexpr f32 factor = 1;
  const f32 *part, *residual;           // (S, T, C L), (T, C L)
  const bf16* norm;                     // (C L)
  f32* y;                               // (T, C L)
  Blocked<bf16, kMaxRows, C * L> copy;  // (T, C L)
  f32* squares;                         // (T, C)
  i64 T = kMaxRows - 3, t_begin = 2, t_end = kMaxRows, c_begin = 1, c_end = 3;
  Epoch epoch = {7, nullptr};
};
template <class Of>
void check_add() {
  constexpr size_t kColumns = Of::C * Of::L, kRows = Of::T_largest;
  std::mt19937 random(1);
  const auto some = [&] { return std::normal_distribution<f32>()(random); };
  std::vector<f32> part(Of::S * kRows * kColumns), residual(kRows * kColumns), y(residual.size(), NAN);
  std::vector<f32> squares(kRows * Of::C, NAN);
  std::vector<bf16> norm(kColumns), copy(residual.size(), bf16{0x7fc0});
  for (f32& value : part) value = some();
  for (f32& value : residual) value = some();
  for (bf16& value : norm) value = to_bf16(some());
  Of task = {};
  task.part = part.data(), task.residual = residual.data(), task.norm = norm.data();
  task.y = y.data(), task.copy = {copy.data()}, task.squares = squares.data();
  by_block([&] { sum_slices_rmsnorm_parts_rows(task); });
  for (size_t t = 0; t < kRows; ++t)
    for (size_t c = 0; c < Of::C; ++c) {
      SCOPED_TRACE(testing::Message() << "row " << t << ", chunk " << c);
      const bool is_mine = i64(t) >= task.t_begin && i64(t) < task.T && i64(c) >= task.c_begin && i64(c) < task.c_end;
      f64 sum = 0;
      for (size_t n = c * Of::L; n < (c + 1) * Of::L; ++n) {
        const f32 found = y[t * kColumns + n],
                  of_copy = to_f32(copy[row_blocks::index(static_cast<u32>(t), static_cast<u32>(n), kRows)]);
        ASSERT_EQ(std::isnan(found) && std::isnan(of_copy), !is_mine);
        if (!is_mine) continue;
        f64 wanted = residual[t * kColumns + n];
        for (size_t s = 0; s < Of::S; ++s) wanted += part[(s * kRows + t) * kColumns + n];
        ASSERT_NEAR(found, wanted, 1e-5);
        ASSERT_EQ(of_copy, to_f32(to_bf16(found * to_f32(norm[n]))));
        sum += f64(found) * found;
      }
      if (is_mine)
        ASSERT_NEAR(squares[t * Of::C + c], sum, 1e-6 * sum);
      else
        ASSERT_TRUE(std::isnan(squares[t * Of::C + c]));
    }
}
TEST(WideBlockAddParts, IsThatOfExactArithmetic) {
  check_add<AddTask<2, 16>>();
  check_add<AddTask<4, 128>>();
  check_add<AddTask<8, 128>>();
}

}  // namespace
}  // namespace megalith::kernels
