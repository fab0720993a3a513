// The launch image: what goes into the records, and a message for everything that does not fit.
#include "megalith/runtime/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/test_kernel.h"

namespace megalith::runtime {
namespace {

using testing::HasSubstr;

/// a (worker 0) -> b (worker 1), and a gate that b signals.
TestKernel pair() {
  TestKernel kernel(2);
  const int done = kernel.event("a.done"), gate = kernel.event("gate");
  kernel.task("a", 0, {}, {done});
  kernel.task("b", 1, {{done}}, {gate});
  kernel.graph.gate = gate;
  return kernel;
}

std::string error_of(TestKernel& kernel) {
  try {
    kernel.build();
  } catch (const InternalError& error) { return error.what(); }
  return "no error";
}

TEST(Image, RecordsSayWhatTheGraphSays) {
  TestKernel kernel = pair();
  kernel.graph.tasks[1].tile = {{"n", 128, 256}, {"t", 0, 1}};
  const LaunchImage image = kernel.build();
  const Launch& launch = image.launch();
  ASSERT_EQ(launch.num_workers, 2u);
  EXPECT_EQ(launch.list[launch.list_begin[1]], 1u);
  EXPECT_EQ(launch.list_begin[2], 2u);
  const TaskRecord& b = launch.tasks[1];
  EXPECT_EQ(b.begin[0], 128);
  EXPECT_EQ(b.end[0], 256);
  EXPECT_EQ(b.end[1], 1);
  ASSERT_EQ(b.num_waits, 1u);
  EXPECT_EQ(launch.waits[b.first_wait].arrivals, 1u);
  EXPECT_EQ(launch.waits[b.first_wait].count, 1u);
  EXPECT_EQ(launch.signals[b.first_signal], 1u);
  EXPECT_EQ(launch.gate, 1u);
  EXPECT_EQ(launch.operands[b.first_operand], kernel.functions[1].get());
  EXPECT_EQ(image.event_signallers(0), std::vector<u32>{0});
}

TEST(Image, ScratchIsSeparateAndAligned) {
  TestKernel kernel = pair();
  ImageParts parts{.bodies = {0, 0}, .first_operands = {0, 0}, .operands = {nullptr}, .scratch_bytes = 100};
  kernel.graph.tasks[1].waits[0].count = 1;
  const LaunchImage image(kernel.graph, parts);
  EXPECT_GE(image.launch().scratch_bytes, 100u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(image.launch().scratch) % 64, 0u);
  EXPECT_EQ(image.launch().scratch_bytes % 64, 0u);
  image.launch().scratch[2 * image.launch().scratch_bytes - 1] = 1;
}

TEST(Image, ResetStartsCountersWhereTheFirstIterationWantsThem) {
  TestKernel kernel = pair();
  LaunchImage image = kernel.build();
  image.launch().events[0].word = 17;
  image.launch().control->abort = 1;
  image.reset(5);
  EXPECT_EQ(image.launch().events[0].word, 5 * kOneArrival);
  EXPECT_EQ(image.launch().control->abort, 0u);
  EXPECT_EQ(image.launch().first_iteration, 5u);
}

TEST(Image, SurvivesAMove) {
  TestKernel kernel = pair();
  LaunchImage image = kernel.build();
  const Launch* before = &image.launch();
  const LaunchImage moved = std::move(image);
  EXPECT_NE(before, &moved.launch());
  EXPECT_EQ(moved.launch().tasks[1].num_waits, 1u);
  moved.launch().control->abort = 0;
}

TEST(ImageErrors, PartsThatDoNotMatch) {
  TestKernel kernel = pair();
  kernel.build();
  try {
    LaunchImage(kernel.graph, {.bodies = {0}, .first_operands = {0, 0}});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[image] test has 2 tasks, but there are 1 bodies and 2 operand indices"));
  }
  try {
    LaunchImage(kernel.graph, {.bodies = {0, 0}, .first_operands = {0, 3}, .operands = {nullptr}});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task \"b\" has operands from 3 on, of 1"));
  }
}

TEST(ImageErrors, TaskOnNoListOrOnTwo) {
  TestKernel kernel = pair();
  kernel.graph.workers[1].clear();
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"b\" is on no worker's list"));
  kernel.graph.workers[1] = {0, 1};
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"a\" is listed twice, by workers 0 and 1"));
  kernel.graph.workers[1] = {2};
  EXPECT_THAT(error_of(kernel), HasSubstr("worker 1 lists task 2 of 2 tasks"));
}

TEST(ImageErrors, WaitsThatCannotHold) {
  TestKernel kernel = pair();
  kernel.graph.tasks[1].waits[0].count = 2;
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"b\" waits for 2 arrivals of event \"a.done\", which gets 1"));
  kernel.graph.tasks[1].waits[0] = {0, 1, 2};
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"b\" waits for event \"a.done\" with lag 2, want 0 or 1"));
  kernel.graph.tasks[1].waits[0] = {7, 1, 0};
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"b\" waits for event 7 of 2"));
  kernel = pair();
  kernel.graph.tasks[0].signals = {9};
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"a\" signals event 9 of 2"));
  kernel = pair();
  kernel.graph.events[0].arrivals = int64_t{1} << 31;
  EXPECT_THAT(error_of(kernel), HasSubstr("event \"a.done\" has 2147483648 arrivals, want 1 to 2147483647"));
}

TEST(ImageErrors, TilesThatDoNotFit) {
  TestKernel kernel = pair();
  kernel.graph.tasks[0].tile = {{"n", 0, int64_t{1} << 31}};
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"a\" covers n from 0 to 2147483648, which is no range of 32 bits"));
  kernel.graph.tasks[0].tile.assign(5, {"n", 0, 1});
  EXPECT_THAT(error_of(kernel), HasSubstr("task \"a\" is tiled along 5 axes, at most 4 are possible"));
}

TEST(ImageErrors, StopWordNeedsAGateAndEveryWorkerBeforeIt) {
  const i32 stop = 0;
  TestKernel kernel = pair();
  kernel.stop = &stop;
  EXPECT_EQ(error_of(kernel), "no error");

  // A worker that the stop task does not depend on could read the word while it is written.
  kernel.graph.workers.push_back({});
  EXPECT_EQ(error_of(kernel), "no error");
  kernel.task("aside", 2, {}, {});
  EXPECT_THAT(error_of(kernel), HasSubstr("worker 2 has no task that precedes \"b\""));

  kernel = pair();
  kernel.stop = &stop;
  kernel.graph.gate.reset();
  EXPECT_THAT(error_of(kernel), HasSubstr("test has a termination flag but no gate"));

  kernel = pair();
  kernel.stop = &stop;
  kernel.task("c", 0, {}, {1});
  EXPECT_THAT(error_of(kernel), HasSubstr("2 tasks of test signal the gate; say which writes the termination flag"));
}

TEST(ImageErrors, NoEnd) {
  TestKernel kernel = pair();
  kernel.num_iterations = 0;
  EXPECT_THAT(error_of(kernel), HasSubstr("test would never end"));
}

}  // namespace
}  // namespace megalith::runtime
