// Multiplications by the tensor cores of a whole warpgroup, 64 rows at a time (wgmma, PTX ISA section 9.7.15); where there are
// none, by each of its warps for itself.
//
// A matrix in shared memory is made of pieces of eight times 16 bytes that lie one behind the other. The first operand's
// 64 rows, and the second one's rows or columns, go eight to a piece, and 16 of the index that is summed over are two pieces:
// `leading` bytes from one of those to the other, `stride` from eight rows to the next.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/cuda/arch/swizzle.cuh"
#include "megalith/kernels/cuda/common/half_pair.cuh"

namespace megalith::kernels {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// As the tensor cores want to be told.
using SharedMatrix = u64;
/// The one that begins `step` bytes, a constant, behind `address`, of which 18 bits count: above them stands the block's
/// number in its cluster.
inline SharedMatrix shared_matrix(u32 address, u32 step, u32 leading, u32 stride) {
  const u32 place = kWorkerConfig.has_partners ? address >> 4 & 0x3fff : address >> 4;
  u64 matrix;
  asm("mov.b64 %0, {%1, %2};" : "=l"(matrix) : "r"((place | (leading >> 4) << 16) + (step >> 4)), "r"(stride >> 4));
  return matrix;
}
/// One of rows of 128 bytes, eight of them in a kilobyte, at a multiple of that, whose pieces of 16 bytes are turned by the row's
/// number (swizzle128()); `stride` bytes from eight rows to the next. As an operand, and as one whose columns lie side by side.
inline SharedMatrix swizzled_matrix(u32 address, u32 step, u32 stride) {
  return shared_matrix(address, step, 16, stride) | u64{1} << 62;
}
inline SharedMatrix swizzled_matrix_turned(u32 address, u32 step, u32 stride) {
  return swizzled_matrix(address, step, stride);
}
// Begun here, done when wide_wait() says so; registers are the tensor cores' until then.
inline void wide_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
inline void wide_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
/// Until at most `kLeft` of the committed ones are under way.
template <int kLeft>
inline void wide_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kLeft) : "memory");
}
/// Between what threads wrote to shared memory, each its own, and what the tensor cores read there behind a barrier.
inline void fence_writes_before_multiply() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

/// wide_multiply(T{}, d, x, y): d += x y^T, x of 64 rows, y of twice as many rows as a lane has of d. A warp has 16 of d's rows:
/// a lane rows lane / 4 and eight further, and of each eight of y's rows number lane % 4 * 2 and the next. x is in
/// registers, of a warp's 16 rows as multiply_accumulate() has them, or in shared memory.
/// wide_multiply_turned(): y's columns lie side by side.
#define MEGALITH_EIGHT(d, i)                                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MEGALITH_8(d) MEGALITH_EIGHT(d, 0)
#define MEGALITH_16(d) MEGALITH_8(d), MEGALITH_EIGHT(d, 8)
#define MEGALITH_24(d) MEGALITH_16(d), MEGALITH_EIGHT(d, 16)
#define MEGALITH_32(d) MEGALITH_24(d), MEGALITH_EIGHT(d, 24)
#define MEGALITH_48(d) MEGALITH_32(d), MEGALITH_EIGHT(d, 32), MEGALITH_EIGHT(d, 40)
#define MEGALITH_64(d) MEGALITH_48(d), MEGALITH_EIGHT(d, 48), MEGALITH_EIGHT(d, 56)
#define MEGALITH_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MEGALITH_NAMES_16 MEGALITH_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MEGALITH_NAMES_24 MEGALITH_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MEGALITH_NAMES_32 MEGALITH_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MEGALITH_NAMES_48 \
  MEGALITH_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define MEGALITH_NAMES_64 \
  MEGALITH_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// Operands behind the sums: four of x in registers and y, or x and y.
#define MEGALITH_NEXT_8 "%8, %9, %10, %11"
#define MEGALITH_LAST_8 "%12"
#define MEGALITH_NEXT_16 "%16, %17, %18, %19"
#define MEGALITH_LAST_16 "%20"
#define MEGALITH_PAIR_16 "%16, %17"
#define MEGALITH_NEXT_24 "%24, %25, %26, %27"
#define MEGALITH_LAST_24 "%28"
#define MEGALITH_PAIR_24 "%24, %25"
#define MEGALITH_NEXT_32 "%32, %33, %34, %35"
#define MEGALITH_LAST_32 "%36"
#define MEGALITH_PAIR_32 "%32, %33"
#define MEGALITH_NEXT_48 "%48, %49, %50, %51"
#define MEGALITH_LAST_48 "%52"
#define MEGALITH_PAIR_48 "%48, %49"
#define MEGALITH_NEXT_64 "%64, %65, %66, %67"
#define MEGALITH_LAST_64 "%68"
#define MEGALITH_PAIR_64 "%64, %65"
// `sums` of a lane, twice as many rows of y.
#define MEGALITH_WIDE_MULTIPLY_REGISTERS(name, T, type, sums, rows, is_turned)                                 \
  inline void name(T, f32(&d)[sums], uint4 x, SharedMatrix y) {                                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32." type "." type " {" MEGALITH_NAMES_##sums \
                 "}, {" MEGALITH_NEXT_##sums "}, " MEGALITH_LAST_##sums ", 1, 1, 1, " #is_turned ";"           \
                 : MEGALITH_##sums(d)                                                                          \
                 : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(y));                                            \
  }
#define MEGALITH_WIDE_MULTIPLY_SHARED(T, type, sums, rows)                                                     \
  inline void wide_multiply(T, f32(&d)[sums], SharedMatrix x, SharedMatrix y) {                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32." type "." type " {" MEGALITH_NAMES_##sums \
                 "}, " MEGALITH_PAIR_##sums ", 1, 1, 1, 0, 0;"                                                 \
                 : MEGALITH_##sums(d)                                                                          \
                 : "l"(x), "l"(y));                                                                            \
  }
#define MEGALITH_WIDE_MULTIPLY(T, type)                                \
  MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply, T, type, 16, 32, 0)  \
  MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply, T, type, 24, 48, 0)  \
  MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply, T, type, 32, 64, 0)  \
  MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply, T, type, 48, 96, 0)  \
  MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply, T, type, 64, 128, 0) \
  MEGALITH_WIDE_MULTIPLY_SHARED(T, type, 16, 32)                       \
  MEGALITH_WIDE_MULTIPLY_SHARED(T, type, 24, 48)                       \
  MEGALITH_WIDE_MULTIPLY_SHARED(T, type, 32, 64)                       \
  MEGALITH_WIDE_MULTIPLY_SHARED(T, type, 48, 96)                       \
  MEGALITH_WIDE_MULTIPLY_SHARED(T, type, 64, 128)
MEGALITH_WIDE_MULTIPLY(bf16, "bf16")
MEGALITH_WIDE_MULTIPLY(f16, "f16")
// Of attention.
MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply_turned, bf16, "bf16", 8, 16, 1)
MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply_turned, bf16, "bf16", 16, 32, 1)
MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply_turned, bf16, "bf16", 24, 48, 1)
MEGALITH_WIDE_MULTIPLY_REGISTERS(wide_multiply_turned, bf16, "bf16", 32, 64, 1)
#undef MEGALITH_WIDE_MULTIPLY
#undef MEGALITH_WIDE_MULTIPLY_SHARED
#undef MEGALITH_WIDE_MULTIPLY_REGISTERS
#undef MEGALITH_NAMES_64
#undef MEGALITH_64
#undef MEGALITH_NAMES_48
#undef MEGALITH_48
#undef MEGALITH_NAMES_32
#undef MEGALITH_32
#undef MEGALITH_NAMES_24
#undef MEGALITH_24
#undef MEGALITH_NAMES_16
#undef MEGALITH_16
#undef MEGALITH_NAMES_8
#undef MEGALITH_8
#undef MEGALITH_NEXT_8
#undef MEGALITH_LAST_8
#undef MEGALITH_NEXT_16
#undef MEGALITH_LAST_16
#undef MEGALITH_PAIR_16
#undef MEGALITH_NEXT_24
#undef MEGALITH_LAST_24
#undef MEGALITH_PAIR_24
#undef MEGALITH_NEXT_32
#undef MEGALITH_LAST_32
#undef MEGALITH_PAIR_32
#undef MEGALITH_NEXT_48
#undef MEGALITH_LAST_48
#undef MEGALITH_PAIR_48
#undef MEGALITH_NEXT_64
#undef MEGALITH_LAST_64
#undef MEGALITH_PAIR_64
#undef MEGALITH_EIGHT
#else
inline void fence_writes_before_multiply() {}
inline void wide_begin() {}
inline void wide_commit() {}
template <int kLeft>
inline void wide_wait() {
  warp_sync();
}
struct SharedMatrix {
  u32 address, leading, stride, row = 16;
};
inline SharedMatrix shared_matrix(u32 address, u32 step, u32 leading, u32 stride) {
  return {address + step, leading, stride};
}
inline SharedMatrix swizzled_matrix(u32 address, u32 step, u32 stride) { return {address + step, 16, stride, 128}; }
inline SharedMatrix swizzled_matrix_turned(u32 address, u32 step, u32 stride) {
  return {address + step, stride, 16, 128};
}
/// Of a matrix the row, or of one that is turned the value of the index that is summed over, that a lane names for
/// ldmatrix: of eights `first` and the next, 16 of that index each.
inline u32 row_of_lane(SharedMatrix y, int first) {
  const u32 row = y.address + static_cast<u32>(first + lane() / 16) * y.stride +
                  static_cast<u32>(lane() / 8 % 2) * y.leading + static_cast<u32>(lane() % 8) * y.row;
  return y.row == 128 ? swizzle128(row) : row;
}
template <Half T, int kSums, class Load>
inline void wide_multiply_eights(T, f32 (&d)[kSums], uint4 x, SharedMatrix y, Load load) {
#pragma unroll
  for (int j = 0; j < kSums / 4; j += 2) {
    const uint4 two = load(row_of_lane(y, j));
    multiply_accumulate(T{}, reinterpret_cast<f32(&)[4]>(d[4 * j]), x, two.x, two.y);
    if (j + 1 < kSums / 4) multiply_accumulate(T{}, reinterpret_cast<f32(&)[4]>(d[4 * j + 4]), x, two.z, two.w);
  }
}
template <Half T, int kSums>
inline void wide_multiply(T, f32 (&d)[kSums], uint4 x, SharedMatrix y) {
  wide_multiply_eights(T{}, d, x, y, [](u32 row) { return load_matrices(row); });
}
template <Half T, int kSums>
inline void wide_multiply(T, f32 (&d)[kSums], SharedMatrix x, SharedMatrix y) {
  const uint4 mine = load_matrices(row_of_lane(x, warp() % 4 * 2));
  wide_multiply(T{}, d, uint4{mine.x, mine.z, mine.y, mine.w}, y);
}
template <Half T, int kSums>
inline void wide_multiply_turned(T, f32 (&d)[kSums], uint4 x, SharedMatrix y) {
  wide_multiply_eights(T{}, d, x, y, [](u32 row) { return load_transposed(row); });
}
#endif

}  // namespace megalith::kernels
