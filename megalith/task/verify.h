// The verifier: proves that a task graph is sound, always, before anything runs it. It shares nothing with planning but
// task_graph.h, and how many chunks weights take (stream_chunks.h, which the runtime counts again), so that a mistake
// there cannot hide itself here; and it judges graphs that people edited, too.
//
// What is proved
//   structure   indices, names, shapes, sizes and counts fit together; constants are never written.
//   deadlock    one iteration, simulated, runs to its end. That is enough for all: counters only grow and lists are
//               fixed, so what can run stays able to run, and the outcome does not depend on speeds; edges never lead
//               back to an earlier iteration, so a cycle lies within one; and once an iteration is complete every wait
//               of lag 1 on it and the gate hold. A task with a partner ends when the partner has begun: when that one's turn
//               in its list has come and its waits hold. That, too, stays so once it is so.
//   partners    are two tasks of a node on workers 2 i and 2 i + 1, with tiles that follow each other along one axis. So each
//               reads what the other one does of all that lies along the other axes, and no order with other tasks is
//               missing: what one does for the other it reads, and reads before it ends.
//   hazards     of two accesses to the same element, one of them a write, the first in the program happens before the
//               second; and every access to a buffer before or after all accesses to a buffer with bytes in common (one
//               of the two a write; by whole buffers). Two scatters of one node and iteration without a common row are
//               no such pair. Happens-before is list order, gate, and full waits; vector clocks over the workers answer
//               it.
//   shared bytes  what a task reads from an arena buffer was not overwritten meanwhile through another buffer with
//               bytes in common, even where everything is ordered.
//   in place    what one operand of a node reads, no task of the node writes as another operand. Where a region does not
//               say which operand it is, a task may read what it writes if that is all it reads there: element by
//               element, as a sum in place does.
//   streams     of the weights that a node takes from streams each element is in one task's part, and each part is what
//               its task reads of them; the chunks of a worker's tasks follow each other as its tasks do, with no gap, so
//               that the worker that counts chunks as they come is always at its own.
//   overrun     a counter does not tell iterations apart: a fast signaller's next signal could stand in for a slow
//               one's. For every event with a full wait and every signaller A: either all signallers' runs of iteration
//               i precede A's run of i + 1, or all full waiters for iteration i do. Then a full wait means what
//               task_graph.h says: take the first wait (in time) that held without a signal B of its iteration. All
//               edges used before it were true ones. The count was reached, so some A has signalled once too often, in
//               i + 1; if B precedes that run of A, then B's writes are visible through A's signal; if the waiter does,
//               it had run already. Either is a contradiction.
//
// Why two iterations suffice. Edges go from iteration i to i or i + 1 and are the same for every i; so whether (x, i)
// precedes (y, i) or (y, i + 1) is the same for every i, and is decided by paths within i and i + 1. For j >= i + 2:
// the conflict makes (x, i) precede (y, i + 1), and list order makes that precede (y, j). The checks are made in the
// second of two iterations, where both kinds of predecessors exist.
//
// Where it is stricter than need be (it may refuse a graph that happens to be harmless): a wait for part of an event's
// signals orders nothing; two buffers that share a byte conflict as wholes; overrun counts signallers one by one. And
// an exchange that is cut into too many cells to be looked at is refused unseen, as is a graph whose regions meet in so
// many ways that looking at them would take minutes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/task/task_graph.h"

namespace megalith::task {

enum class FindingKind {
  structure,
  constant_written,
  deadlock,
  overrun,
  unordered,
  overwritten,
  in_place,
  stream,
  change  // of kernels that take turns (task/verify_changes.h)
};
/// "structure", "constant written", "deadlock", "overrun", "unordered", "overwritten", "in place", "stream", "change".
std::string_view finding_kind_name(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::structure;
  std::vector<int> tasks;  // those that the message names, in its order
  int event = -1, buffer = -1;
  std::string message;
};

struct VerifyResult {
  std::vector<Finding> findings;  // the first few; a broken graph tends to be broken everywhere
  int64_t num_orders_checked = 0;

  bool ok() const { return findings.empty(); }
  /// One line a finding: "unordered: tasks ...".
  std::string text() const;
};

/// Never throws on a bad graph and assumes nothing about it.
///   if (VerifyResult result = verify(graph); !result.ok()) throw UserError(result.text());
VerifyResult verify(const TaskGraph& graph);

}  // namespace megalith::task
