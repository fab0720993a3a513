// The launch image: a task graph as the flat arrays that a persistent kernel reads (runtime/protocol.h), with the
// memory of its counters, status words and scratch. It stands between the task graph, which has names and 64-bit sizes,
// and the kernel, which has neither: every narrowing is checked here, once, so that the worker needs no check at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/runtime/flag_places.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/protocol.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

/// What the kernel needs beside the task graph; written by the code generator and by whoever owns the buffers.
struct ImageParts {
  std::vector<u32> bodies;          // per task: its case of the kernel's switch
  std::vector<u32> num_operands;    // per task, or empty where nobody asks
  std::vector<u32> first_chunks;    // per task: its first chunk of its worker's stream; empty without streams
  std::vector<u32> first_operands;  // per task: where its operands begin in `operands`
  std::vector<void*> operands;
  u64 scratch_bytes = 0;               // per worker
  u32 num_iterations = 1;              // 0: until *stop is set
  const i32* stop = nullptr;           // the word that ends the token loop; must outlive the image
  const i32* sizes = nullptr;          // as Launch has them; must outlive the image
  u32 stop_task = kNone;               // the task that writes *stop; kNone: the only one that signals the gate
  std::vector<const void*> exchanges;  // per buffer, where an exchange lies; empty where there are none
  std::vector<std::vector<codegen::CheckText>> checks = {};  // per body
  std::vector<std::string> nodes = {};  // per node: its operator and tensors, for who reads of a fault
};

/// Move-only; launch() stays valid for as long as the image lives, also after a move.
class LaunchImage {
 public:
  /// InternalError naming the task or event if the graph and the parts do not fit together or into the records.
  LaunchImage(const task::TaskGraph& graph, ImageParts parts);
  LaunchImage(LaunchImage&&) = default;
  LaunchImage& operator=(LaunchImage&&) = default;

  const Launch& launch() const { return launch_; }

  /// Between runs only: fresh counters and status words for a run whose iterations are numbered from `first_iteration`.
  void reset(u32 first_iteration = 0);
  void set_num_iterations(u32 num_iterations);  // 0 needs a stop word
  /// Also while a run is going on.
  void set_spin_rounds(u32 rounds) { __atomic_store_n(&launch_.spin_rounds, rounds, __ATOMIC_RELAXED); }
  /// Rings for the workers' profile records (runtime/profile.h), or nullptr; they must outlive the runs.
  void set_profile(ProfileRecord* records, u32 capacity) {
    launch_.profile = records;
    launch_.profile_capacity = capacity;
  }

  const std::string& name() const { return name_; }
  /// Of all workers.
  int64_t scratch_bytes() const { return scratch_.bytes(); }
  const std::string& task_name(u32 task) const { return task_names_[task]; }
  /// What the check of a fault is about, and the node whose task it was in; "" where nobody said.
  codegen::CheckText check_text(const Fault& fault) const;
  std::string node_text(u32 task) const;
  const std::string& event_name(u32 event) const { return event_names_[event]; }
  u32 task_worker(u32 task) const { return task_workers_[task]; }
  u32 event_arrivals(u32 event) const { return event_arrivals_[event]; }
  u32 num_tasks() const { return static_cast<u32>(tasks_.size()); }
  u32 num_events() const { return static_cast<u32>(events_.size()); }
  u32 num_waits() const { return static_cast<u32>(waits_.size()); }
  u32 num_signals() const { return static_cast<u32>(signals_.size()); }
  u32 num_operands() const { return static_cast<u32>(operands_.size()); }
  /// The tasks that signal `event`, in index order; for reports.
  std::vector<u32> event_signallers(u32 event) const;
  const FlagPlaces& flags() const { return flags_; }
  /// How many tasks of its worker's list stand before a task.
  u32 task_position(u32 task) const;

 private:
  void add_task(const task::TaskGraph& graph, u32 index, const ImageParts& parts);

  std::string name_;
  std::vector<std::string> task_names_, node_texts_, event_names_;
  std::vector<std::vector<codegen::CheckText>> checks_;
  std::vector<int> task_nodes_;
  std::vector<u32> task_workers_, event_arrivals_;
  std::vector<TaskRecord> tasks_;
  std::vector<WaitRecord> waits_;
  std::vector<u32> signals_, list_, list_begin_;
  std::vector<void*> operands_;
  FlagPlaces flags_;
  std::vector<EventCounter> events_;
  std::vector<WorkerStatus> status_;
  std::unique_ptr<Control> control_;
  Mapping scratch_;
  Launch launch_{};
};

}  // namespace megalith::runtime
