// What goes wrong with a driver and a card, and what Megalith says then.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/graph_runner.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/hang_report.h"
#include "megalith/task/flag_waits.h"

namespace megalith::jit {
namespace {

using test::EnvironmentVariable;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FaultsTest : public test::FakeDriverTest {};

// y = y + x, as a graph built by hand.
struct Sum {
  graph::Graph graph{ops::builtin(), "sum"};
  std::vector<float> x = std::vector<float>(64), y = std::vector<float>(64);
  CompiledKernel kernel;

  Sum() {
    const auto one = graph.state("x", DType::f32, {1, 64}), sum = graph.state("y", DType::f32, {1, 64});
    graph.add("add", "add", {sum, one}, {.outputs = {{"y", sum}}});
    kernel = compile(graph, {.target = "cuda", .num_workers = 2});
  }
  std::unique_ptr<engine::GraphRunner> runner() {
    const std::map<std::string, engine::TensorMemory> memory = {{"x", {x.data()}}, {"y", {y.data()}}};
    return std::make_unique<engine::GraphRunner>(graph, kernel, memory);
  }
};

TEST_F(FaultsTest, ADriverThatIsNotThere) {
  const EnvironmentVariable driver("MEGALITH_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  EXPECT_THAT(message_of<SystemError>([] { CudaDriver(); }),
              AllOf(StartsWith("[cuda] cannot open \"/nowhere/libcuda.so.1\", which MEGALITH_CUDA_DRIVER names ("),
                    HasSubstr("No such file"), HasSubstr("--target cpu")));
}

TEST_F(FaultsTest, ADriverThatIsTooOld) {
  const EnvironmentVariable driver("MEGALITH_CUDA_DRIVER", FAKE_CUDA_OLD);
  EXPECT_THAT(message_of<SystemError>([] { CudaDriver(); }),
              AllOf(HasSubstr(FAKE_CUDA_OLD " has no function cuLaunchKernelEx: it is too old; install a newer one"),
                    HasSubstr("(this driver is for CUDA 13.0, Megalith wants one for 12.0 or newer)")));
}

TEST_F(FaultsTest, ADriverThatDoesNotStart) {
  fake.failures["cuInit"] = 803;
  EXPECT_EQ(message_of<SystemError>([] { CudaDriver(); }),
            "[cuda] starting the driver (cuInit) failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (words of the driver); "
            "library and kernel module of the driver differ, as after an update: restart the machine");
}

TEST_F(FaultsTest, ADriverWithoutACard) {
  fake.failures["cuInit"] = 100;
  EXPECT_THAT(message_of<SystemError>([] { CudaDriver(); }),
              AllOf(HasSubstr("CUDA_ERROR_NO_DEVICE"), HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("--target cpu")));
}

TEST_F(FaultsTest, AllCardsHidden) {
  fake.num_devices = 0;
  EXPECT_TRUE(cuda_devices().empty());
  EXPECT_THAT(message_of<SystemError>([] { cuda_device(); }),
              AllOf(HasSubstr("the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)"), HasSubstr("--target cpu")));
}

TEST_F(FaultsTest, ACardIsDescribed) {
  EXPECT_EQ(cuda_device().name, "Fake GPU");
  EXPECT_EQ(cuda_device().architecture, "sm_90a");
  EXPECT_EQ(CudaDriver::get().version(), "13.0");
}

// Kernels name addresses in shared memory (kernels/cuda/common/shared_variables.cuh).
TEST_F(FaultsTest, WhatIsFusedFollowsFromTheCardThatIsThere) {
  EXPECT_EQ(target_with_architecture("cuda"), "cuda:sm_90a");
  EXPECT_EQ(target_with_architecture("cuda:sm_89"), "cuda:sm_89");
  EXPECT_EQ(target_with_architecture("cpu"), "cpu");
  EXPECT_THAT(message_of<UserError>([] { target_with_architecture("cuda:sm_75"); }),
              HasSubstr("kernels are for GPUs from sm_80 on (Ampere), not for sm_75"));
}

TEST_F(FaultsTest, ADriverThatKeepsMoreOfSharedMemory) {
  fake.reserved_bytes = 2048;
  EXPECT_THAT(
      message_of<SystemError>([] { cuda_device(); }),
      AllOf(HasSubstr("keeps 2048 bytes of a block's shared memory on Fake GPU"), HasSubstr("made for 1024 at most")));
}

TEST_F(FaultsTest, ACardThatCannotRunAllWorkersAtOnce) {
  fake.launches_cooperatively = false;
  EXPECT_THAT(message_of<SystemError>([] { cuda_device(); }),
              AllOf(StartsWith("[cuda] Fake GPU cannot launch cooperatively"), HasSubstr("CUDA_VISIBLE_DEVICES"),
                    HasSubstr("--target cpu")));
}

TEST_F(FaultsTest, AnErrorThatTheCardContained) {
  EXPECT_THAT(message_of<SystemError>([] { CudaDriver::get().check(226, "running \"storyteller\""); }),
              AllOf(HasSubstr("error 226"), HasSubstr("ended only this process's work: start the process again")));
}

TEST_F(FaultsTest, AFullCardSaysHowFull) {
  fake.total_bytes = int64_t{10} << 20;
  const runtime::CudaContextGuard context(0);
  const runtime::DeviceMemory most(int64_t{9} << 20, "most of it");
  EXPECT_THAT(message_of<SystemError>([] { runtime::DeviceMemory(int64_t{2} << 20, "the arena"); }),
              AllOf(HasSubstr("allocating 2 MiB for the arena (1 MiB of the GPU's 10 MiB are free) failed: "
                              "CUDA_ERROR_OUT_OF_MEMORY"),
                    HasSubstr("--max-seq-len")));
}

TEST_F(FaultsTest, ACardThatIsGoneIsNotAFullOne) {
  const runtime::CudaContextGuard context(0);
  fake.failures["cuMemAlloc_v2"] = 46;
  EXPECT_THAT(
      message_of<SystemError>([] { runtime::DeviceMemory(64, "the arena"); }),
      AllOf(HasSubstr("allocating 64 B for the arena failed: CUDA_ERROR_DEVICE_UNAVAILABLE"), HasSubstr("Xid")));
}

TEST_F(FaultsTest, AContextThatAKernelEndedStaysDead) {
  const runtime::CudaContextGuard context(0);
  const runtime::DeviceMemory memory(64, "the arena");
  fake.failures["cuStreamSynchronize"] = 700;
  const CudaDriver& driver = CudaDriver::get();
  CudaStream stream = nullptr;
  driver.check(driver.stream_create(&stream, 1), "making a stream");
  EXPECT_THAT(
      message_of<SystemError>([&] { driver.check(driver.stream_synchronize(stream), "running \"storyteller\""); }),
      AllOf(StartsWith("[cuda] running \"storyteller\" failed: CUDA_ERROR_ILLEGAL_ADDRESS"),
            HasSubstr("every later call of this process fails alike: start it again"), HasSubstr("compute-sanitizer")));
  char byte = 0;
  EXPECT_THAT(message_of<SystemError>([&] { memory.download(&byte, 1); }), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  driver.stream_destroy(stream);
}

// In a process of its own, since nothing of the GPU is to be had afterwards.
TEST_F(FaultsTest, AKernelThatDoesNotStopIsAnErrorAndNobodyWaitsForIt) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const EnvironmentVariable watchdog("MEGALITH_WATCHDOG_MS", "300");
        fake.worker_never_ends = true;
        const auto run = [] {
          engine::Engine engine(MEGALITH_SOURCE_DIR "/models/storyteller", test::few_kernels());
          engine.generate({{.prompt = {1, 2, 3}}}, {});
        };
        std::string message = message_of<runtime::HangError>(run);
        message += " | " + message_of<SystemError>(run);
        std::fprintf(stderr, "%s | %d calls wait\n", message.c_str(), fake.waits_for_ever);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      // A dot stands for the end of a line, too; (.|\n)* takes a minute to match what is said of all workers.
      "made no progress.*\\[cuda\\] .* does not stop: a worker does not return from its task.* \\| "
      "\\[cuda\\] .* end it \\| 0 calls wait");
}

// A worker has written down for which word it waits; nobody writes that word. In a process of its own, as above.
TEST_F(FaultsTest, AFlagThatDoesNotComeIsNamedWithItsWriter) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const EnvironmentVariable watchdog("MEGALITH_WATCHDOG_MS", "500");
        fake.worker_never_ends = true;
        engine::Engine engine(MEGALITH_SOURCE_DIR "/models/storyteller", test::few_kernels());
        const task::TaskGraph& tasks = engine.kernel().tasks;
        const task::FlagWaits flags(tasks);
        const task::FlaggedRegion& region = flags.regions().at(0);
        const task::Task& reader = tasks.tasks[static_cast<size_t>(region.readers.at(0))];
        std::thread([&] {
          using namespace runtime;
          const auto launched = [&] {
            const std::lock_guard guard(fake.mutex);
            return static_cast<const Launch*>(fake.launch);
          };
          while (launched() == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          const Launch& launch = *launched();
          const std::vector<int>& operands = engine.graph().nodes()[static_cast<size_t>(reader.node)].operands;
          const auto operand = std::ranges::find(operands, region.buffer) - operands.begin();
          const auto index = static_cast<u32>(region.readers[0]);
          const auto address =
              reinterpret_cast<u64>(launch.operands[launch.tasks[index].first_operand + static_cast<u32>(operand)]);
          WorkerStatus& status = launch.status[reader.worker];
          status.task = index;
          status.iteration = 0;
          status.flag = flag_wanted(address, 1);  // the first word
        }).detach();
        const std::string message = message_of<runtime::HangError>([&] {
          engine.generate({{.prompt = {1, 2, 3}}}, {});
        });
        const task::Task& writer = tasks.tasks[static_cast<size_t>(region.writers.at(0))];
        std::fprintf(stderr, "%s\n", message.c_str());
        const std::string name = tasks.buffers[static_cast<size_t>(region.buffer)].name;
        EXPECT_THAT(message,
                    HasSubstr(fmt::format("worker {} waits in task \"{}\" of iteration 0 for the flag of {}[0:1, 0:",
                                          reader.worker, reader.name, name)));
        EXPECT_THAT(message,
                    HasSubstr(fmt::format("has sequence number 0, wants 1, written by \"{}\" (worker {}), which "
                                          "has not run it",
                                          writer.name, writer.worker)));
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

// It is not one that makes no progress. In a process of its own, since nobody ends it.
TEST_F(FaultsTest, AKernelThatWaitsForTheCardIsWaitedFor) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const EnvironmentVariable watchdog("MEGALITH_WATCHDOG_MS", "300");
        fake.worker_never_ends = true;
        fake.worker_begins = false;
        std::thread([] {
          engine::Engine engine(MEGALITH_SOURCE_DIR "/models/storyteller", test::few_kernels());
          std::fputs(message_of<runtime::HangError>([&] {
                       engine.generate({{.prompt = {1, 2, 3}}}, {});
                     }).c_str(),
                     stderr);
          std::_Exit(1);
        }).detach();
        const auto launched = [&] {
          const std::lock_guard guard(fake.mutex);
          return fake.calls["cuLaunchKernelEx"] > 1;  // the first one packs weights
        };
        while (!launched()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        std::fputs("still waits", stderr);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "still waits");
}

// A destructor that throws would end the process here, and nobody would read the error.
TEST_F(FaultsTest, AGraphWhoseKernelDoesNotStopIsAnErrorToo) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const EnvironmentVariable watchdog("MEGALITH_WATCHDOG_MS", "300");
        fake.worker_never_ends = true;
        Sum sum;
        const std::string message = message_of<runtime::HangError>([&] { sum.runner()->run(); });
        std::fprintf(stderr, "%s | %d calls wait\n", message.c_str(), fake.waits_for_ever);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "does not stop: a worker does not return from its task.* \\| 0 calls wait");
}

TEST_F(FaultsTest, ATensorOnAnotherGpuOrBetweenLoadsIsRefused) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  Sum sum;
  const runtime::CudaContextGuard context(0);
  const runtime::DeviceMemory memory(512, "tensors of somebody else's");
  const auto message = [&](int64_t offset, int device) {
    const std::map<std::string, engine::TensorMemory> places = {
        {"x", {memory.data<std::byte>() + offset, true, 0, device}}, {"y", {sum.y.data()}}};
    try {
      engine::GraphRunner(sum.graph, sum.kernel, places);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_EQ(message(16, 0), "");
  EXPECT_EQ(message(16, -1), "") << "managed memory";
  EXPECT_EQ(message(16, 1),
            "the tensor \"x\" lies on GPU 1, but kernels run on GPU 0: bring one that lies there, or let "
            "CUDA_VISIBLE_DEVICES say which GPU is the first");
  EXPECT_THAT(message(4, 0), AllOf(StartsWith("the tensor \"x\" begins at 0x"),
                                   HasSubstr("kernels load 16 bytes at once"), HasSubstr(".clone()")));
}

TEST_F(FaultsTest, WhatAnotherThreadLetsGoOfIsFreed) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  const size_t before = fake.used_bytes;
  Sum sum;
  auto runner = sum.runner();
  auto engine = std::make_unique<engine::Engine>(MEGALITH_SOURCE_DIR "/models/storyteller", test::few_kernels());
  EXPECT_GT(fake.num_owned, 0);
  std::thread([&] { engine.reset(), runner.reset(); }).join();
  EXPECT_EQ(fake.used_bytes, before);
  EXPECT_EQ(fake.retained, 0) << "the context is still held";
}

TEST_F(FaultsTest, AProfileIsTurnedOffAgainAndAFailedOneIsOff) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  engine::Engine engine(MEGALITH_SOURCE_DIR "/models/storyteller", test::few_kernels());
  const size_t without = fake.used_bytes;
  engine.profile(4);
  EXPECT_GT(fake.used_bytes, without);
  engine.profile(0);
  EXPECT_EQ(fake.used_bytes, without);
  EXPECT_TRUE(engine.profile_take().workers.empty());
  engine.profile(4);
  fake.fails_after["cuMemAlloc_v2"] = fake.calls["cuMemAlloc_v2"] + 1;
  fake.failures["cuMemAlloc_v2"] = 2;
  EXPECT_THAT(message_of<SystemError>([&] { engine.profile(8); }), HasSubstr("for the profile's clocks"));
  EXPECT_TRUE(engine.profile_take().workers.empty());
}

TEST_F(FaultsTest, SoIsThatOfAGraph) {
  MEGALITH_SKIP_IF(megalith::testing::missing_compiler());
  Sum sum;
  const auto runner = sum.runner();
  const size_t without = fake.used_bytes;
  runner->profile(4);
  EXPECT_GT(fake.used_bytes, without);
  runner->profile(0);
  EXPECT_EQ(fake.used_bytes, without);
  EXPECT_THAT(message_of<UserError>([&] { runner->trace(); }), HasSubstr("profile it before it runs"));
}

TEST_F(FaultsTest, WhatFailsHalfWayLeavesNothingBehind) {
  const size_t before = fake.used_bytes;
  {
    const runtime::CudaContextGuard context(0);
    fake.failures["cuMemsetD8_v2"] = 46;
    EXPECT_THAT(message_of<SystemError>([] { runtime::DeviceMemory(64, "the arena"); }), HasSubstr("clearing"));
  }
  EXPECT_EQ(fake.used_bytes, before);
  EXPECT_EQ(fake.num_owned, 0);
  EXPECT_EQ(fake.retained, 0);
}

TEST_F(FaultsTest, AThreadHasTheContextForAsLongAsItsGuardLives) {
  std::thread([] {
    const auto allocate = [] { runtime::DeviceMemory(64, "the arena"); };
    {
      const runtime::CudaContextGuard outer(0);
      { const runtime::CudaContextGuard inner(0); }
      allocate();
    }
    EXPECT_THAT(message_of<SystemError>(allocate), HasSubstr("CUDA_ERROR_INVALID_CONTEXT"));
  }).join();
}

TEST_F(FaultsTest, AKernelThatTheDriverDoesNotKnow) {
  const CudaDriver& driver = CudaDriver::get();
  EXPECT_THAT(message_of<SystemError>([&] { driver.check(209, "loading the kernel"); }),
              AllOf(HasSubstr("CUDA_ERROR_NO_BINARY_FOR_GPU"), HasSubstr("install a newer driver")));
}

TEST_F(FaultsTest, ACodeWithoutNameOrAdvice) {
  EXPECT_EQ(message_of<SystemError>([] { CudaDriver::get().check(12345, "doing this"); }),
            "[cuda] doing this failed: error 12345 (words of the driver)");
}

}  // namespace
}  // namespace megalith::jit
