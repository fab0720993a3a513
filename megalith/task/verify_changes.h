// The verifier, for several kernels of one model that take turns: proves that one can go on where another has ended. Each
// kernel's own task graph is proved by task/verify.h; here is what only two of them together can have wrong.
//
// A kernel ends between two iterations, and it ends as a whole: the one that follows finds every task of the last iteration
// done. What it finds beyond that lies in states and constants. Arenas, exchanges, counters and status words are each kernel's
// own, and a launch sets them as before a first iteration and looks at them (runtime/launch_state.h).
//
// What is proved
//   loads       each number of tokens that may wait is exactly one kernel's, and none is chosen for more than it has rows.
//   shared      every state and every constant is there for all kernels, with the same dtype, shape and layout. Only of a state
//               with a line for each row, or the like, the number of lines may differ, and of a constant, which is packed for
//               each kernel, the layout. What one kernel writes all do, and what one reads.
//   carried     what a task reads of an arena or an exchange was written before in the same iteration, or by the task itself as
//               the same operand: so nothing is lost with the kernel. The same of a state with another number of lines in
//               another kernel, unless the change lays it out.
//   border      an iteration ends with one task, which signals the gate and writes, last of all tasks and wholly, what a change
//               lays out: the word that ends the loop and the next iteration's rows. So whatever does it at a change, the host
//               or the same task alone (megalith_take_over), writes all that the next iteration's tasks find.
// What is wrong with one kernel's meaning, such as two caches that have changed places in it, is for task/match.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megalith/graph/schedule.h"
#include "megalith/task/task_graph.h"
#include "megalith/task/verify.h"

namespace megalith::task {

/// A kernel, as what it is chosen for. It works while more than `least` tokens wait, and at most `most`.
struct Turn {
  const TaskGraph* tasks = nullptr;        // which verify() accepts
  std::span<const graph::Layout> layouts;  // per buffer
  int64_t rows = 0;                        // tokens at a time
  int64_t least = 0, most = 0;
};

/// The states that a change is about, by name.
struct ChangeTables {
  std::string rows, samples, requests;  // with a line for each row, sample and sequence
  std::vector<std::string>
      lines;         // that have as many lines as a kernel has of something; `rows` and `samples` among them
  std::string stop;  // ends the loop
  std::vector<std::string> laid_out;  // what a change writes, `stop` among it
};
/// The bound of a load without one.
constexpr int64_t kAnyLoad = 0x7fffffff;

/// `turns`: by rows, ascending. The last one has the memory that all use. Findings are of kind `change`, and name kernels by
/// their rows.
VerifyResult verify_changes(std::span<const Turn> turns, const ChangeTables& tables);

}  // namespace megalith::task
