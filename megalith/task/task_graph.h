// The task graph: all tasks and events of one iteration, who runs what, and where every buffer lies. It is what the
// verifier proves, what `megalith inspect --stage tasks --json` writes, and what a persistent kernel runs.
//
// Meaning
//   * A worker runs the tasks of its list in order, iteration after iteration. Before a task it waits until each of the
//     task's waits holds, then runs it, then signals each of the task's events once.
//   * An event is a counter that only grows. `arrivals` signals reach it per iteration. A wait {event, count, lag} of a
//     task in iteration i (from 0) holds once the counter is at least arrivals * (i - lag) + count. With count =
//     arrivals that is: all signals of iteration i - lag are in, provided that no signaller can be an iteration ahead
//     of another (the verifier demands it: overrun). A smaller count says only that *some* count of them are; the
//     verifier draws no order from it. For i < lag the wait holds at once.
//   * lag is 0 (this iteration) or 1 (the iteration before: what the token loop carries).
//   * If there is a gate, no worker begins iteration i before the gate event has all its arrivals of iteration i - 1
//     (a wait of lag 1 at the head of every worker's list).
//   * A buffer is memory. Buffers of memory `arena` lie at `offset` in one arena and may share bytes; every other
//     buffer has memory of its own. A region is a box in a buffer's row-major index space.
//   * A buffer of memory `exchange` carries its flag in the data: every element is written once an iteration, together
//     with the iteration's number, and a task that reads it waits, element by element, until the one of its own
//     iteration is there. No event is needed for that. Seeing one element orders nothing but that element.
//   * The tasks of one node with tiles are one operator's work, cut into pieces. An operator means that its inputs are
//     as they were before it began. So what one operand reads no other may write, in the same task or in another of the
//     node: neither a body nor the order of its tasks cares. Regions that name the same operand are its own business:
//     its loop kernel says in which order it reads and writes there.
//   * A write may be a scatter: where its elements go, tables say, so its box is wherever they may go. It names the rows
//     of its node that it scatters, and rows go to different elements: two writes of one node in one iteration that have
//     no row in common touch none in common. To everything else it is a write of its box.
//
//   * Two tasks of a node may be partners: workers 2 i and 2 i + 1 run them at the same time. Neither ends before the other
//     has begun, and what they hand each other meanwhile lies in no buffer. A task still reads and writes what its tile says,
//     of which its partner does a part; so what one reads the other reads as well, but for weights of a stream: of those
//     each takes half of the columns of both tasks' rows.
//
//   * A worker has a stream of weights: chunks of 16 KB, one behind the other, iteration after iteration the same ones.
//     What a task takes from there it does not read from its buffers. A node that takes weights so has a WeightStream,
//     which says what a chunk holds and in which order the chunks of a task come (kernels/stream_order.h), and each of
//     its tasks a StreamPart, which says which weights, and where in its worker's stream they begin. The first chunk
//     of a task is behind the last one of the task before it in the list. So all of every stream is said here: what
//     packs and what reads it only counts.
//
// A task graph is sound if, for any speeds of the workers, (1) no wait is for ever, (2) of any two accesses to the same
// byte from two tasks, one of them a write, one happens before the other by the graph's rules, in the same order in
// which the program (tasks in index order, iteration after iteration) has them, (3) what a task reads from the arena
// was not overwritten through another buffer that shares its bytes, (4) no task reads, as another operand, what its
// node writes, and (5) the chunks that a task takes are its own, and hold what it reads. task/verify.h proves this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/loop/footprint.h"

namespace megalith::task {

struct Region {
  int buffer = 0;  // index into TaskGraph::buffers
  loop::Box box;
  int operand = -1;  // of the node's operator, by number, where that operand is both read and written; -1: not said
  int64_t row_begin = 0, row_end = 0;  // of a scatter; else 0

  bool is_scatter() const { return row_end > row_begin; }
  bool operator==(const Region&) const = default;
};

struct Wait {
  int event = 0;
  int64_t count = 0;
  int lag = 0;
};

/// The weights that the tasks of a node take from their workers' streams.
struct WeightStream {
  int node = 0;
  std::vector<int> matrices;  // buffers: constants of one shape, (rows, columns)
  stream::Order order = {};   // of the rows of a task; order.chunks cover the columns of a task
  int64_t quant_columns = 0;  // columns that share a scale, of weights that come in int8 (kernels/int8_layout.h)

  bool operator==(const WeightStream&) const = default;
};

/// What a task takes of them: some rows of each matrix, over order.chunks chunks of columns.
struct StreamPart {
  int64_t row_begin = 0, row_end = 0;
  int64_t column_chunk = 0;  // the first of its chunks of columns, where tasks divide the columns among them, too
  int64_t first_chunk = 0;   // of its worker's stream
};

/// One block's worth of work of one operator. Never knows which worker runs it.
struct Task {
  std::string name;               // "layer.3.down[n=0:128]", for people
  int node = 0;                   // index of the graph's node this is a tile of
  std::vector<loop::Range> tile;  // the tiled inames' ranges
  std::vector<Region> reads, writes;
  std::vector<Wait> waits;
  std::vector<int> signals;  // events, each at most once
  int worker = -1;
  int partner = -1;    // the task that is its partner, or -1
  int side = -1;       // while it is placed: of workers by number, even or odd ones, near what it reads; -1: any
  double cost_ns = 0;  // estimate, for placement
  std::optional<StreamPart> stream;  // of tasks whose node has a WeightStream
};

struct Event {
  std::string name;
  int64_t arrivals = 0;  // signals per iteration
};

/// arena: this iteration's values; constant: weights; state: lives on from one iteration to the next; exchange: this
/// iteration's values, each with its flag.
enum class Memory { arena, constant, state, exchange };
constexpr const char* kMemoryNames[] = {"arena", "constant", "state", "exchange"};  // in its order

struct Buffer {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  Memory memory = Memory::arena;
  int64_t offset = 0;  // bytes from the arena's start; 0 for other memory
  int64_t bytes = 0;   // of its shape and dtype; twice that in an exchange, for the flags
};

/// Tasks stand in program order: a sequential run in index order, iteration after iteration, is what the graph means.
struct TaskGraph {
  std::string name;
  std::vector<Task> tasks;
  std::vector<Event> events;
  std::vector<std::vector<int>> workers;  // per worker the indices of its tasks, in the order it runs them
  std::vector<Buffer> buffers;
  std::vector<WeightStream> streams;  // in the order of their nodes
  int64_t arena_bytes = 0;
  std::optional<int> gate;  // event
};

}  // namespace megalith::task
