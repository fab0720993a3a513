// What a GPU can do: the kernels that measure it compile, and on a GPU they find what no GPU is below.
#include "megalith/runtime/cuda/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/skip.h"
#include "megalith/jit/cuda/nvrtc.h"

namespace megalith {
namespace {

TEST(CudaLimits, TheKernelsThatMeasureCompile) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const jit::NvrtcResult result =
        jit::nvrtc_compile(runtime::cuda_limits_source(), "limits", architecture, {"--std=c++20"});
    EXPECT_FALSE(result.cubin.empty()) << architecture;
    EXPECT_THAT(result.resources.spills, ::testing::IsEmpty()) << architecture;
    EXPECT_NE(result.ptx.find("mma.sync"), std::string::npos) << architecture;
  }
}

TEST(CudaLimits, AreThoseOfAGpu) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  EXPECT_GT(runtime::cuda_read_bandwidth_gbs(), 100);
  EXPECT_LT(runtime::cuda_read_bandwidth_gbs(), 20000);
  EXPECT_GT(runtime::cuda_multiply_rate_gflops(), 10e3);
  EXPECT_LT(runtime::cuda_multiply_rate_gflops(), 10e6);
}

}  // namespace
}  // namespace megalith
