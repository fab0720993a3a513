// What a node reads of what it writes: every kind that is wrong although all tasks are ordered, and those that are fine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "megalith/task/json.h"
#include "megalith/task/verify.h"
#include "small.h"

namespace megalith::test {
namespace {

using task::Region;
using ::testing::AllOf;
using ::testing::HasSubstr;

Region as(Region region, int operand) {
  region.operand = operand;
  return region;
}

// What the verifier says of tasks on one worker, where every order is right.
std::string complaint(const std::function<void(Small&)>& make) {
  Small s;
  make(s);
  task::TaskGraph graph{.name = "small", .tasks = s.tasks, .buffers = s.buffers};
  graph.workers.resize(1);
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    graph.tasks[t].worker = 0;
    graph.workers[0].push_back(static_cast<int>(t));
    if (graph.tasks[t].tile.empty() && t > 0 && graph.tasks[t].node == graph.tasks[0].node)
      graph.tasks[t].tile = {{"n", static_cast<int64_t>(t), static_cast<int64_t>(t) + 1}};
  }
  for (task::Task& task : graph.tasks)
    if (task.tile.empty()) task.tile = {{"n", 0, 1}};
  for (task::Buffer& buffer : graph.buffers) {
    buffer.memory = task::Memory::state;
    buffer.bytes = buffer.shape[0] * 4;
  }
  const std::string text = task::verify(graph).text();
  EXPECT_EQ(task::verify(task::from_json(task::to_json(graph))).text(), text) << "of the file";
  return text;
}

// y = x w^T with y and x one buffer: the second task reads what the first has overwritten.
TEST(VerifyInPlace, TilesThatReadWhatOthersWrite) {
  const std::string text = complaint([](Small& s) {
    const int x = s.buffer("x", 64);
    s.task("linear[n=0:32]", {s.whole(x)}, {s.part(x, 0, 32)});
    s.tile("linear[n=32:64]", {s.whole(x)}, {s.part(x, 32, 64)});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("in place: task \"linear[n=0:32]\" reads [0:64] of buffer \"x\", and task "
                                    "\"linear[n=32:64]\" of the same node writes [32:64] of it"),
                          HasSubstr("a node's inputs are what they were before it began")));
}

// A neighbour's tile is enough.
TEST(VerifyInPlace, AHaloIsRead) {
  EXPECT_THAT(complaint([](Small& s) {
                const int x = s.buffer("x", 64);
                s.task("blur[n=0:32]", {s.part(x, 0, 33)}, {s.part(x, 0, 32)});
                s.tile("blur[n=32:64]", {s.part(x, 32, 64)}, {s.part(x, 32, 64)});
              }),
              HasSubstr("task \"blur[n=0:32]\" reads [0:33] of buffer \"x\""));
}

TEST(VerifyInPlace, OneTaskThatReadsMoreThanItWrites) {
  EXPECT_THAT(
      complaint([](Small& s) {
        const int x = s.buffer("x", 64);
        s.task("linear", {s.whole(x)}, {s.part(x, 0, 32)});
      }),
      AllOf(HasSubstr("in place: task \"linear\" reads [0:64] of buffer \"x\" and writes [0:32] of it: it may read "
                      "there what it has written already; let it write another buffer"),
            HasSubstr("give both regions its number (\"operand\")")));
}

TEST(VerifyInPlace, TwoOperandsOfOneTask) {
  EXPECT_THAT(
      complaint([](Small& s) {
        const int x = s.buffer("x", 64);
        s.task("square", {as(s.whole(x), 0)}, {as(s.whole(x), 2)});
      }),
      HasSubstr("reads [0:64] of buffer \"x\" and writes [0:64] of it, as operands 0 and 2: it may read there"));
  EXPECT_THAT(complaint([](Small& s) {
                const int x = s.buffer("x", 64);
                s.task("heads[n=0:32]", {}, {as(s.part(x, 0, 32), 1)});
                s.tile("heads[n=32:64]", {as(s.part(x, 0, 32), 0)}, {});
              }),
              HasSubstr("task \"heads[n=32:64]\" reads [0:32] of buffer \"x\", and task \"heads[n=0:32]\""));
}

TEST(VerifyInPlace, OneBufferAsTwoOutputs) {
  const auto caches = [](Region k, Region v) {
    return complaint([&](Small& s) {
      s.buffer("cache", 64);
      s.task("append", {}, {k, v});
    });
  };
  const Region whole = {0, {{0}, {64}}}, part = {0, {{8}, {16}}}, other = {0, {{32}, {64}}};
  EXPECT_THAT(caches(whole, whole), HasSubstr("task \"append\" writes [0:64] of buffer \"cache\" and also [0:64] of "
                                              "it: it writes there twice, in no order that is known"));
  EXPECT_NE(caches(whole, part), "");
  EXPECT_NE(caches(as(part, 1), as(whole, 2)), "");
  EXPECT_EQ(caches(part, other), "");
  EXPECT_EQ(caches(as(whole, 1), as(whole, 1)), "") << "one operand, by two instructions";
  // Boxes are wider than what is written: the two halves of a rotation, head by head.
  EXPECT_EQ(caches({0, {{0}, {48}}}, {0, {{16}, {64}}}), "");
}

TEST(VerifyInPlace, ElementByElementIsFine) {
  EXPECT_EQ(complaint([](Small& s) {
              const int x = s.buffer("x", 64), y = s.buffer("y", 64);
              s.task("add[n=0:32]", {s.part(x, 0, 32), s.part(y, 0, 32)}, {s.part(x, 0, 32)});
              s.tile("add[n=32:64]", {s.part(x, 32, 64), s.part(y, 32, 64)}, {s.part(x, 32, 64)});
            }),
            "");
}

// A recurrence: the operator's own loop kernel says in which order it goes through its operand.
TEST(VerifyInPlace, OneOperandIsItsOwnBusiness) {
  EXPECT_EQ(complaint([](Small& s) {
              const int x = s.buffer("x", 64);
              s.task("scan[n=0:32]", {as(s.part(x, 0, 32), 1)}, {as(s.part(x, 0, 32), 1)});
              s.tile("scan[n=32:64]", {as(s.part(x, 31, 64), 1)}, {as(s.part(x, 32, 64), 1)});
            }),
            "");
}

// Other nodes, and tasks that are no tiles, read what was written before them.
TEST(VerifyInPlace, OtherNodesMayReadAndWrite) {
  EXPECT_EQ(complaint([](Small& s) {
              const int x = s.buffer("x", 64), y = s.buffer("y", 64);
              s.task("a", {}, {s.whole(x)});
              s.task("b", {s.whole(x)}, {s.whole(y)});
              s.task("c", {s.whole(y)}, {s.part(x, 0, 32)});
              s.task("d", {s.whole(x)}, {});
            }),
            "");
  Small s;
  const int x = s.buffer("x", 64, task::Memory::state);
  s.task("first", {}, {s.part(x, 0, 32)});
  s.tile("second", {s.part(x, 0, 32)}, {s.part(x, 32, 64)});
  EXPECT_EQ(task::verify(s.plan(1)).text(), "") << "without tiles nothing says that they are one operator's";
}

}  // namespace
}  // namespace megalith::test
