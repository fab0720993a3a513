// Which schedule of a graph's generated body is the fastest on this machine: each body by itself, in a graph that holds nothing
// but some copies of one of its nodes, compiled once for each schedule that is tried and timed in turn with the others.
//
//   for (const TimedBody& body : tune_bodies(graph_file, {.rows = 1})) ...
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/graph/graph_file.h"
#include "megalith/graph/lower.h"

namespace megalith::engine {

struct TuneOptions {
  std::string target = "cpu";  // or "cuda"
  int num_workers = 0;         // 0: default_num_workers()
  int64_t rows = 1;            // what a dynamic size is, as far as its largest value allows: 1 is a decode step
  int runs = 60;      // of each schedule, the fastest of which counts: what else a machine does only adds to it
  int64_t most = 12;  // schedules that are tried for a body, beside those of `more`
  std::vector<std::string> bodies = {};  // by name; none: all
  /// Schedules that somebody wrote: body -> steps. UserError if one is not legal.
  std::map<std::string, std::vector<std::string>> more = {};
  std::function<bool()> cancelled = {};  // asked between compilations and runs
};

struct TimedSchedule {
  std::string steps;
  double seconds = 0;  // the node once; infinite where `reason` says why it did not run
  std::string reason = {};
};

struct TimedBody {
  graph::LoweredKernel kernel;
  std::string node;                       // that was timed
  std::vector<TimedSchedule> tried = {};  // the proposed one first; empty where `reason` says why none was timed
  std::string reason = {};

  const TimedSchedule& proposed() const { return tried.front(); }
  /// The fastest, if it is faster than the proposed one by more than what runs differ by; else that one.
  const TimedSchedule& best() const;
};

/// In the graph's order. `done` is called after each body; false ends it. What is cancelled is left out. UserError for a name
/// that no generated body has.
std::vector<TimedBody> tune_bodies(const graph::GraphFile& file, const TuneOptions& options,
                                   const std::function<bool(const TimedBody&)>& done = {});

}  // namespace megalith::engine
