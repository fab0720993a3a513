#include "megalith/task/arena.h"

#include <gtest/gtest.h>

#include "model_like.h"
#include "small.h"

namespace megalith::test {
namespace {

const task::Buffer& buffer(const task::TaskGraph& graph, int b) { return graph.buffers[static_cast<size_t>(b)]; }

bool share(const task::TaskGraph& graph, int a, int b) {
  const task::Buffer &x = buffer(graph, a), &y = buffer(graph, b);
  return x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
}

// A chain x0 -> x1 -> ... of whole-buffer steps.
Small chain(int length) {
  Small s;
  for (int i = 0; i <= length; ++i) s.buffer("x" + std::to_string(i));
  s.task("t0", {}, {s.whole(0)});
  for (int i = 1; i <= length; ++i) s.task("t" + std::to_string(i), {s.whole(i - 1)}, {s.whole(i)});
  return s;
}

TEST(Arena, AChainNeedsTwoBuffers) {
  for (int num_workers : {1, 3}) {
    const task::TaskGraph graph = chain(6).plan(num_workers);
    EXPECT_EQ(graph.arena_bytes, 128);
    EXPECT_FALSE(share(graph, 0, 1)) << "a task reads one and writes the other";
    EXPECT_TRUE(share(graph, 0, 2));
  }
}

TEST(Arena, OffsetsAreAligned) {
  Small s;
  for (int i = 0; i < 4; ++i) s.buffer("x" + std::to_string(i), 1 + 5 * i);
  s.task("t", {}, {s.whole(0), s.whole(1), s.whole(2), s.whole(3)});
  const task::TaskGraph graph = s.plan(1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(buffer(graph, i).offset % 64, 0);
  EXPECT_EQ(graph.arena_bytes, 4 * 64);
}

TEST(Arena, BranchesThatMayOverlapInTimeDoNotShare) {
  Small s;
  const int a = s.buffer("a"), b = s.buffer("b"), ra = s.buffer("ra", 1), rb = s.buffer("rb", 1);
  s.task("write_a", {}, {s.whole(a)});
  s.task("write_b", {}, {s.whole(b)});
  s.task("read_a", {s.whole(a)}, {s.whole(ra)});
  s.task("read_b", {s.whole(b)}, {s.whole(rb)});
  EXPECT_FALSE(share(s.plan(2), a, b));
}

TEST(Arena, ListOrderMaySeparateLives) {
  Small s;
  const int a = s.buffer("a"), b = s.buffer("b");
  s.task("write_a", {}, {s.whole(a)});
  s.task("read_a", {s.whole(a)}, {});
  s.task("write_b", {}, {s.whole(b)});
  s.task("read_b", {s.whole(b)}, {});
  EXPECT_TRUE(share(s.plan(1), a, b));
  EXPECT_FALSE(share(s.plan(2), a, b)) << "on two workers nothing orders them";
}

TEST(Arena, WhatIsReadBeforeItIsWrittenIsKept) {
  Small s;
  const int carry = s.buffer("carry"), x = s.buffer("x"), y = s.buffer("y");
  s.task("use", {s.whole(carry)}, {s.whole(x)});
  s.task("half", {}, {s.part(carry, 0, 8)});
  s.task("next", {s.whole(x)}, {s.whole(y)});
  task::PlanReport report;
  const task::TaskGraph graph = task::plan(s.tasks, s.buffers, {.name = "kept"}, &report);
  EXPECT_EQ(report.arena.num_kept, 1);
  EXPECT_FALSE(share(graph, carry, x));
  EXPECT_FALSE(share(graph, carry, y));
}

TEST(Arena, StateAndConstantsLieElsewhere) {
  Small s;
  const int state = s.buffer("state", 1000, task::Memory::state),
            weight = s.buffer("weight", 1000, task::Memory::constant);
  const int x = s.buffer("x");
  s.task("t", {s.whole(weight)}, {s.whole(state), s.whole(x)});
  const task::TaskGraph graph = s.plan(1);
  EXPECT_EQ(graph.arena_bytes, 64);
  EXPECT_EQ(buffer(graph, state).offset, 0);
  EXPECT_EQ(buffer(graph, weight).bytes, 4000);
}

TEST(Arena, LayersOfAModelReuseTheSameBytes) {
  task::PlanReport few, many;
  ModelLike a(8, {.layers = 2}), b(8, {.layers = 12});
  task::plan(a.tasks, a.buffers, a.options, &few);
  task::plan(b.tasks, b.buffers, b.options, &many);
  EXPECT_EQ(few.arena.bytes, many.arena.bytes);
  EXPECT_GT(many.arena.bytes_without_reuse, 3 * few.arena.bytes_without_reuse / 2);
}

}  // namespace
}  // namespace megalith::test
