#include "megalith/task/dependence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <set>

#include "model_like.h"
#include "small.h"
#include "support/mutate_oracle.h"
#include "support/random_task_graph.h"

namespace megalith::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// All tasks that `t` comes after, by one kind of its sets.
std::vector<int> before(const task::Dependences& d, const std::vector<std::vector<int>>& lists, int t) {
  std::set<int> all;
  for (int set : lists[static_cast<size_t>(t)])
    all.insert(d.sets[static_cast<size_t>(set)].begin(), d.sets[static_cast<size_t>(set)].end());
  return {all.begin(), all.end()};
}

TEST(Dependence, ReadAfterWriteAndBackAgain) {
  Small s;
  const int x = s.buffer("x");
  s.task("write", {}, {s.whole(x)});
  s.task("read", {s.whole(x)}, {});
  s.task("again", {}, {s.whole(x)});
  s.task("reread", {s.whole(x)}, {});
  const task::Dependences d = task::find_dependences(s.tasks, s.buffers);
  EXPECT_THAT(before(d, d.within, 0), IsEmpty());
  EXPECT_THAT(before(d, d.within, 1), ElementsAre(0));
  EXPECT_THAT(before(d, d.within, 2), ElementsAre(0, 1));
  EXPECT_THAT(before(d, d.within, 3), ElementsAre(2)) << "task 0 is hidden behind task 2";
  EXPECT_THAT(before(d, d.carried, 0), ElementsAre(2, 3));
  EXPECT_THAT(before(d, d.carried, 1), IsEmpty()) << "task 0 of the same iteration hides all of the last one";
}

TEST(Dependence, BoxesThatDoNotMeetAreFree) {
  Small s;
  const int x = s.buffer("x", 12);
  s.task("a[n=0:4]", {}, {s.part(x, 0, 4)});
  s.tile("a[n=4:8]", {}, {s.part(x, 4, 8)});
  s.tile("a[n=8:12]", {}, {s.part(x, 8, 12)});
  s.task("left", {s.part(x, 0, 5)}, {});
  s.task("right", {s.part(x, 8, 9)}, {});
  s.task("empty", {s.part(x, 3, 3)}, {});
  const task::Dependences d = task::find_dependences(s.tasks, s.buffers);
  EXPECT_THAT(before(d, d.within, 1), IsEmpty());
  EXPECT_THAT(before(d, d.within, 3), ElementsAre(0, 1));
  EXPECT_THAT(before(d, d.within, 4), ElementsAre(2));
  EXPECT_THAT(before(d, d.within, 5), IsEmpty());
}

TEST(Dependence, TilesOfOneNodeMayConflict) {
  Small s;
  const int x = s.buffer("x");
  s.task("sum[k=0:1]", {s.whole(x)}, {s.whole(x)});
  s.tile("sum[k=1:2]", {s.whole(x)}, {s.whole(x)});
  const task::Dependences d = task::find_dependences(s.tasks, s.buffers);
  EXPECT_THAT(before(d, d.within, 0), IsEmpty());
  EXPECT_THAT(before(d, d.within, 1), ElementsAre(0));
}

TEST(Dependence, RowsOfAScatterAreFreeOfEachOther) {
  Small s;
  const int x = s.buffer("x", 16, task::Memory::state);
  s.task("append[t=0:2]", {}, {s.rows(x, 0, 2)});
  s.tile("append[t=2:4]", {}, {s.rows(x, 2, 4)});
  s.tile("append[t=3:5]", {}, {s.rows(x, 3, 5)});
  s.task("read", {s.part(x, 3, 4)}, {});
  s.task("other", {}, {s.rows(x, 7, 8)});
  const task::Dependences d = task::find_dependences(s.tasks, s.buffers);
  EXPECT_THAT(before(d, d.within, 1), IsEmpty());
  EXPECT_THAT(before(d, d.within, 2), ElementsAre(1));
  EXPECT_THAT(before(d, d.within, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(before(d, d.within, 4), ElementsAre(0, 1, 2, 3));
}

TEST(Dependence, APartlyOverwrittenTaskStays) {
  Small s;
  const int x = s.buffer("x", 8);
  s.task("all", {}, {s.whole(x)});
  s.task("half", {}, {s.part(x, 0, 4)});
  s.task("read", {s.whole(x)}, {});
  const task::Dependences d = task::find_dependences(s.tasks, s.buffers);
  EXPECT_THAT(before(d, d.within, 2), ElementsAre(0, 1));
}

// The sets, closed under "comes after", order exactly the conflicting pairs that a look at every byte finds, and pairs
// that follow from those; within an iteration and into the next.
TEST(Dependence, ClosureEqualsThatOfAllConflictingPairs) {
  constexpr size_t kMax = 128;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomTaskList list = random_task_list(seed, {.scatter_probability = seed % 2 == 0 ? 0.7 : 0});
    task::TaskGraph graph{.tasks = list.tasks, .buffers = list.buffers};
    int64_t offset = 0;  // every buffer its own bytes
    for (task::Buffer& buffer : graph.buffers) {
      buffer.bytes = dtype_bytes(buffer.dtype);
      for (int64_t size : buffer.shape) buffer.bytes *= size;
      buffer.offset = offset;
      if (buffer.memory == task::Memory::arena) offset += buffer.bytes;
    }
    graph.arena_bytes = offset;
    const OracleMemory memory(graph);
    const task::Dependences d = task::find_dependences(list.tasks, list.buffers);

    const size_t n = list.tasks.size();
    using Row = std::bitset<kMax>;  // two iterations of up to 60 tasks
    std::vector<Row> sets(2 * n), pairs(2 * n);
    for (size_t y = 0; y < 2 * n; ++y) {
      auto add = [&](std::vector<Row>& rows, size_t x) { rows[y] |= rows[x], rows[y].set(x); };
      for (size_t x = 0; x < y; ++x)
        if (memory.conflict(x % n, y % n, (x < n) == (y < n))) add(pairs, x);
      const int t = static_cast<int>(y % n);
      for (int x : before(d, d.within, t)) add(sets, static_cast<size_t>(x) + (y < n ? 0 : n));
      // A carried set may hold tasks that conflict with no carried pair left out: compare after adding the pairs (x,
      // x).
      if (y >= n)
        for (int x : before(d, d.carried, t)) add(sets, static_cast<size_t>(x));
    }
    for (size_t y = 0; y < 2 * n; ++y) {
      if (y >= n && memory.conflict(y - n, y - n, false)) continue;
      Row own;  // (x, 0) before (x, 1) is list order, not a dependence
      if (y >= n) own.set(y - n);
      EXPECT_EQ(sets[y] & ~own, pairs[y] & ~own) << "seed " << seed << ", instance " << y;
    }
    if (HasFailure()) return;
  }
}

TEST(Dependence, IdenticalLayersShareTheWork) {
  const ModelLike two(8, {.layers = 2}), many(8, {.layers = 20});
  const task::Dependences d2 = task::find_dependences(two.tasks, two.buffers);
  const task::Dependences d20 = task::find_dependences(many.tasks, many.buffers);
  EXPECT_EQ(d2.num_relations, d20.num_relations);
  EXPECT_GT(d20.num_relations_shared, 10 * d2.num_relations);
}

}  // namespace
}  // namespace megalith::test
