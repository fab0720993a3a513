// y[t, n] = sum over k of x[t, k] * weight[n, k], for up to 64 rows of activations, with weights from the stream:
// batches and prompts. Activations are the first operand of the multiplication, in registers; weights are the second,
// read by the tensor cores out of the ring.
//
// The block's four warpgroups share the columns of every chunk. Of each, warp m has rows 16 m to 16 m + 15 of the
// activations. What they sum is added up in shared memory when a turn of groups of rows of weights is done; the order
// is that of the layout, so the same bits every run.
//
// Norms are in parts here (kernels/cuda/norm.cuh): activations come with the norm's weight, and sums are scaled.
//
// A turn of 64 rows of weights reads as many bytes of activations, one of 32 twice as many, and loads get them from the
// L2 more slowly than memory delivers the weights: on an H200 5 TB/s for all multiprocessors together, where bulk
// copies reach 10 and more. So each warpgroup has its blocks of activations copied into a little ring of its own, in
// the part of the area where it puts its sums when the turn is done: what is there for the next turn is asked for
// behind its sums. A warp has its share of a block in one piece (kernels/row_blocks.h) and loads it into registers,
// once for all groups of a turn, where descriptors of shared memory would have the tensor cores read it once for each.
#pragma once

#include "megalith/kernels/cuda/blocks.cuh"
#include "megalith/kernels/cuda/multiply.cuh"
#include "megalith/kernels/cuda/norm.cuh"

namespace megalith::kernels {

// ---- a multiplication by the tensor cores, of 64 rows of activations with kGroup rows of weights ------------------
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Begun here, done when wide_wait() says so (wgmma, PTX ISA section 9.7.15); registers are the tensor cores' until
// then.
inline void wide_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
inline void wide_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
/// Until the committed ones are done.
inline void wide_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory"); }
/// Where a step of kGroup rows of weights lies, as the tensor cores want to be told: eight rows of 16 bytes together,
/// from eight rows to the next 128 bytes, from eight columns to the next kGroup * 16.
template <int kGroup>
inline u64 weights_at(u32 address) {
  return u64(address >> 4) | u64(kGroup * 16 >> 4) << 16 | u64(128 >> 4) << 32;
}
inline void wide_multiply(f32 (&d)[8], uint4 x, u64 weights) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, "
      "1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(weights));
}
inline void wide_multiply(f32 (&d)[16], uint4 x, u64 weights) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, "
      "%14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(weights));
}
#else
inline void wide_begin() {}
inline void wide_commit() {}
inline void wide_wait() { warp_sync(); }
template <int kGroup>
inline u32 weights_at(u32 address) {
  return address;
}
inline u32 load_shared_pair(u32 at) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
  return value;
}
/// By each warp for itself.
template <int kSums>
inline void wide_multiply(f32 (&d)[kSums], uint4 x, u32 weights) {
  constexpr int kTiles = kSums / 4;
  const u32 mine = weights + lane() * 4;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const u32 at = mine + j * 128;
    f32(&of_tile)[4] = reinterpret_cast<f32(&)[4]>(d[4 * j]);
    multiply_accumulate(of_tile, x, load_shared_pair(at), load_shared_pair(at + kTiles * 128));
  }
}
#endif

// ---- activations ------------------------------------------------------------------------------------------------

/// Registers of the first operand for two steps of 16 columns: rows 16 m + lane / 4 and eight further. What would lie
/// outside the tensor is taken from inside it: such rows are nobody's, and weights past the last column are zeros. So a
/// load is nothing but a load, which the tensor cores insist on while they work on other registers.
struct Quads {
  uint4 steps[2];
};
/// Row by row, for a tensor that somebody else needs so.
template <i64 kRows, i64 kColumns>
struct RowByRow {
  const bf16* at;
};
inline u32 load_pair(const bf16* from) {
  u32 pair;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(pair) : "l"(from) : "memory");
  return pair;
}
template <i64 kRows, i64 kColumns>
inline Quads load_quads(RowByRow<kRows, kColumns> x, int m, int block) {
  const int row = m * row_blocks::kRows + lane() / 4, column = block * row_blocks::kColumns + lane() % 4 * 8;
  const auto pair = [&](int r, int c) {
    return load_pair(x.at + min(r, static_cast<int>(kRows) - 1) * kColumns + min(c, static_cast<int>(kColumns) - 2));
  };
  const auto step = [&](int c) {
    return uint4{pair(row, c), pair(row + 8, c), pair(row, c + 2), pair(row + 8, c + 2)};
  };
  return {step(column), step(column + 4)};
}
template <class Args, i64 kRows, i64 kColumns>
inline auto wide_rows(const Args&, Blocked<const bf16, kRows, kColumns> x) {
  return x;
}
template <class Args>
inline auto wide_rows(const Args&, const bf16* x) {
  return RowByRow<Args::T_largest, Args::K>{x};
}

/// The blocks of 32 columns that a warpgroup takes, in its order: of each chunk its part's.
template <int kGroup>
struct WideBlocks {
  static constexpr int kOfChunk = stream::wide_columns(kGroup) / row_blocks::kColumns;
  static constexpr int kOfPart = kOfChunk / stream::kWideParts;
  int part, count, last;

  WideBlocks(int part_, int columns)
      : part(part_),
        count((columns + stream::wide_columns(kGroup) - 1) / stream::wide_columns(kGroup) * kOfPart),
        last((columns + row_blocks::kColumns - 1) / row_blocks::kColumns - 1) {}
  int operator[](int n) const { return min(n / kOfPart * kOfChunk + part * kOfPart + n % kOfPart, last); }
};

/// How a warp comes by its share of the activations, block by block.
template <class X, int kGroup>
class WideOperand;

/// By loads from the L2, three blocks ahead.
template <i64 kRows, i64 kColumns, int kGroup>
class WideOperand<RowByRow<kRows, kColumns>, kGroup> {
 public:
  static constexpr int kHeld = 4;

  WideOperand(RowByRow<kRows, kColumns> x, WideBlocks<kGroup> blocks, int m, int rows)
      : x_(x), blocks_(blocks), m_(min(m, max(rows - 1, 0) / row_blocks::kRows)) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) quads_[i] = load_quads(x_, m_, blocks_[i]);
  }
  /// Of block n. `i` is n too, but for a multiple of kHeld, and known to the compiler.
  Quads take(int i) { return quads_[i % kHeld]; }
  /// While block n is multiplied, and no other.
  void meanwhile(int i, int n) {
    if (n > 0) quads_[(i + kHeld - 1) % kHeld] = load_quads(x_, m_, blocks_[n + kHeld - 1]);
  }
  /// Behind the last multiplication: until the part's sums may come into its share of the area.
  void end() {}

 private:
  RowByRow<kRows, kColumns> x_;
  WideBlocks<kGroup> blocks_;
  int m_;
  Quads quads_[kHeld];
};

/// Through stages in shared memory, into which one warp of the four has blocks copied: so more is under way than
/// registers could take, and it comes faster than what is loaded.
template <i64 kRows, i64 kColumns, int kGroup>
class WideOperand<Blocked<const bf16, kRows, kColumns>, kGroup> {
  static_assert(kStages >= 2 && kRows <= kStageTiles * row_blocks::kRows);

 public:
  static constexpr int kHeld = 1;

  WideOperand(Blocked<const bf16, kRows, kColumns> x, WideBlocks<kGroup> blocks, int m, int rows)
      : x_(x),
        blocks_(blocks),
        tiles_(max(rows - 1, 0) / row_blocks::kRows + 1),
        stages_(keep(shared_address(shared_area() + blocks.part * kPartBytes))),
        mine_(keep(stages_ + min(m, tiles_ - 1) * row_blocks::kTileBytes + lane() * 16)),
        full_(keep(shared_address(stage_barriers[blocks.part].full))),
        copies_(m == 0 && lane() < static_cast<int>(kCopyLanes)),
        place_(stage_next[blocks.part]) {
    if (!copies_) return;
    // Other blocks stored the activations, as an event or a barrier has told; and the area was anybody's until now.
    copies_come_after();
    StagePlace place = place_;
#pragma unroll 1
    for (int n = 0; n < min(static_cast<int>(kStages), blocks_.count); ++n, place = place + 1) copy(place, n);
  }
  Quads take(int) {
    while (!all_of_warp(barriers_passed({full_ + place_.slot * kBarrierBytes}, {place_.parity}))) {}
    const u32 at = mine_ + place_.slot * kStageBytes;
    return {load_shared(at), load_shared(at + row_blocks::kTileBytes / 2)};
  }
  void meanwhile(int, int n) {
    const u32 empty = full_ + (kStages + place_.slot) * kBarrierBytes;
    warp_sync();  // all lanes have their quads
    if (lane() == 0) barrier_arrive_at(empty);
    if (copies_ && n + static_cast<int>(kStages) < blocks_.count) {
      while (!barriers_passed({empty}, {place_.parity})) {}
      copy(place_, n + static_cast<int>(kStages));
    }
    place_ = place_ + 1;
  }
  void end() {
    part_sync(blocks_.part, kThreads / stream::kWideParts);
    if (copies_) stage_next[blocks_.part] = place_;
  }

 private:
  static constexpr u32 kBarrierBytes = sizeof(Barrier);

  /// Of a block, the rows that there are.
  void copy(StagePlace place, int n) const {
    constexpr int kBlockBytes = static_cast<int>(kRows) / row_blocks::kRows * row_blocks::kTileBytes;
    copy_common_begin(stages_ + place.slot * kStageBytes, reinterpret_cast<const u8*>(x_.at) + blocks_[n] * kBlockBytes,
                      static_cast<u32>(tiles_ * row_blocks::kTileBytes), full_ + place.slot * kBarrierBytes);
  }

  Blocked<const bf16, kRows, kColumns> x_;
  WideBlocks<kGroup> blocks_;
  int tiles_;
  u32 stages_, mine_, full_;  // in shared memory: the part's stages, the warp's share of the first, their barriers
  bool copies_;
  StagePlace place_;
};

// ---- sums -------------------------------------------------------------------------------------------------------

/// What the warpgroups sum, of a row of activations those of a turn.
template <int kTurnRows>
inline f32* wide_sums(int part, int row) {
  constexpr int kStride = static_cast<int>(stream::wide_stride(kTurnRows));
  static_assert(stream::wide_bytes(kTurnRows) <= stream::kWideParts * kPartBytes);
  return reinterpret_cast<f32*>(shared_area() + part * kPartBytes) + row * kStride;
}
/// Of row `row` of activations with places n and n + 1 of the turn's rows of weights. After a barrier of the block
/// behind wide_turn().
template <int kTurnRows>
inline float2 wide_sum(int row, int n) {
  float2 total = {0, 0};
#pragma unroll
  for (int part = 0; part < stream::kWideParts; ++part) {
    const float2 of_part = *reinterpret_cast<const float2*>(wide_sums<kTurnRows>(part, row) + n);
    total.x += of_part.x;
    total.y += of_part.y;
  }
  return total;
}

/// `kChunks` groups of kGroup rows of weights from the stream, chunk by chunk of `columns` columns, times `x`; sums go
/// to wide_sums<kTurnRows>(). Returns where the chunks after them begin. `once()`: while the first activations are on
/// their way.
template <int kTurnRows, int kGroup, int kChunks, class X, class Once>
inline RingPlace wide_turn(RingPlace ring, X x, int rows, int columns, Once once) {
  using Operand = WideOperand<X, kGroup>;
  constexpr int kBlocks = WideBlocks<kGroup>::kOfPart, kUnrolled = kBlocks > Operand::kHeld ? kBlocks : Operand::kHeld;
  constexpr u32 kStepBytes = kGroup * 32;
  // What follows from the part, left to itself, the compiler works out once for all turns, and has no registers for.
  const int m = warp() % 4, part = static_cast<int>(keep(static_cast<u32>(warp() / 4)));
  const WideBlocks<kGroup> blocks(part, columns);
  Operand operand(x, blocks, m, rows);
  const u32 weights = keep(shared_address(dynamic_shared) + part * (stream::kChunkBytes / stream::kWideParts));
  const u32 full = keep(shared_address(ring_full)), empty = keep(shared_address(ring_empty));
  f32 sum[kChunks][kGroup / 2] = {};
  once();
  u32 chunk_at[kChunks] = {};
#pragma unroll 1
  for (int first = 0; first < blocks.count; first += kUnrolled)
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      if (i % kBlocks == 0) {
        if (i > 0 && first + i >= blocks.count) break;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          chunk_at[c] = ring.slot;
          while (!all_of_warp(barriers_passed({full + ring.slot * 8}, {ring.parity}))) {}
          ring = ring + 1;
        }
      }
      const Quads quads = operand.take(i);
      wide_begin();
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int step = 0; step < 2; ++step)
          wide_multiply(
              sum[c], quads.steps[step],
              weights_at<kGroup>(weights + chunk_at[c] * stream::kChunkBytes + (i % kBlocks * 2 + step) * kStepBytes));
      wide_commit();
      operand.meanwhile(i, first + i);
      // The other warpgroups keep the tensor cores busy while this one waits.
      wide_wait();
      if (i % kBlocks == kBlocks - 1 && lane() == 0)
#pragma unroll
        for (int c = 0; c < kChunks; ++c) barrier_arrive_at(empty + chunk_at[c] * 8);
    }
  operand.end();
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
#pragma unroll
    for (int j = 0; j < kGroup / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(wide_sums<kTurnRows>(part, m * row_blocks::kRows + lane() / 4 + 8 * half) +
                                   c * kGroup + 8 * j +
                                   lane() % 4 * 2) = {sum[c][4 * j + 2 * half], sum[c][4 * j + 2 * half + 1]};
  return ring;
}

/// The same address from now on, as keep() of multiply.cuh has it.
inline const f32* keep(const f32* address) {
  asm volatile("" : "+l"(address));
  return address;
}

/// The scale of each row's norm, from its squares: eight threads a row add up every eighth sum each, then each other's.
/// By the block; there after its next barrier.
__shared__ f32 wide_scales[stream::kMostWideRows];
template <class Args>
inline void find_scales(const Args& args) {
  constexpr int kLanes = kThreads / static_cast<int>(stream::kMostWideRows), C = static_cast<int>(Args::C),
                kEach = (C + kLanes - 1) / kLanes;
  const u32 me = keep(threadIdx.x);
  const int row = static_cast<int>(me / kLanes), first = static_cast<int>(me % kLanes);
  // One address for all, worked out here: the compiler would keep one each through the turns of a task.
  const f32* const from = keep(args.squares + min(row, max(static_cast<int>(args.T) - 1, 0)) * C + first);
  f32 squares[kEach], total = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) squares[i] = first + i * kLanes < C ? from[i * kLanes] : 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) total += squares[i];
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) total += from_lane(total, apart);
  if (first == 0)
    wide_scales[row] = fast_rsqrt(fast_divide(total, static_cast<f32>(static_cast<int>(Args::K))) + Args::eps);
}

/// All turns of a task: `put(row, place, column)` for each pair of results, places as wide_sum() counts them.
/// `meanwhile()`: once, while the first activations are on their way.
template <int kGroup, int kTurn, int kMatrices, class X, class Args, class Meanwhile, class Put>
inline void wide_run(const Args& args, X x, Meanwhile meanwhile, Put put) {
  constexpr int kTurnRows = kGroup * kTurn * kMatrices;
  const int rows = static_cast<int>(args.T), n_begin = static_cast<int>(args.n_begin),
            n_end = static_cast<int>(args.n_end);
  const int num_groups = (n_end - n_begin + kGroup - 1) / kGroup;
  constexpr int K = static_cast<int>(Args::K);
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
#pragma unroll 1
  for (int group = 0; group < num_groups; group += kTurn) {
    const int count = min(kTurn, num_groups - group);
    const auto once = [&] {
      if (group == 0) meanwhile();
    };
    if (group > 0) block_sync();  // the sums were read
    if (count == kTurn)
      ring = wide_turn<kTurnRows, kGroup, kTurn * kMatrices>(ring, x, rows, K, once);
    else if (kTurn > 2 && count == 2)
      ring = wide_turn<kTurnRows, kGroup, (kTurn > 2 ? 2 : 1) * kMatrices>(ring, x, rows, K, once);
    else
      ring = wide_turn<kTurnRows, kGroup, kMatrices>(ring, x, rows, K, once);
    block_sync();
    const int pairs = count * (kGroup / 2);
    for (int i = thread(); i < rows * pairs; i += kThreads) {
      const int row = i / pairs, n = (i - row * pairs) * 2, column = n_begin + group * kGroup + n;
      if (column < n_end) put(row, n, column);
    }
  }
}

/// What a body without a norm does meanwhile.
struct Nothing {
  void operator()() const {}
};

/// y = x weight^T.
template <int kGroup, int kTurn, class Args>
inline void wide_product(const Args& args) {
  wide_run<kGroup, kTurn, 1>(args, wide_rows(args, args.x), Nothing{}, [&](int row, int n, int column) {
    const float2 y = wide_sum<kGroup * kTurn>(row, n);
    put_pair(args.y, row * static_cast<int>(Args::N) + column, y.x, y.y, args.epoch);
  });
}
template <class Args>
inline void wide_linear(const Args& args) {
  wide_product<16, 3>(args);
}
/// The same of so many rows of weights that each worker has turns of 64.
template <class Args>
inline void wide_linear_long(const Args& args) {
  wide_product<32, 2>(args);
}
/// y = residual + x weight^T, with a copy that has the next norm's weight, and squares.
template <class Args>
inline void wide_linear_residual_squares(const Args& args) {
  constexpr int kGroup = static_cast<int>(Args::L), kPairs = kGroup / 2, K = static_cast<int>(Args::K);
  constexpr int kRowsAtOnce = kThreads / kPairs,
                kPasses = (static_cast<int>(Args::T_largest) + kRowsAtOnce - 1) / kRowsAtOnce;
  const auto x = wide_rows(args, args.x);
  const int rows = static_cast<int>(args.T), begin = static_cast<int>(args.c_begin), end = static_cast<int>(args.c_end);
  const u32 me = keep(threadIdx.x);
  const int first_row = static_cast<int>(me / kPairs), n = static_cast<int>(me % kPairs) * 2;
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    if (c > begin) block_sync();  // the sums were read
    const int column = c * kGroup + n;
    // What is added to the sums is on its way while they are formed.
    const u32 norm = *reinterpret_cast<const u32*>(args.norm + column);
    float2 before[kPasses] = {};
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = first_row + i * kRowsAtOnce;
      if (row < rows) before[i] = *reinterpret_cast<const float2*>(args.residual + row * (Args::C * Args::L) + column);
    }
    ring = wide_turn<kGroup, kGroup, 1>(ring, x, rows, K, Nothing{});
    block_sync();
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i * kRowsAtOnce >= rows) break;
      const int row = first_row + i * kRowsAtOnce;
      const float2 y = wide_sum<kGroup>(row, n);
      put_with_squares(args, row < rows, row, column, {before[i].x + y.x, before[i].y + y.y}, norm);
    }
  }
}

/// y = x weight^T, scaled row by row.
template <class Args>
inline void wide_scaled_linear(const Args& args) {
  constexpr int kGroup = 16, kTurn = 3;
  wide_run<kGroup, kTurn, 1>(
      args, wide_rows(args, args.x), [&] { find_scales(args); },
      [&](int row, int n, int column) {
        const float2 y = wide_sum<kGroup * kTurn>(row, n);
        const f32 scale = wide_scales[row];
        put_pair(args.y, row * static_cast<int>(Args::N) + column, y.x * scale, y.y * scale, args.epoch);
      });
}
/// y = silu(x gate^T) * (x up^T), both scaled.
template <class Args>
inline void wide_scaled_gate_up(const Args& args) {
  constexpr int kGroup = 32;
  wide_run<kGroup, 1, 2>(
      args, wide_rows(args, args.x), [&] { find_scales(args); },
      [&](int row, int n, int column) {
        const float2 gate = wide_sum<2 * kGroup>(row, n), up = wide_sum<2 * kGroup>(row, n + kGroup);
        const f32 scale = wide_scales[row];
        put_pair(args.y, row * static_cast<int>(Args::N) + column, silu(gate.x * scale) * (up.x * scale),
                 silu(gate.y * scale) * (up.y * scale), args.epoch);
      });
}

}  // namespace megalith::kernels
