// y[t, n] = sum over k of x[t, k] * weight[n, k], for up to 128 rows of activations, with weights from the stream:
// batches and prompts. Activations are the first operand of the multiplication, in registers, straight from the L2: a
// lane's share of 16 rows lies together (kernels/row_blocks.h). Weights are the second, read by the tensor cores out of
// the ring: so neither passes through shared memory more often than once, which is what bounds other ways to do this.
//
// Of up to 64 rows the block's four warpgroups share the columns of every chunk; of more, two warpgroups share them for
// each half of the rows. Of a warpgroup each warp has 16 rows. What they sum is added up in shared memory when a turn
// of groups of rows of weights is done; the order is that of the layout, so the same bits every run.
//
// Norms are in parts here (kernels/cuda/norm.cuh): activations come with the norm's weight, and sums are scaled.
//
// In a kernel of its own on an H200, weights of 4096 columns stream at 3.8 TB/s with turns of 48 rows and at 4.1 with
// 64, of 4.6: the activations that each block reads for every turn are as many bytes as 64 rows of weights.
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
/// Until at most `kLeft` of the committed ones are under way.
template <int kLeft>
inline void wide_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kLeft) : "memory");
}
/// Where a step of rows of weights lies, as the tensor cores want to be told: eight rows of 16 bytes together, from
/// eight columns to the next 128 bytes, and how far it is from eight rows to the next.
template <int kGroup>
inline u64 weights_at(u32 address) {
  return u64(address >> 4) | u64(128 >> 4) << 16 | u64(stream::wide_block_bytes(kGroup) >> 4) << 32;
}
inline void wide_multiply(f32 (&d)[8], uint4 x, u64 weights) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, "
      "%10, %11}, %12, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(weights));
}
inline void wide_multiply(f32 (&d)[16], uint4 x, u64 weights) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(weights));
}
#else
inline void wide_begin() {}
inline void wide_commit() {}
template <int kLeft>
inline void wide_wait() {
  warp_sync();
}
struct WeightsAt {
  u32 address, block_bytes;
};
template <int kGroup>
inline WeightsAt weights_at(u32 address) {
  return {address, stream::wide_block_bytes(kGroup)};
}
inline u32 load_shared_pair(u32 at) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(at) : "memory");
  return value;
}
/// By each warp for itself.
template <int kSums>
inline void wide_multiply(f32 (&d)[kSums], uint4 x, WeightsAt weights) {
  const u32 mine = weights.address + lane() * 4;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const u32 at = mine + j * weights.block_bytes;
    f32(&of_tile)[4] = reinterpret_cast<f32(&)[4]>(d[4 * j]);
    multiply_accumulate(of_tile, x, load_shared_pair(at), load_shared_pair(at + 128));
  }
}
#endif

/// Registers of the first operand for two steps of 16 columns: rows 16 m + lane / 4 and eight further. What would lie
/// outside the tensor is taken from inside it: such rows are nobody's, and weights past the last column are zeros. So a
/// load is nothing but a load, which the tensor cores insist on while they work on other registers.
struct Quads {
  uint4 steps[2];
};
template <i64 kRows, i64 kColumns>
inline Quads load_quads(Blocked<const bf16, kRows, kColumns> x, int m, int block) {
  constexpr int kTiles = static_cast<int>(kRows) / row_blocks::kRows;
  const bf16* const from = x.at + (block * kTiles + m) * 512 + lane() * 8;
  return {load_quad(from), load_quad(from + 256)};
}
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

/// What the warpgroups sum, of a row of activations those of a turn.
template <int kTurnRows, int kParts>
inline f32* wide_sums(int part, int row) {
  constexpr int kStride = static_cast<int>(stream::wide_stride(kTurnRows)), kRows = 4 / kParts * stream::kWideRows;
  return reinterpret_cast<f32*>(shared_area()) + (part * kRows + row) * kStride;
}
/// Of row `row` of activations with places n and n + 1 of the turn's rows of weights. After a barrier of the block
/// behind wide_turn().
template <int kTurnRows, class Args>
inline float2 wide_sum(const Args&, int row, int n) {
  constexpr int kParts = stream::wide_parts(Args::T_largest);
  float2 total = {0, 0};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float2 of_part = *reinterpret_cast<const float2*>(wide_sums<kTurnRows, kParts>(part, row) + n);
    total.x += of_part.x;
    total.y += of_part.y;
  }
  return total;
}

/// A warp's activations, block by block of columns: those of its part of each chunk of weights, the next few of them
/// under way or in use. Behind a turn's last block come the first ones again, for the next turn.
template <int kGroup, int kParts, class X>
class BlocksAhead {
  static constexpr int kChunkBlocks = stream::wide_columns(kGroup) / row_blocks::kColumns;

 public:
  static constexpr int kBlocks = kChunkBlocks / kParts;  // of a chunk
  static constexpr int kAhead = 4;                       // six were no faster, where there are registers for them

  BlocksAhead(X x, int rows, int columns)
      : x_(x),
        m_(min(row_tile(), max(rows - 1, 0) / row_blocks::kRows)),
        last_((columns + row_blocks::kColumns - 1) / row_blocks::kColumns - 1) {
    restart();
  }

  /// Of the activations which 16 rows the warp has, and of the columns which part.
  static int row_tile() { return warp() / 4 / kParts * 4 + warp() % 4; }
  static int part() { return warp() / 4 % kParts; }

  /// Of all columns.
  int count() const { return (last_ / kChunkBlocks + 1) * kBlocks; }
  /// Block number i of those that are there.
  const Quads& operator[](int i) const { return quads_[i % kAhead]; }
  /// In the place of block number i of its turn, kAhead further, which is of another turn if there are `more`.
  void fetch(int i, bool more) {
    quads_[i % kAhead] = load_quads(x_, m_, min(next_, last_));
    next_ += i % kBlocks == kBlocks - 1 ? kChunkBlocks - kBlocks + 1 : 1;
    if (more && next_ >= (last_ / kChunkBlocks + 1) * kChunkBlocks) next_ = part() * kBlocks;
  }
  /// Where a turn is to begin: for turns that do not end with the last of kAhead blocks.
  void turn_begins(bool is_first) {
    if (!is_first && count() % kAhead != 0) restart();
  }

 private:
  void restart() {
    next_ = part() * kBlocks;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch(i, true);
  }

  const X x_;
  const int m_, last_;
  int next_;  // block of columns
  Quads quads_[kAhead];
};

/// `kChunks` groups of kGroup rows of weights from the stream, chunk by chunk of columns, times the activations `x`;
/// sums go to wide_sums<kTurnRows, kParts>(). Returns where the chunks after them begin. `more`: another turn follows.
template <int kTurnRows, int kGroup, int kChunks, int kParts, class X>
inline RingPlace wide_turn(RingPlace ring, BlocksAhead<kGroup, kParts, X>& x, bool more) {
  using Blocks = BlocksAhead<kGroup, kParts, X>;
  constexpr int kBlocks = Blocks::kBlocks, kAhead = Blocks::kAhead, kRound = kBlocks > kAhead ? kBlocks : kAhead;
  constexpr u32 kStepBytes = 256;
  static_assert(kRound % kAhead == 0 && kRound % kBlocks == 0);
  const int blocks = x.count(), part = Blocks::part();
  const u32 weights = shared_address(ring_slot(0)) + part * (kBlocks * 2 * kStepBytes);
  f32 sum[kChunks][kGroup / 2] = {};
  u32 chunk_at[kChunks] = {}, done[kChunks] = {};
  const auto free_chunks = [&](const u32(&slots)[kChunks]) {
    if (lane() != 0) return;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) barrier_arrive(&ring_barriers().empty[slots[i]]);
  };
#pragma unroll 1
  for (int first = 0; first < blocks; first += kRound)
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      if (i % kBlocks == 0) {
        if (i > 0 && first + i >= blocks) break;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          done[c] = chunk_at[c];
          chunk_at[c] = ring.slot;
          while (!all_of_warp(barrier_passed(&ring_barriers().full[ring.slot], ring.parity))) {}
          ring = ring + 1;
        }
      }
      wide_begin();
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int step = 0; step < 2; ++step)
          wide_multiply(
              sum[c], x[i].steps[step],
              weights_at<kGroup>(weights + chunk_at[c] * stream::kChunkBytes + (i % kBlocks * 2 + step) * kStepBytes));
      wide_commit();
      wide_wait<1>();
      // What came before this block is done: its chunk is free, and its registers take what comes next.
      if (first + i > 0) {
        if (i % kBlocks == 0) free_chunks(done);
        x.fetch(i + kAhead - 1, more);
      }
    }
  wide_wait<0>();
  free_chunks(chunk_at);
  if (more) x.fetch(kAhead - 1, more);
#pragma unroll
  for (int c = 0; c < kChunks; ++c)
#pragma unroll
    for (int j = 0; j < kGroup / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const f32* const of_tile = sum[c] + 4 * j + 2 * half;
        f32* const to =
            wide_sums<kTurnRows, kParts>(part, Blocks::row_tile() * row_blocks::kRows + lane() / 4 + 8 * half);
        *reinterpret_cast<float2*>(to + c * kGroup + 8 * j + lane() % 4 * 2) = {of_tile[0], of_tile[1]};
      }
  return ring;
}

/// The same address from now on, as keep() of multiply.cuh has it.
inline const f32* keep(const f32* address) {
  asm volatile("" : "+l"(address));
  return address;
}

/// The scale of each row's norm, from its squares: eight threads a row add up every eighth sum each, then each other's.
/// By the block; there after its next barrier.
__shared__ f32 wide_scales[4 * stream::kWideRows / stream::wide_parts(MEGALITH_STREAM_ROWS)];
template <class Args>
inline void find_scales(const Args& args) {
  constexpr int kLanes = kThreads * stream::wide_parts(Args::T_largest) / (4 * stream::kWideRows),
                C = static_cast<int>(Args::C), kEach = (C + kLanes - 1) / kLanes;
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
  constexpr int kTurnRows = kGroup * kTurn * kMatrices, kParts = stream::wide_parts(Args::T_largest);
  const int rows = static_cast<int>(args.T), n_begin = static_cast<int>(args.n_begin),
            n_end = static_cast<int>(args.n_end);
  const int num_groups = (n_end - n_begin + kGroup - 1) / kGroup;
  constexpr int K = static_cast<int>(Args::K);
  RingPlace ring = args.ring;
  inputs_are_ready(args.epoch);
  BlocksAhead<kGroup, kParts, X> blocks(x, rows, K);
  meanwhile();
#pragma unroll 1
  for (int group = 0; group < num_groups; group += kTurn) {
    const int count = min(kTurn, num_groups - group);
    const bool more = group + kTurn < num_groups;
    if (group > 0) block_sync();  // the sums were read
    blocks.turn_begins(group == 0);
    if (count == kTurn)
      ring = wide_turn<kTurnRows, kGroup, kTurn * kMatrices>(ring, blocks, more);
    else if (kTurn > 2 && count == 2)
      ring = wide_turn<kTurnRows, kGroup, (kTurn > 2 ? 2 : 1) * kMatrices>(ring, blocks, more);
    else
      ring = wide_turn<kTurnRows, kGroup, kMatrices>(ring, blocks, more);
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
    const float2 y = wide_sum<kGroup * kTurn>(args, row, n);
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
    BlocksAhead<kGroup, stream::wide_parts(Args::T_largest), decltype(x)> blocks(x, rows, K);
    ring = wide_turn<kGroup, kGroup, 1>(ring, blocks, false);
    block_sync();
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i * kRowsAtOnce >= rows) break;
      const int row = first_row + i * kRowsAtOnce;
      const float2 y = wide_sum<kGroup>(args, row, n);
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
        const float2 y = wide_sum<kGroup * kTurn>(args, row, n);
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
        const float2 gate = wide_sum<2 * kGroup>(args, row, n), up = wide_sum<2 * kGroup>(args, row, n + kGroup);
        const f32 scale = wide_scales[row];
        put_pair(args.y, row * static_cast<int>(Args::N) + column, silu(gate.x * scale) * (up.x * scale),
                 silu(gate.y * scale) * (up.y * scale), args.epoch);
      });
}

}  // namespace megalith::kernels
