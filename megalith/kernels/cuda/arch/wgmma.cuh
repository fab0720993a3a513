// Multiplications by the tensor cores of a whole warpgroup, 64 rows at a time (wgmma, PTX ISA section 9.7.15); where there are
// none, by each of its warps for itself.
//
// A matrix in shared memory is made of pieces of eight times 16 bytes that lie one behind the other. The first operand's
// 64 rows, and the second one's rows or columns, go eight to a piece, and 16 of the index that is summed over are two pieces:
// `leading` bytes from one of those to the other, `stride` from eight rows to the next.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
#include "megalith/kernels/cuda/common/half_pair.cuh"

namespace megalith::kernels {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// As the tensor cores want to be told.
using SharedMatrix = u64;
/// The one that begins `step` bytes, a constant, behind `address`.
inline SharedMatrix shared_matrix(u32 address, u32 step, u32 leading, u32 stride) {
  u64 matrix;
  asm("mov.b64 %0, {%1, %2};"
      : "=l"(matrix)
      : "r"((address >> 4 | (leading >> 4) << 16) + (step >> 4)), "r"(stride >> 4));
  return matrix;
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
#define MEGALITH_REGISTERS "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "l"(y)
#define MEGALITH_WIDE_MULTIPLY(T, type)                                                                       \
  inline void wide_multiply(T, f32(&d)[16], uint4 x, SharedMatrix y) {                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, "        \
                 "%18, %19}, %20, 1, 1, 1, 0;"                                                                \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8)                                                 \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply(T, f32(&d)[24], uint4 x, SharedMatrix y) {                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27}, %28, 1, 1, 1, 0;"                      \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16)                          \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply(T, f32(&d)[32], uint4 x, SharedMatrix y) {                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, "         \
                 "%34, %35}, %36, 1, 1, 1, 0;"                                                                \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24)   \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply(T, f32(&d)[48], uint4 x, SharedMatrix y) {                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "      \
                 "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, {%48, %49, %50, "         \
                 "%51}, %52, 1, 1, 1, 0;"                                                                     \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24),  \
                   MEGALITH_EIGHT(d, 32), MEGALITH_EIGHT(d, 40)                                               \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply(T, f32(&d)[64], uint4 x, SharedMatrix y) {                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                 \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "      \
                 "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "      \
                 "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, "        \
                 "%68, 1, 1, 1, 0;"                                                                           \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24),  \
                   MEGALITH_EIGHT(d, 32), MEGALITH_EIGHT(d, 40), MEGALITH_EIGHT(d, 48), MEGALITH_EIGHT(d, 56) \
                 : MEGALITH_REGISTERS);                                                                       \
  }
#define MEGALITH_WIDE_MULTIPLY_OF_ATTENTION(T, type)                                                          \
  inline void wide_multiply(T, f32(&d)[8], SharedMatrix x, SharedMatrix y) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type                                  \
                 " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"                                  \
                 : MEGALITH_EIGHT(d, 0)                                                                       \
                 : "l"(x), "l"(y));                                                                           \
  }                                                                                                           \
  inline void wide_multiply_turned(T, f32(&d)[16], uint4 x, SharedMatrix y) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, "        \
                 "%18, %19}, %20, 1, 1, 1, 1;"                                                                \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8)                                                 \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply_turned(T, f32(&d)[32], uint4 x, SharedMatrix y) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, "         \
                 "%34, %35}, %36, 1, 1, 1, 1;"                                                                \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24)   \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply_turned(T, f32(&d)[48], uint4 x, SharedMatrix y) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type                                  \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "      \
                 "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, {%48, %49, %50, "         \
                 "%51}, %52, 1, 1, 1, 1;"                                                                     \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24),  \
                   MEGALITH_EIGHT(d, 32), MEGALITH_EIGHT(d, 40)                                               \
                 : MEGALITH_REGISTERS);                                                                       \
  }                                                                                                           \
  inline void wide_multiply_turned(T, f32(&d)[64], uint4 x, SharedMatrix y) {                                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                 \
                 " "                                                                                          \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "          \
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "      \
                 "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "      \
                 "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, "        \
                 "%68, 1, 1, 1, 1;"                                                                           \
                 : MEGALITH_EIGHT(d, 0), MEGALITH_EIGHT(d, 8), MEGALITH_EIGHT(d, 16), MEGALITH_EIGHT(d, 24),  \
                   MEGALITH_EIGHT(d, 32), MEGALITH_EIGHT(d, 40), MEGALITH_EIGHT(d, 48), MEGALITH_EIGHT(d, 56) \
                 : MEGALITH_REGISTERS);                                                                       \
  }
MEGALITH_WIDE_MULTIPLY(bf16, "bf16")
MEGALITH_WIDE_MULTIPLY(f16, "f16")
MEGALITH_WIDE_MULTIPLY_OF_ATTENTION(bf16, "bf16")
#undef MEGALITH_WIDE_MULTIPLY
#undef MEGALITH_WIDE_MULTIPLY_OF_ATTENTION
#undef MEGALITH_REGISTERS
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
  u32 address, leading, stride;
};
inline SharedMatrix shared_matrix(u32 address, u32 step, u32 leading, u32 stride) {
  return {address + step, leading, stride};
}
/// Of a matrix the row, or of one that is turned the value of the index that is summed over, that a lane names for
/// ldmatrix: of eights `first` and the next, 16 of that index each.
inline u32 row_of_lane(SharedMatrix y, int first) {
  return y.address + static_cast<u32>(first + lane() / 16) * y.stride + static_cast<u32>(lane() / 8 % 2) * y.leading +
         static_cast<u32>(lane() % 8) * 16;
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
