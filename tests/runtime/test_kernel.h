// A hand-made task graph whose task bodies are C++ functions of the test: what the runtime tests run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megalith/runtime/cpu/worker.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/launcher.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

using TaskFunction = std::function<void(u32 iteration)>;

/// The worker entry of all tests: each task's only operand is its function.
inline void test_entry(const Launch* launch, u32 worker) {
  worker_run(*launch, worker, [](const TaskRecord&, void* const* operands, u8*, u32 iteration) {
    (*static_cast<const TaskFunction*>(operands[0]))(iteration);
  });
}

struct TestKernel {
  task::TaskGraph graph;
  std::vector<std::unique_ptr<TaskFunction>> functions;  // per task
  u32 num_iterations = 1;
  const i32* stop = nullptr;

  explicit TestKernel(int num_workers) {
    graph.name = "test";
    graph.workers.resize(num_workers);
  }

  int event(const std::string& name) {
    graph.events.push_back({name, 0});
    return static_cast<int>(graph.events.size()) - 1;
  }

  /// Waits are for all arrivals; build() fills in how many that is.
  int task(
      const std::string& name, int worker, std::vector<task::Wait> waits, std::vector<int> signals,
      TaskFunction function = [](u32) {}) {
    const int index = static_cast<int>(graph.tasks.size());
    for (int event : signals) ++graph.events[event].arrivals;
    graph.tasks.push_back({.name = name, .waits = std::move(waits), .signals = std::move(signals), .worker = worker});
    graph.workers[worker].push_back(index);
    functions.push_back(std::make_unique<TaskFunction>(std::move(function)));
    return index;
  }

  LaunchImage build() {
    ImageParts parts;
    for (task::Task& task : graph.tasks)
      for (task::Wait& wait : task.waits)
        if (wait.count == 0) wait.count = graph.events[wait.event].arrivals;
    for (size_t t = 0; t < graph.tasks.size(); ++t) {
      parts.bodies.push_back(0);
      parts.first_operands.push_back(static_cast<u32>(t));
      parts.operands.push_back(functions[t].get());
    }
    parts.num_iterations = num_iterations;
    parts.stop = stop;
    return LaunchImage(graph, std::move(parts));
  }
};

}  // namespace megalith::runtime
