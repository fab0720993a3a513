// How fast the machine multiplies.
#include "megalith/runtime/multiply_rate.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "megalith/base/error.h"

namespace megalith::runtime {
namespace {

TEST(MultiplyRate, IsWithinReason) {
  for (int threads : {1, 2, 5}) {
    const double gflops = cpu_multiply_rate_gflops({.num_threads = threads, .seconds = 0.02});
    EXPECT_GT(gflops, 0.01) << threads;   // a sanitizer on a busy machine
    EXPECT_LT(gflops, 4000.0 * threads);  // tiles make 2,350 of a core
    std::printf("[ FIGURE   ] multiply rate of %d threads: %.1f GFLOP/s\n", threads, gflops);
  }
}

TEST(MultiplyRate, OfF32AloneIsNoMore) {
  const double all = cpu_multiply_rate_gflops({.seconds = 0.05}),
               f32 = cpu_multiply_rate_gflops({.seconds = 0.05, .f32_alone = true});
  EXPECT_GT(f32, 0.01);
  EXPECT_LT(f32, 1.5 * all);  // the same loop, where the processor has no other: other work beside it
}

TEST(MultiplyRate, OfNoThreadsIsAnError) { EXPECT_THROW(cpu_multiply_rate_gflops({.num_threads = 0}), UserError); }

}  // namespace
}  // namespace megalith::runtime
