// The projections of a decoder on a GPU, with weights from the stream: mainloop/gemv_mainloop.cuh with what comes after
// the sum. Rows of weights come in groups; a task's first row is the first of a group.
#pragma once

#include "megalith/kernels/cuda/mainloop/gemv_mainloop.cuh"
#include "megalith/kernels/stream_layout.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// How a multiplication has its activations: a single row staged by RowLook, more of them by multiply_stage(), or in
/// registers, all columns or a part of them at a time.
enum class Form { one_row, staged, held, parts };

/// How a body of at most `kRows` rows of activations takes its weights, as the schedule says.
template <class Args, i64 kRows>
struct LinearSizes {
  static constexpr stream::Order kOrder = Args::kStream;
  static constexpr int kSlices = kOrder.slices, kGroup = kOrder.group, kChunks = static_cast<int>(kOrder.chunks);
  static_assert(Args::K % 8 == 0 && kRows <= stream::most_rows(kSlices) && kWarps == stream::kConsumerWarps &&
                kGroup == stream::group_rows(kSlices) && kChunks == stream::chunks_per_group(Args::K, kSlices));
  static constexpr bool kIsWhole = kOrder.part == kOrder.chunks,
                        kIsOneRow = kRows == 1 && kIsWhole && Args::K <= kMaxRowLooks * row_look_columns(kSlices);
  static constexpr Form kForm = Args::kHoldsActivations ? kIsWhole ? Form::held : Form::parts
                                : kIsOneRow             ? Form::one_row
                                                        : Form::staged;
};

/// Groups of rows of weights whose sums there is room for at a time: of a power of two of rows, so that nothing is
/// divided.
template <int kSlices, bool kOneRow>
inline int groups_at_a_time(int rows) {
  constexpr int kMax = stream::kSumsPerWarp / stream::group_rows(kSlices);
  return kOneRow || rows <= 1 ? kMax : kMax >> (32 - __clz(rows - 1));
}

/// In the place of what a form does without.
struct Nobody {
  template <class... Any>
  explicit Nobody(const Any&...) {}
};
template <bool kIs, class This, class That>
struct Chosen {
  using Type = This;
};
template <class This, class That>
struct Chosen<false, This, That> {
  using Type = That;
};
template <bool kIs, class This, class That>
using Choose = typename Chosen<kIs, This, That>::Type;

/// What a projection has to do with norms.
enum class NormKind { whole, parts, next };
/// The usual one before it: activations are multiplied with its weight and their squares summed, sums are scaled.
template <Half T>
struct WholeNorm {
  static constexpr NormKind kKind = NormKind::whole;
  const T* weight;           // [columns], or nullptr: none
  f32 eps, share_of_column;  // of a mean of all columns

  bool is_there() const { return weight != nullptr; }
  f32 scale(int t) const { return multiply_scale(t, share_of_column, eps) * (1 / Pair<T>::kNormed); }
};
/// A norm in parts (kernels/cuda/rowwise/rmsnorm.cuh): who wrote the activations did all that but for the scale.
template <int kSlices, Half T>
struct PartsNorm {
  static constexpr NormKind kKind = NormKind::parts;
  static constexpr const T* weight = nullptr;
  const f32* squares;  // [rows, parts]
  int parts;
  f32 eps, share_of_column;

  static constexpr bool is_there() { return true; }
  f32 scale(int t) const { return multiply_scale_of_parts<kSlices>(t, share_of_column, eps); }
};
/// None before it, but the next one in parts: what is written gets its weight, and squares beside it. `kFactor`: the bits
/// of what both are multiplied with.
template <Half T, u32 kFactor>
struct NextNorm {
  using Two = Pair<T>;
  static constexpr NormKind kKind = NormKind::next;
  static constexpr const T* weight = nullptr;
  const T* next_weight;  // [num_columns]
  f32* squares;          // of each group of columns of each row

  static constexpr bool is_there() { return false; }
  static constexpr f32 scale(int) { return 1; }
  static constexpr f32 factor() { return __builtin_bit_cast(f32, kFactor); }
};

/// What a projection has to do. `kColumns`: of activations in registers, or of a single row; else 0.
template <int kSlices, Form kForm, int kColumns, class Weights, class X, class Y, class R, class Norm, class S = R>
struct LinearTask {
  static constexpr int kStreams = IsGated<Y>::kIs ? 2 : 1;  // weights that take turns: gate and up, or one

  X x;  // [rows, columns]
  Norm norm;
  int rows, columns, chunks;       // of a row of weights
  int chunks_per_part, at_a_time;  // of whose columns activations are there; then groups at a time
  RingPlace ring;                  // where its weights begin
  int n_begin, n_end, num_columns;
  Y y;         // [rows, num_columns]
  R residual;  // with residual: sum = residual + x weight^T, and y is a copy of it
  S sum;
  bool has_residual;
  Epoch epoch;
};

/// Whether a single row is multiplied by who has its first weights before the row is there.
template <class Weights, bool kOneRow>
inline constexpr bool kLooksAhead = kOneRow&& kTilesAhead > 0 && !Weights::kAreInt8 && kRingSlots >= 4;
/// Who multiplies what was staged; with `kOneRow`, what RowLook stages.
template <int kSlices, class Weights, int kChunks, bool kOneRow, u32 kMaxTilesAhead = kTilesAhead>
using MultiplierOf = Choose<kLooksAhead<Weights, kOneRow>, RowMultiplier<kSlices, Weights, kChunks, kMaxTilesAhead>,
                            GroupMultiplier<kSlices, Weights>>;
/// Waits for a row; then the warp may read it, and after a barrier of the block all may read its squares.
template <int kChunks, class Row, class T>
inline void stage_row(Row& row, const T* norm, Epoch epoch) {
  row.stage(norm, kChunks, epoch);
  row.finish(norm, epoch);
}
/// A row is waited for, unless it is staged already, and multiplied with `count` groups of kChunks chunks.
template <int kChunks, bool kAhead, class Groups, class Row, class T>
inline void multiply_row(Groups& groups, Row& row, bool is_staged, int count, const T* norm, Epoch epoch) {
  if constexpr (kAhead) {
    groups.look_ahead(count);
    if (!is_staged) {
      if constexpr (Groups::kHolds)
        groups.held = row.hold(norm, epoch);
      else
        row.stage(norm, kChunks, epoch);
    }
    groups.run(count, [&] {
      if (!is_staged) row.finish(norm, epoch);
    });
  } else {
    if (!is_staged) stage_row<kChunks>(row, norm, epoch);
    groups.run(count, kChunks, kChunks, false);
  }
}

/// y = x weight^T, with the norm before and what comes after as the task has it: the residual added, or a gate of two products.
/// `look_up` gives the LinearTask: before, and with one row for what comes after, too, since registers have weights meanwhile.
template <int kSlices, Form kForm, int kColumns, class Weights, class X, class Y, class R, class Norm, class S,
          class LookUp>
inline void linear_run(const LinearTask<kSlices, kForm, kColumns, Weights, X, Y, R, Norm, S>& task, LookUp look_up) {
  constexpr int kGroup = stream::group_rows(kSlices), kPart = static_cast<int>(stream::kPartChunks);
  constexpr bool kOneRow = kForm == Form::one_row;
  constexpr int kStreams = LinearTask<kSlices, kForm, kColumns, Weights, X, Y, R, Norm, S>::kStreams;
  const int rows = kOneRow ? 1 : task.rows;  // as rows_of(), but known to the compiler
  Choose<kOneRow, RowLook<kSlices, X, kColumns>, Nobody> row(task.x, task.norm.weight, task.epoch);
  const int num_groups = (task.n_end - task.n_begin + kGroup - 1) / kGroup;
  const bool is_split = !kOneRow && task.chunks_per_part < task.chunks;
  const int at_a_time = is_split ? task.at_a_time : groups_at_a_time<kSlices, kOneRow>(rows) >> (kStreams - 1);
  RingPlace ring = task.ring;
  constexpr int kChunks = kOneRow ? static_cast<int>(stream::chunks_per_group(kColumns, kSlices)) : 1;
  // Where activations are held nobody asks it; without it the compiler spills 104 bytes there instead of 28.
  [[maybe_unused]] MultiplierOf<kSlices, Weights, kChunks, kOneRow> groups(ring, rows);
  using Held = HeldRows<kSlices, kColumns == 0 ? stream::kRunColumns : kColumns, X>;
  [[maybe_unused]] uint4 held[kForm == Form::held ? Held::kChunks : 1];
  if constexpr (kForm == Form::held) {
    const Held x(task.x, rows);
    if (Norm::kKind == NormKind::whole && task.norm.is_there())
      x.hold_normed(held, task.norm.weight);
    else
      x.hold(held, 0);
    if constexpr (Norm::kKind == NormKind::parts) multiply_add_parts<kSlices>(task.norm.squares, task.norm.parts, rows);
    inputs_are_ready(task.epoch);
  }
#pragma unroll 1
  for (int done = 0; done < num_groups; done += at_a_time) {
    if (done > 0) block_sync();  // the sums were read
    const int count = min(at_a_time, num_groups - done);
    // A thread's pair of sums; there are never more of them than threads. Groups of gate and of up take turns.
    const int me = thread(), pairs = count * kStreams * (kGroup / 2), t = kOneRow ? 0 : me / pairs,
              place = (me - t * pairs) * 2, group = place / kGroup,
              column = task.n_begin + (done + (group >> (kStreams - 1))) * kGroup + place % kGroup;
    const bool has_pair = me < pairs * rows && column < task.n_end;
    const int at = t * task.num_columns + column;
    decltype(look_two(task.residual, at)) residual = {};
    if (has_pair && task.has_residual) residual = look_two(task.residual, at);
    [[maybe_unused]] u32 next_weights = 0;
    if constexpr (Norm::kKind == NormKind::next)
      if (has_pair) next_weights = *reinterpret_cast<const u32*>(task.norm.next_weight + column);
    if constexpr (kForm == Form::held) {
      ring = multiply_held<kSlices, Weights>(ring, held, count * kStreams, Held::kChunks, rows, false);
    } else if constexpr (kForm == Form::parts) {
      const Held x(task.x, rows);
      // Parts take turns: while one is multiplied, the others are on their way.
      constexpr int kParts = kHoldsAhead ? 3 : 1;
      uint4 parts[kParts][kPart];
#pragma unroll
      for (int i = 0; i < kParts - 1; ++i) x.hold(parts[i], i * kPart);
      if (done == 0) inputs_are_ready(task.epoch);
#pragma unroll 1
      for (int first = 0; first < Held::kChunks; first += kParts * kPart)
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const int chunk = first + i * kPart, later = chunk + (kParts - 1) * kPart;
          if (chunk >= Held::kChunks) break;
          if (later < Held::kChunks) x.hold(parts[(i + kParts - 1) % kParts], later);
          const int chunks = Held::kChunks % kPart == 0 ? kPart : min(kPart, Held::kChunks - chunk);
          ring = multiply_held<kSlices, Weights>(ring, parts[i], count, chunks, rows, chunk > 0);
        }
    } else if constexpr (kOneRow) {
      multiply_row<kChunks, kLooksAhead<Weights, kOneRow>>(groups, row, done > 0, count * kStreams, task.norm.weight,
                                                           task.epoch);
    } else {
#pragma unroll 1
      for (int part = 0; part < task.chunks; part += task.chunks_per_part) {
        const int chunks = min(task.chunks_per_part, task.chunks - part);
        if (is_split || done == 0)
          multiply_stage<kSlices>(task.x, task.norm.weight, rows, task.columns, part, chunks, task.chunks_per_part,
                                  task.epoch);
        groups.run(count * kStreams, chunks, task.chunks_per_part, part > 0);
      }
    }
    block_sync();
    if (warp() * kWarpLanes >= pairs * rows) continue;
    const auto& end = kLooksAhead<Weights, kOneRow> ? look_up() : task;
    const f32* const from = multiply_sums() + (has_pair ? t * pairs * 2 + place : 0);
    float2 y;
    if (!end.norm.is_there()) {
      y = multiply_sum<float2>(from);
    } else {
      const f32 scale = end.norm.scale(t < rows ? t : 0);
      y = multiply_sum<float2>(from);
      y = {y.x * scale, y.y * scale};
    }
    if constexpr (kStreams == 2) {
      const float2 up = {from_lane(y.x, kGroup / 2), from_lane(y.y, kGroup / 2)};
      if (group % 2 == 0 && has_pair) put_gated_pair(end.y, t, column, at, y, up, end.epoch);
    } else {
      if (has_pair && end.has_residual) {
        const float2 before = get_two(residual, end.residual, at, end.epoch);
        y = {before.x + y.x, before.y + y.y};
        put_two(end.sum, at, y.x, y.y, end.epoch);
      }
      if constexpr (Norm::kKind == NormKind::next) {
        // The lanes of a group of columns, in order.
        y = {y.x * Norm::factor(), y.y * Norm::factor()};
        f32 squares = fma(y.x, y.x, y.y * y.y);
#pragma unroll
        for (int apart = kGroup / 4; apart > 0; apart /= 2) squares += from_lane(squares, apart);
        if (has_pair && place % kGroup == 0) end.norm.squares[at / kGroup] = squares;
        y = {y.x * Norm::Two::low(next_weights), y.y * Norm::Two::high(next_weights)};
      }
      if (has_pair) put_pair_of(end.y, t, column, at, y.x, y.y, end.epoch);
    }
  }
}

/// A task without a residual has nothing to add and nowhere to put a sum. `W`: of the operand that is streamed.
template <class Args, class W, class X, class Y, class R, class Norm, class S>
inline auto linear_task(const Args& args, W, X x, Norm norm, i64 n_begin, i64 n_end, i64 num_columns, Y y, R residual,
                        S sum, bool has_residual) {
  using Sizes = LinearSizes<Args, Args::T_largest>;
  constexpr Form kForm = Sizes::kForm;
  constexpr int kColumns = kForm == Form::staged ? 0 : Args::K;
  using Written = decltype(as_written(y));
  return LinearTask<Sizes::kSlices, kForm, kColumns, WeightsOf<W>, X, Written, R, Norm, S>{
      x,
      norm,
      static_cast<int>(rows_of(args)),
      static_cast<int>(Args::K),
      Sizes::kChunks,
      static_cast<int>(Args::kStream.part),
      static_cast<int>(Args::kStream.turn),  // asked for where columns come in parts
      args.ring,
      static_cast<int>(n_begin),
      static_cast<int>(n_end),
      static_cast<int>(num_columns),
      as_written(y),
      residual,
      sum,
      has_residual,
      args.epoch};
}

/// `make(args)`: the LinearTask of operands as they were looked up.
template <class Args, class Make>
inline void linear_run_of(const Args& args, Make make) {
  linear_run(make(args), [task = args.task, make] { return make(Args::of(*task)); });
}

/// Brings the norm's weight into the L2 before a task's turn: behind the stream's copies memory takes its time.
template <class Args>
inline void prefetch_norm(const Args& args) {
  if (lane() < static_cast<int>(kCopyLanes)) prefetch(args.norm, static_cast<u32>(Args::K) * sizeof(*args.norm));
}
template <class Args, Half T>
inline WholeNorm<T> whole_norm(const T* weight, f32 eps) {
  return {weight, eps, 1.0f / static_cast<f32>(Args::K)};
}

/// y = rmsnorm(x) weight^T.
template <class Args>
inline void gemv_rmsnorm_linear(const Args& args) {
  const Words<f32> none = {nullptr};
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.weight, a.x, whole_norm<Args>(a.norm, Args::eps), a.n_begin, a.n_end, Args::N, a.y, none,
                       none, false);
  });
}
/// y = x weight^T, with what an epilogue makes of it.
template <class Args>
inline void gemv_linear(const Args& args) {
  const Words<f32> none = {nullptr};
  const HalfOf<decltype(args.x)>* const no_norm = nullptr;
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.weight, a.x, whole_norm<Args>(no_norm, 0.0f), a.n_begin, a.n_end, Args::N, a.y, none, none,
                       false);
  });
}
/// y = residual + x weight^T, and a copy of y for whoever multiplies it next.
template <class Args>
inline void gemv_linear_residual_copy(const Args& args) {
  const HalfOf<decltype(args.x)>* const no_norm = nullptr;
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.weight, a.x, whole_norm<Args>(no_norm, 0.0f), a.n_begin, a.n_end, Args::N, a.copy,
                       as_output(a.residual), a.y, true);
  });
}
/// What an epilogue makes of x gate^T and x up^T.
template <class Args>
inline void gemv_gate_up(const Args& args) {
  const Words<f32> none = {nullptr};
  const HalfOf<decltype(args.x)>* const no_norm = nullptr;
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.gate, a.x, whole_norm<Args>(no_norm, 0.0f), a.n_begin, a.n_end, Args::N, a.y, none, none,
                       false);
  });
}
/// The same of rmsnorm(x).
template <class Args>
inline void gemv_rmsnorm_gate_up(const Args& args) {
  const Words<f32> none = {nullptr};
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.gate, a.x, whole_norm<Args>(a.norm, Args::eps), a.n_begin, a.n_end, Args::N, a.y, none,
                       none, false);
  });
}

// The same with norms in parts.
template <class Args>
inline auto parts_norm(const Args& args) {
  constexpr int kSlices = LinearSizes<Args, Args::T_largest>::kSlices;
  return PartsNorm<kSlices, HalfOf<decltype(args.x)>>{args.squares, static_cast<int>(Args::C), Args::eps,
                                                      1.0f / static_cast<f32>(Args::K)};
}
template <class Args>
inline void gemv_deferred_rmsnorm_linear(const Args& args) {
  const Words<f32> none = {nullptr};
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.weight, a.x, parts_norm(a), a.n_begin, a.n_end, Args::N, a.y, none, none, false);
  });
}
template <class Args>
inline void gemv_deferred_rmsnorm_gate_up(const Args& args) {
  const Words<f32> none = {nullptr};
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.gate, a.x, parts_norm(a), a.n_begin, a.n_end, Args::N, a.y, none, none, false);
  });
}
template <class Args>
inline void gemv_linear_residual_rmsnorm_parts(const Args& args) {
  using Next = NextNorm<HalfOf<decltype(args.norm)>, __builtin_bit_cast(u32, Args::factor)>;
  linear_run_of(args, [=](const Args& a) {
    return linear_task(a, a.weight, a.x, Next{a.norm, a.squares}, a.c_begin * Args::L, a.c_end * Args::L,
                       Args::C * Args::L, a.copy, as_output(a.residual), a.y, true);
  });
}

/// logits = rmsnorm(x) weight^T, and the largest of each chunk of L columns with the lowest column that has it. One
/// warp looks after one row of activations.
template <class Args>
inline void gemv_rmsnorm_linear_argmax(const Args& args) {
  using Sizes = LinearSizes<Args, Args::R_largest>;
  static_assert(Args::L == 4 * kWarpLanes && Sizes::kIsWhole);
  using Weights = WeightsOf<decltype(args.weight)>;
  constexpr int L = static_cast<int>(Args::L), V = static_cast<int>(Args::V), C = static_cast<int>(Args::C);
  constexpr int kGroup = Sizes::kGroup;
  const int rows = static_cast<int>(args.R), t = warp();
  // What is needed once for each chunk is looked up there: kept, it would spill.
  const auto of_task = [task = args.task] { return Args::of(*task); };
  constexpr int K = static_cast<int>(Args::K);
  constexpr Form kForm = Sizes::kForm;
  constexpr bool kOneRow = kForm == Form::one_row;
  [[maybe_unused]] uint4 held[kForm == Form::held ? Sizes::kChunks : 1];
  RingPlace ring = args.ring;
  Choose<kOneRow, RowLook<Sizes::kSlices, decltype(args.x), K>, Nobody> row(args.x, args.norm, args.epoch);
  constexpr bool kAhead = kLooksAhead<Weights, kOneRow>;
  Choose<kForm == Form::held, Nobody, MultiplierOf<Sizes::kSlices, Weights, Sizes::kChunks, kOneRow, kTilesAhead / 2>>
      groups(ring, rows);
  if constexpr (kForm == Form::held) {
    HeldRows<Sizes::kSlices, K, decltype(args.x)>(args.x, rows).hold_normed(held, args.norm);
    inputs_are_ready(args.epoch);
  } else if constexpr (kOneRow && !kAhead) {
    if (rows > 0) stage_row<Sizes::kChunks>(row, args.norm, args.epoch);  // else nobody writes it
  } else if (!kAhead && rows > 0) {
    multiply_stage<Sizes::kSlices>(args.x, args.norm, rows, K, 0, Sizes::kChunks, Sizes::kChunks, args.epoch);
  }
  const int at_a_time = groups_at_a_time<Sizes::kSlices, kOneRow>(rows);
  [[maybe_unused]] bool is_staged = rows == 0;
  for (int c = static_cast<int>(args.c_begin); c < static_cast<int>(of_task().c_end); ++c) {
    const int columns = min(L, V - c * L), num_groups = (columns + kGroup - 1) / kGroup;
    f32 best = -kInfinity;
    int column_of_best = 0x7fffffff;
    for (int done = 0; done < num_groups; done += at_a_time) {
      const int count = min(at_a_time, num_groups - done);
      if constexpr (kForm == Form::held)
        ring = multiply_held<Sizes::kSlices, Weights>(ring, held, count, Sizes::kChunks, rows, false);
      else if constexpr (kAhead)
        multiply_row<Sizes::kChunks, true>(groups, row, is_staged, count, args.norm, args.epoch);
      else
        groups.run(count, Sizes::kChunks, Sizes::kChunks, false);
      is_staged = true;
      block_sync();
      const int n = lane() * 4, column = c * L + done * kGroup + n;
      if (t < rows && n < count * kGroup) {
        const float4 sums = multiply_sum<float4>(multiply_sums() + t * count * kGroup + n);
        const f32 scale = multiply_scale(t, 1.0f / K, Args::eps) * (1 / Pair<typename Weights::Element>::kNormed),
                  values[4] = {sums.x * scale, sums.y * scale, sums.z * scale, sums.w * scale};
        f32* const logits = of_task().logits;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < V) {
            logits[i64(t) * V + column + i] = values[i];
            if (values[i] > best || column_of_best == 0x7fffffff) best = values[i], column_of_best = column + i;
          }
      }
      block_sync();
    }
    if (t < rows) {
#pragma unroll
      for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) {
        const f32 other = from_lane(best, apart);
        const int column = from_lane(column_of_best, apart);
        if (other > best || (other == best && column < column_of_best)) best = other, column_of_best = column;
      }
      if (lane() == 0) {
        const Args now = of_task();
        put(now.value, t * C + c, best, now.epoch);
        // A chunk past the last column has none; the loop kernel says the first one of the chunk then.
        put(now.index, t * C + c, column_of_best == 0x7fffffff ? c * L : column_of_best, now.epoch);
      }
    }
  }
}

}  // namespace megalith::kernels
