// Waits, signals and events: the fewest that keep every dependence, on top of what the workers' lists and the gate
// order anyway. Last of the planning steps, because it needs to know who runs what and which bytes are shared.
//
// A set of tasks that something must come after becomes an event; whoever comes after it waits for all of it. Of the
// set only the tasks signal that nothing else in it implies (on each worker the last one; none that precedes another).
// A wait is dropped if the list order and the task's other waits imply it, and events with the same waiters become one.
// All of it is decided by vector clocks in the second of two iterations, where paths through the iteration before are
// seen, too.
//
// Counters do not tell iterations apart, so a fast signaller's next signal must not stand in for a slow one's. It
// cannot: every waiter of an event conflicts with each of its signallers, so the hazard carried by the loop puts the
// signaller's next run after the waiter. The verifier checks this for every graph, however made.
#pragma once

#include <cstdint>
#include <optional>

#include "megalith/task/order.h"
#include "megalith/task/task_graph.h"

namespace megalith::task {

struct EventReport {
  int64_t num_events = 0, num_waits = 0, num_waits_carried = 0, num_signals = 0;
  int64_t num_candidates = 0;  // (task, set) pairs before reduction: what a wait per dependence would cost
};

/// The task that ends the iteration for everybody (it decides whether there is a next token) must come after the first
/// task of every worker, so that no worker sees its verdict of this iteration when it begins this iteration. Adds that
/// for the workers whose first task precedes `gate_task` in the program; mostly the data says so anyway.
void add_gate_dependence(Dependences& dependences, const std::vector<std::vector<int>>& workers, int gate_task);

/// Fills Task::waits, Task::signals, TaskGraph::events and TaskGraph::gate of a graph that has tasks, workers and
/// placed buffers. `order` is that of the same lists and dependences. With `gate_task` the graph gets a gate event with
/// one arrival, signalled by that task.
void make_events(TaskGraph& graph, const Dependences& dependences, const Order& order, std::optional<int> gate_task,
                 EventReport* report = nullptr);

}  // namespace megalith::task
