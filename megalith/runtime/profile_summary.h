// What a profile says: where the time of a step goes, per worker, per operator and per wait, and which of it bounds the
// step. Made from records alone, so the same for every target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megalith/runtime/profile_rings.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

/// All times are averages over the steps, in nanoseconds; those of operators and waits are sums over the workers.
struct ProfileSummary {
  struct Worker {
    double busy_ns = 0;     // in bodies, their memory accesses and signals included
    double waiting_ns = 0;  // for events
    double gate_ns = 0;     // after its last task of a step, and before its first of the next
    // Of those, when its stream of weights asked memory for nothing, having no room.
    double idle_waiting_ns = 0, idle_busy_ns = 0;
  };
  struct Operator {
    std::string name;
    double busy_ns = 0;
    double tasks = 0;       // per step
    double longest_ns = 0;  // task of all
    double uneven_ns =
        0;               // the busiest worker's time beyond the average one's, node by node: what even tiles would win
    double idle_ns = 0;  // while its tasks waited or ran the stream of weights was idle
  };
  struct Waiting {
    std::string waiter, cause;   // operators: whose task waited, and whose signal or value it waited for the longest
    std::string through;         // "events", or "flags of layer.*.h": the tensor whose values came last
    double waiting_ns = 0;       // summed over the workers
    double after_signal_ns = 0;  // of it, what passed after that signal: the protocol's own share
  };

  bool has_streams = false;  // else nothing is said of them
  std::optional<ClockRate> clock_rate;
  int64_t steps = 0;       // that the averages are of
  int64_t slow_steps = 0;  // set aside, because they took more than twice the median: something else had the machine
  double step_ns = 0;      // mean
  double median_step_ns = 0, longest_step_ns = 0;  // of all, slow ones too
  double tail_ns = 0;                              // from the end of the average worker's list to the end of the step
  std::vector<Worker> workers;
  std::vector<Operator> operators;  // most time first
  std::vector<Waiting> waits;       // likewise; the gate's among them

  double busy_share() const;  // of steps times workers
  double waiting_share() const;
  double gate_share() const;
  double idle_waiting_share() const;  // of the streams
  double idle_busy_share() const;
  /// One sentence: what bounds the step.
  std::string bound() const;
};

/// `operators`: per node of the graph its operator's name. Looks at the steps of which every worker's records are all
/// there; UserError if there are fewer than two.
ProfileSummary profile_summarize(const Profile& profile, const task::TaskGraph& graph,
                                 const std::vector<std::string>& operators);

/// The profile in Chrome's trace event format, which Perfetto and chrome://tracing open: a track per worker, tasks and
/// waits as slices, and an arrow from the last signal that a wait was for, or from the last writer of what was waited for
/// by its flags.
std::string profile_trace(const Profile& profile, const task::TaskGraph& graph,
                          const std::vector<std::string>& operators);

}  // namespace megalith::runtime
