#include "megalith/machine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megalith::machine {
namespace {

TEST(Machine, EveryRowIsComplete) {
  ASSERT_FALSE(gpus().empty());
  for (const Gpu& one : gpus()) {
    EXPECT_TRUE(one.architecture.starts_with("sm_")) << one.architecture;
    EXPECT_FALSE(one.cards.empty()) << one.architecture;
    EXPECT_GT(one.multiprocessors, 0) << one.architecture;
    EXPECT_GE(one.shared_bytes, 99 << 10) << one.architecture;
    EXPECT_LT(one.shared_bytes, 228 << 10) << one.architecture;
    EXPECT_GT(one.rates.bytes_per_ns, 0) << one.architecture;
    EXPECT_GT(one.rates.task_ns, 0) << one.architecture;
    EXPECT_EQ(&gpu(one.architecture), &one);
    EXPECT_EQ(&gpu_of_target("cuda:" + std::string(one.architecture)), &one);
  }
}

TEST(Machine, AnUnknownArchitectureIsTheNewestThatIsNotNewer) {
  EXPECT_EQ(gpu("sm_87").architecture, "sm_86");
  EXPECT_EQ(gpu("sm_90").architecture, "sm_90a");
  EXPECT_EQ(gpu("sm_103a").architecture, "sm_100a");
  EXPECT_EQ(gpu("sm_121a").architecture, "sm_120a");
  EXPECT_EQ(gpu("sm_999").architecture, gpus().back().architecture);
  EXPECT_EQ(gpu("sm_75").architecture, gpus().front().architecture);
}

TEST(Machine, WithoutACardItIsTheOneOfTheTuning) { EXPECT_EQ(gpu_of_target("cuda").architecture, "sm_90a"); }

TEST(Machine, AWorkerOfAGpuReadsFasterAndATaskCostsItMore) {
  const WorkerRates core = worker_rates("cpu"), multiprocessor = worker_rates("cuda:sm_90a");
  EXPECT_GT(multiprocessor.bytes_per_ns, core.bytes_per_ns);
  EXPECT_GT(multiprocessor.task_ns, core.task_ns);
}

TEST(Machine, ATaskTakesAsLongAsTheLongerOfMemoryAndArithmetic) {
  const WorkerRates rates = {
      .bytes_per_ns = 10, .tuned_flops_per_ns = 100, .generated_flops_per_ns = 20, .task_ns = 50};
  EXPECT_EQ(task_ns(rates, 1000, 100, true), 150);
  EXPECT_EQ(task_ns(rates, 1000, 40000, true), 450);
  EXPECT_EQ(task_ns(rates, 1000, 40000, false), 2050);
}

TEST(Machine, WorkersThatHalveAreAPowerOfTwo) {
  EXPECT_EQ(halving_workers(gpu("sm_90a")), 128);
  EXPECT_EQ(halving_workers(gpu("sm_80")), 64);
}

}  // namespace
}  // namespace megalith::machine
