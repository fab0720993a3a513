// Loop kernels of one's own on a GPU whose driver is a stand-in: what is launched, and what a card cannot hold.
#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/base/capacity_error.h"
#include "megalith/runtime/loop_kernel.h"

namespace megalith::runtime {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoopLaunchTest : public test::FakeDriverTest {
 protected:
  void SetUp() override {
    if (const std::string why = megalith::testing::missing_compiler(); !why.empty()) GTEST_SKIP() << "[SKIP] " << why;
  }
  static LoopCall call_of(const LoopKernel& kernel, int64_t n) {
    LoopCall call = kernel.call();
    for (size_t i = 0; i < 2; ++i)
      call.tensors[i] = {.data = reinterpret_cast<void*>(0x10000000 * (i + 1)),  // NOLINT: nobody looks there
                         .is_there = true,
                         .on_gpu = true,
                         .num_dims = 1,
                         .shape = {n}};
    return call;
  }
  LoopKernel kernel =
      LoopKernel("kernel twice\n{ [i] : 0 <= i < n }\nb[i] = 2 * a[i]").then("split i 128 -> o:g.0 p:l.0");
};

TEST_F(LoopLaunchTest, TheGridCoversAll) {
  for (const auto& [n, blocks] : {std::pair<int64_t, unsigned>{1000, 8}, {1024, 8}, {1025, 9}, {1, 1}}) {
    LoopCall call = call_of(kernel, n);
    kernel.run(call);
    EXPECT_THAT(fake.grid, ElementsAre(blocks, 1, 1)) << n;
    EXPECT_THAT(fake.block, ElementsAre(n == 1 ? 1 : 128, 1, 1)) << n;  // what is compiled for 1 needs one thread
  }
  EXPECT_EQ(fake.calls["cuLaunchKernelEx"], 4);
  EXPECT_EQ(fake.calls["cuModuleLoadData"], 3);  // 1000 and 1025 are alike: no multiples of 16
}

TEST_F(LoopLaunchTest, WhatTheCardCannotHoldIsSaid) {
  fake.max_threads = 64;
  LoopCall call = call_of(kernel, 1000);
  EXPECT_THAT(
      message_of<CapacityError>([&] { kernel.run(call); }),
      HasSubstr("[twice] a block has 128 threads of 0 registers each, and this GPU holds 64 such threads at most"));
  const LoopKernel along_y = LoopKernel("{ [i] : 0 <= i < n }\nb[i] = 2 * a[i]").then("tag i g.1");
  fake.max_threads = 0;
  LoopCall large = call_of(along_y, 70000);
  EXPECT_THAT(message_of<CapacityError>([&] { along_y.run(large); }),
              HasSubstr("there would be 70000 blocks along g.1, and a GPU takes 65535 at most"));
}

TEST_F(LoopLaunchTest, TheDriversErrorNamesTheKernel) {
  fake.failures["cuLaunchKernelEx"] = 700;
  LoopCall call = call_of(kernel, 1000);
  EXPECT_THAT(message_of<SystemError>([&] { kernel.run(call); }),
              HasSubstr("[cuda] launching the kernel twice failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
}

}  // namespace
}  // namespace megalith::runtime
