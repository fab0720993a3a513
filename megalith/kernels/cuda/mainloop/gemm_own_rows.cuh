// Multiplications of more than 128 rows of activations (gemm_mainloop.cuh), of which each warp has 16 to itself: activations come
// by a ring of their own, sums are complete in registers, and what becomes of them leaves from there.
#pragma once

#include "megalith/kernels/cuda/epilogue/finished.cuh"
#include "megalith/kernels/cuda/mainloop/gemm_mainloop.cuh"
#include "megalith/kernels/cuda/mainloop/ring_activations.cuh"

namespace megalith::kernels {

/// How the warps of a task that have 16 rows each to themselves come by them: from the L2 into registers, as long as there
/// are some. With them, of 256 tokens of Qwen3-8B on an H100, gate_up takes 102 us instead of 110; by the ring down takes
/// 47 us instead of 58.
template <class Ahead>
struct OwnAhead : Ahead {
  using Ahead::Ahead;
  void pass_chunk() {}
  void end() {}
};
template <int kChunkRows, int kSpans, class X, class Args>
inline auto own_activations(const Args& args, X x, int) {
  return OwnAhead<ActivationsAhead<kChunkRows, kSpans, Shares<1, true>, X>>(x, first_token(args), num_tokens(args),
                                                                            static_cast<int>(columns_of_task<Args>()));
}
template <int kChunkRows, int kSpans, Half T, i64 kRows, i64 kColumns, class Args>
inline auto own_activations(const Args& args, Blocked<const T, kRows, kColumns> x, int turns) {
  return ActivationsFromRing<kChunkRows, kSpans, T, kRows, kColumns>(x, first_token(args), num_tokens(args),
                                                                     static_cast<int>(columns_of_task<Args>()), turns);
}
/// All groups of rows of weights of a task, of whose activations each warp has 16 rows to itself: `begin` up to `end`.
/// `finish(group, sums)` behind each. A warpgroup whose rows are nobody's lets the others have the tensor cores. Sums leave
/// few registers, so what `finish` needs of the task it looks up.
template <int kMatrices, class X, class Args, class Meanwhile, class Finish>
inline void wide_groups_own_rows(const Args& args, X x, int begin, int end, Meanwhile meanwhile, Finish finish) {
  constexpr int kGroup = Args::kStream.group, kChunkRows = kGroup * kMatrices;
  static_assert(kGroup % 8 == 0);
  using Weights = WeightsOf<decltype(wide_operand(args))>;
  using Sums = WideSums<kChunkRows, Shares<1, true>, Weights>;
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
  const int groups = (end - begin + kGroup - 1) / kGroup;
  auto activations = own_activations<kChunkRows, Weights::kSpans>(args, x, groups);
  meanwhile();
  block_sync();
  const bool has_rows = warp() / 4 * stream::kWideRows < num_tokens(args);
#pragma unroll 1
  for (int group = 0; group < groups; ++group) {
    if (has_rows) {
      Sums sums;
      if constexpr (activations.kAreShared)
        ring = sums.multiply_shared(ring, activations);
      else
        ring = sums.multiply(ring, activations, 1, group + 1 == groups);
      finish(group, sums);
    } else {
      ring = Sums::pass(ring, activations);
    }
  }
  if (thread() == 0) activations.end();
}
/// The same of a group that the task has with its partner (pipeline/partner.cuh): `finish(0, sums)` has its half of them.
/// `is_second(args)`: which half.
template <class X, class Args, class IsSecond, class Finish>
inline void wide_group_of_partners(const Args& args, X x, IsSecond is_second, Finish finish) {
  using Weights = WeightsOf<decltype(wide_operand(args))>;
  using Sums = WideSums<Args::kStream.group, Shares<1, true>, Weights>;
  inputs_are_ready(args.epoch);
  if (thread() == 0) partners_begin();
  const auto half = half_of_columns(args, x, is_second(args));
  auto activations = own_activations<Args::kStream.group, Weights::kSpans>(args, half, 1);
  block_sync();
  const bool has_rows = warp() / 4 * stream::kWideRows < num_tokens(args);
  if (has_rows) {
    const auto* const task = args.task;
    Sums sums;
    if constexpr (activations.kAreShared)
      sums.multiply_shared(args.ring, activations);
    else
      sums.multiply(args.ring, activations, 1, true);
    sums.hand_over(is_second(Args::of(*task)));
    finish(0, sums);
  } else {
    Sums::pass(args.ring, activations);
    hand_nothing_over();
  }
  if (thread() == 0) activations.end();
}
/// What becomes of each pair of sums of a row, of each matrix: y, by its epilogue, of sums that are scaled row by row or not.
template <bool kScaled>
struct PutOutput {
  static constexpr bool kIsPart = false;
  template <class Args, int kMatrices>
  static float2 value(const Args& now, int row, int column, const float2 (&y)[kMatrices]) {
    if constexpr (!kScaled) return finished_pair(now.y, row, column, y);
    const f32 scale = wide_scales<Args>()[row - first_token(now)];
    float2 scaled[kMatrices];
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) scaled[m] = {y[m].x * scale, y[m].y * scale};
    return finished_pair(now.y, row, column, scaled);
  }
  template <class Args, int kMatrices>
  void operator()(const Args& now, int row, int column, const float2 (&y)[kMatrices]) const {
    const float2 of = value(now, row, column, y);
    put_pair_of(written_to(now.y), row, column, row * static_cast<int>(Args::N) + column, of.x, of.y, now.epoch);
  }
};
/// Of a slice of K, as they are.
struct PutPart {
  static constexpr bool kIsPart = true;
  template <class Args>
  void operator()(const Args& now, int row, int column, const float2 (&y)[1]) const {
    const int at = static_cast<int>(now.s_begin) * static_cast<int>(Args::T_largest) + row;
    put_two(now.part, at * static_cast<int>(Args::N) + column, y[0].x, y[0].y, now.epoch);
  }
};
/// Whether whole blocks of what is put are in a group.
template <class Args, class Put>
constexpr bool puts_tiles() {
  if constexpr (!Put::kIsPart)
    return kIsBlocked<decltype(written_to(Args{}.y))> && Args::kStream.group % row_blocks::kColumns == 0;
  else
    return false;
}
/// `put(args, row, column, y)` for each pair of results, `y` of each matrix.
template <int kMatrices, class X, class Args, class Meanwhile, class Put>
inline void wide_run_own_rows(const Args& args, X x, Meanwhile meanwhile, Put put) {
  constexpr int kGroup = Args::kStream.group, kEights = kGroup / 8;
  const auto finish = [task = args.task, put](int group, const auto& sums) {
    const Args now = Args::of(*task);
    const int first = static_cast<int>(now.n_begin) + group * kGroup, n_end = static_cast<int>(now.n_end),
              first_row = first_token(now), rows = num_tokens(now);
    const auto of_matrices = [&](int eight, int half, float2(&y)[kMatrices]) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) y[m] = sums.pair(eight + m * kEights, half);
    };
    const int row = wide_row_tile<1>() * row_blocks::kRows;  // the warp's first one
    if constexpr (puts_tiles<Args, Put>()) {
      constexpr int kTileEights = row_blocks::kColumns / 8;
#pragma unroll
      for (int tile = 0; tile < kGroup / row_blocks::kColumns; ++tile) {
        const int column = first + tile * row_blocks::kColumns;
        if (row >= rows || column >= n_end) break;
        u32 pairs[kTileEights][2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int j = 0; j < kTileEights; ++j) {
            float2 y[kMatrices];
            of_matrices(tile * kTileEights + j, half, y);
            const float2 of =
                put.value(now, first_row + row + lane() / 4 + 8 * half, column + j * 8 + lane() % 4 * 2, y);
            pairs[j][half] = Pair<HalfOf<decltype(written_to(now.y))>>::of(of.x, of.y);
          }
        put_tile(written_to(now.y), first_row + row, column, rows - row, pairs);
      }
    } else {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int of_lane = row + lane() / 4 + 8 * half, column = first + eight * 8 + lane() % 4 * 2;
          float2 y[kMatrices];
          of_matrices(eight, half, y);
          if (of_lane < rows && column < n_end) put(now, first_row + of_lane, column, y);
        }
    }
  };
  wide_groups_own_rows<kMatrices>(args, x, static_cast<int>(args.n_begin), static_cast<int>(args.n_end), meanwhile,
                                  finish);
}
/// y = residual + x weight^T, with a copy that has the next norm's weight, and squares, of rows that each warp has to itself:
/// four lanes have a row's L columns.
template <class Args>
inline void gemm_linear_residual_rmsnorm_parts_own_rows(const Args& args) {
  constexpr int L = static_cast<int>(Args::L), C = static_cast<int>(Args::C), kGroup = Args::kStream.group,
                kEights = L / 8, kFinished = Args::kStream.partners ? kGroup / 2 : kGroup;
  static_assert(kFinished % L == 0 && L == row_blocks::kColumns);
  const auto finish = [task = args.task](int group, const auto& sums) {
    const Args now = Args::of(*task);
    const int row = wide_row_tile<1>() * row_blocks::kRows, rows = num_tokens(now), first_row = first_token(now),
              c_end = static_cast<int>(now.c_end);
    using Norm = Pair<HalfOf<decltype(now.norm)>>;
#pragma unroll
    for (int part = 0; part < kFinished / L; ++part) {
      const int c = static_cast<int>(now.c_begin) + group * (kGroup / L) + part, column = c * L + lane() % 4 * 2;
      if (row >= rows || c >= c_end) break;
      u32 norm[kEights], pairs[kEights][2];
      float2 y[2][kEights];
#pragma unroll
      for (int j = 0; j < kEights; ++j) norm[j] = *reinterpret_cast<const u32*>(now.norm + column + 8 * j);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kEights; ++j) {
          const int of_lane = min(row + lane() / 4 + 8 * half, rows - 1);
          y[half][j] =
              *reinterpret_cast<const float2*>(now.residual + (first_row + of_lane) * (C * L) + column + 8 * j);
        }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int of_lane = row + lane() / 4 + 8 * half;
        f32 squares = 0;
#pragma unroll
        for (int j = 0; j < kEights; ++j) {
          const float2 sum = sums.pair(part * kEights + j, half);
          const float2 of = {y[half][j].x + sum.x, y[half][j].y + sum.y},
                       by = {of.x * Args::factor, of.y * Args::factor};
          squares = fma(by.x, by.x, fma(by.y, by.y, squares));
          pairs[j][half] = Norm::of(by.x * Norm::low(norm[j]), by.y * Norm::high(norm[j]));
          if (of_lane < rows) put_two(now.y, (first_row + of_lane) * (C * L) + column + 8 * j, of.x, of.y, now.epoch);
        }
        squares += from_lane(squares, 1);
        squares += from_lane(squares, 2);
        if (of_lane < rows && lane() % 4 == 0) put(now.squares, (first_row + of_lane) * C + c, squares, now.epoch);
      }
      if constexpr (kIsBlocked<decltype(now.copy)>) {
        put_tile(now.copy, first_row + row, c * L, rows - row, pairs);
      } else {  // who reads it wants whole rows
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (const int of_lane = row + lane() / 4 + 8 * half; of_lane < rows)
#pragma unroll
            for (int j = 0; j < kEights; ++j)
              *reinterpret_cast<u32*>(now.copy + (first_row + of_lane) * (C * L) + column + 8 * j) = pairs[j][half];
      }
    }
  };
  if constexpr (Args::kStream.partners)
    wide_group_of_partners(
        args, args.x, [](const Args& now) { return static_cast<int>(now.c_begin) * L % kGroup != 0; }, finish);
  else
    wide_groups_own_rows<1>(
        args, wide_rows(args, args.x), static_cast<int>(args.c_begin) * L, static_cast<int>(args.c_end) * L, [] {},
        finish);
}

}  // namespace megalith::kernels
