// A fault in data ends a run: dependants of the task do not run, all workers leave, the error has its words, and the
// next run is as good as any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>

#include "megalith/base/error.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/worker_thread.h"
#include "runtime/test_kernel.h"

namespace megalith::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The worker's place for a fault, while one of its tasks runs.
thread_local Fault* fault_here = nullptr;

void faulty_entry(const Launch* launch, u32 worker) {
  fault_here = &launch->status[worker].fault;
  test_entry(launch, worker);
}

struct Faulty {
  TestKernel kernel{2};
  bool is_wrong = true;
  std::atomic<int> dependants = 0, others = 0;

  Faulty() {
    const int made = kernel.event("made");
    kernel.task("ids", 0, {}, {made}, [this](u32) {
      if (is_wrong) *fault_here = {1, kNone, 1, 99, 16};
    });
    kernel.task("other", 0, {}, {}, [this](u32) { ++others; });
    kernel.task("rows", 1, {{made}}, {}, [this](u32) { ++dependants; });
    for (task::Task& task : kernel.graph.tasks) task.node = 0;
  }
};

std::string message_of(Launcher& launcher) {
  try {
    launcher.run();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(Fault, EndsTheRunAndOnlyThat) {
  Faulty faulty;
  LaunchImage image = faulty.kernel.build();
  Launcher launcher(faulty_entry, image);
  for (int round = 0; round < 20; ++round) {
    faulty.is_wrong = true;
    faulty.dependants = faulty.others = 0;
    EXPECT_THAT(message_of(launcher),
                AllOf(HasSubstr("[launch] test: task \"ids\""), HasSubstr(" is 99, allowed 0 <= index < 16"),
                      HasSubstr("ended in iteration 0")));
    EXPECT_EQ(faulty.dependants, 0) << "a task ran on what was not made";
    EXPECT_EQ(faulty.others, 0) << "the worker went on";
    faulty.is_wrong = false;
    EXPECT_EQ(message_of(launcher), "");
    EXPECT_EQ(faulty.dependants, 1);
    EXPECT_EQ(faulty.others, 1);
  }
}

// Somebody who sleeps for the dependant is woken by the end, and the first task of several is the one that is named.
TEST(Fault, OfTheEarliestTaskIsTold) {
  TestKernel kernel(2);
  std::atomic<int> at_it = 0;
  const int never = kernel.event("never");
  for (int w = 1; w >= 0; --w)  // both workers find one, task 0 is worker 1's
    kernel.task(w == 1 ? "first" : "second", w, {}, {}, [&](u32) {
      ++at_it;
      while (at_it < 2) {}
      *fault_here = {1, kNone, 0, 5, kDivides};
    });
  kernel.task("late", 1, {{never}}, {}, [](u32) {});
  kernel.task("signals", 0, {}, {never}, [](u32) {});
  LaunchImage image = kernel.build();
  Launcher launcher(faulty_entry, image);
  EXPECT_THAT(message_of(launcher), AllOf(HasSubstr("task \"first\""), HasSubstr("by zero")));
}

// In an iteration other than the first, and with a worker at the gate.
TEST(Fault, InALaterIteration) {
  TestKernel kernel(2);
  const int gate = kernel.event("gate"), made = kernel.event("made");
  kernel.task("step", 0, {}, {made}, [&](u32 iteration) {
    if (iteration == 3) *fault_here = {1, kNone, 0, -1, 4};
  });
  kernel.task("last", 1, {{made}}, {gate});
  kernel.graph.gate = gate;
  kernel.num_iterations = 10;
  LaunchImage image = kernel.build();
  Launcher launcher(faulty_entry, image);
  EXPECT_THAT(message_of(launcher), AllOf(HasSubstr("task \"step\""), HasSubstr("ended in iteration 3")));
}

TEST(WorkerThread, HasAStackOfItsOwnSize) {
  size_t stack_bytes = 0;
  TestKernel kernel(1);
  kernel.task("look", 0, {}, {}, [&](u32) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &stack_bytes);
    pthread_attr_destroy(&attributes);
  });
  LaunchImage image = kernel.build();
  Launcher(test_entry, image).run();
  EXPECT_GE(stack_bytes, kWorkerStackBytes);  // or one that is left of an earlier thread
}

// Each worker's scratch is its own pages, and there is as much of it as was asked for.
TEST(Scratch, IsThereForEachWorker) {
  for (const u64 bytes : {u64{1}, u64{5000}, u64{3} << 20}) {
    TestKernel kernel(2);
    kernel.task("a", 0, {}, {});
    kernel.task("b", 1, {}, {});
    ImageParts parts;
    parts.scratch_bytes = bytes;
    parts.bodies = parts.first_operands = {0, 0};
    LaunchImage image(kernel.graph, std::move(parts));
    const Launch& launch = image.launch();
    EXPECT_GE(launch.scratch_bytes, bytes);
    EXPECT_EQ(launch.scratch_bytes % 4096, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(launch.scratch) % 4096, 0u);
    EXPECT_EQ(image.scratch_bytes(), static_cast<int64_t>(2 * launch.scratch_bytes));
    launch.scratch[2 * launch.scratch_bytes - 1] = 1;
  }
}

}  // namespace
}  // namespace megalith::runtime
