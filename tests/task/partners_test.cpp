// Tasks that two workers run together: where they are placed, and what the verifier says of those that were edited.
#include <gmock/gmock.h>

#include <functional>

#include "megalith/base/error.h"
#include "megalith/task/bytes.h"
#include "megalith/task/json.h"
#include "megalith/task/place.h"
#include "megalith/task/stream_chunks.h"
#include "megalith/task/verify.h"
#include "small.h"

namespace megalith::test {
namespace {

using task::TaskGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A product of 128 rows of 512 columns of weights in two groups, each of which two tasks have together; and one task
/// before it, of another node, on each worker.
TaskGraph product() {
  TaskGraph graph{.name = "product"};
  graph.buffers = {{.name = "w",
                    .dtype = DType::bf16,
                    .shape = {128, 512},
                    .memory = task::Memory::constant,
                    .bytes = 128 * 512 * 2}};
  graph.streams = {{.node = 1, .matrices = {0}, .order = {0, 64, 2, 1, 1, true}}};
  graph.tasks = {{.name = "before", .worker = 0}, {.name = "beside", .worker = 1}};
  for (int i = 0; i < 4; ++i) {
    const int64_t row = 32 * i, group = row / 64 * 64;
    graph.tasks.push_back({.name = fmt::format("product[n={}:{}]", row, row + 32),
                           .node = 1,
                           .tile = {{"n", row, row + 32}},
                           .reads = {{0, {{row, 0}, {row + 32, 512}}}},
                           .worker = i % 2,
                           .partner = 2 + (i ^ 1),
                           .stream = task::StreamPart{group, group + 64, i % 2 * 2, i / 2 * 2}});
  }
  graph.workers = {{0, 2, 4}, {1, 3, 5}};
  return graph;
}

std::string finding(const std::function<void(TaskGraph&)>& edit) {
  TaskGraph graph = product();
  edit(graph);
  return task::verify(graph).text();
}

TEST(Partners, AreSoundOnNeighboursInOneOrder) {
  EXPECT_EQ(finding([](TaskGraph&) {}), "");
  // Where each one's turn comes does not matter.
  EXPECT_EQ(finding([](TaskGraph& g) { g.workers[0] = {2, 0, 4}; }), "");
}

TEST(Partners, ThatWaitForEachOtherForEverAreFound) {
  const std::string text = finding([](TaskGraph& g) {
    g.workers[1] = {1, 5, 3};
    g.tasks[5].stream->first_chunk = 0, g.tasks[3].stream->first_chunk = 2;
  });
  EXPECT_THAT(text,
              HasSubstr("deadlock: task \"product[n=0:32]\" on worker 0 waits for its partner \"product[n=32:64]\" "
                        "to begin after task \"product[n=96:128]\" in the list of worker 1"));
}

// One has its turn when the other one, through an event, waits for it to have ended.
TEST(Partners, ThatWaitForEachOthersEndAreFound) {
  const std::string text = finding([](TaskGraph& g) {
    g.events = {{"half", 1}};
    g.tasks[2].signals = {0};
    g.tasks[3].waits = {{0, 1, 0}};
  });
  EXPECT_THAT(text, HasSubstr("deadlock: "));
  EXPECT_THAT(text, HasSubstr("waits for its partner \"product[n=32:64]\" to begin"));
}

TEST(Partners, ThatAreNoneAreNamed) {
  EXPECT_THAT(finding([](TaskGraph& g) { g.tasks[2].partner = -1; }),
              HasSubstr("task \"product[n=0:32]\" shares its weights with a partner, as its node says, and has none"));
  EXPECT_THAT(finding([](TaskGraph& g) { g.tasks[2].partner = 9; }), HasSubstr("has task 9 of 6 as its partner"));
  EXPECT_THAT(finding([](TaskGraph& g) { g.tasks[2].partner = 5; }),
              HasSubstr("has \"product[n=96:128]\" as its partner, and that one has 4, want each other"));
  EXPECT_THAT(finding([](TaskGraph& g) { g.tasks[0].partner = 1, g.tasks[1].partner = 0; }),
              HasSubstr("want two of one node, whose stream is shared by partners"));
  EXPECT_THAT(finding([](TaskGraph& g) {
                g.tasks[2].partner = 5, g.tasks[5].partner = 2, g.tasks[3].partner = 4, g.tasks[4].partner = 3;
              }),
              HasSubstr("want tiles that follow each other along one axis"));
}

TEST(Partners, OnWorkersThatAreNoNeighboursAreNamed) {
  EXPECT_THAT(finding([](TaskGraph& g) {
                g.workers = {{0}, {1, 3, 5}, {2, 4}};
                g.tasks[2].worker = g.tasks[4].worker = 2;
              }),
              HasSubstr("are partners on workers 2 and 1, want neighbours: 2 i and 2 i + 1"));
}

TEST(Partners, TakeHalfOfTheColumnsOfBothsRows) {
  EXPECT_THAT(
      finding([](TaskGraph& g) { g.tasks[3].stream->column_chunk = 0; }),
      HasSubstr("take rows 0:64 from chunk 0 of columns on and rows 0:64 from chunk 0 on, want the same rows, from "
                "0 and from 2 on"));
  EXPECT_THAT(finding([](TaskGraph& g) { g.tasks[3].reads[0].box.hi[0] = 96; }),
              HasSubstr("takes [32:64, 0:512] of \"w\" from its stream and reads [32:96, 0:512], want the same"));
  EXPECT_THAT(finding([](TaskGraph& g) { g.streams[0].order.chunks = 4; }),
              HasSubstr("is shared by partners: want one matrix, turns of one group and half of 4 chunks of columns"));
}

TEST(Partners, ComeBackFromFilesAsTheyWere) {
  const TaskGraph graph = product();
  const std::string text = task::to_json(graph);
  EXPECT_THAT(text, HasSubstr("\"partner\": 3"));
  EXPECT_THAT(text, HasSubstr("\"partners\": 1"));
  const TaskGraph of_text = task::from_json(text), of_bytes = task::from_bytes(task::to_bytes(graph));
  for (const TaskGraph* again : {&of_text, &of_bytes}) {
    EXPECT_EQ(again->streams, graph.streams);
    for (size_t t = 0; t < graph.tasks.size(); ++t) EXPECT_EQ(again->tasks[t].partner, graph.tasks[t].partner);
  }
}

TEST(Partners, ArePlacedOnNeighboursSideBySide) {
  Small s;
  const int x = s.buffer("x", 64);
  for (int i = 0; i < 10; ++i) s.tile("t" + std::to_string(i), {}, {s.part(x, i, i + 1)});
  for (int i = 0; i < 8; ++i) s.tasks[static_cast<size_t>(i)].partner = i ^ 1;
  const auto dependences = task::find_dependences(s.tasks, s.buffers);
  const auto workers = task::place(s.tasks, dependences, 5);
  // Three pairs of tasks to two pairs of workers, then one more; the last worker has no neighbour.
  EXPECT_THAT(workers, ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7),
                                   ElementsAre(8, 9)));
  try {
    task::place(s.tasks, dependences, 1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "[place] two workers multiply a group of weights together, and there is one: take two or more");
  }
}

}  // namespace
}  // namespace megalith::test
