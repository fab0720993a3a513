#include "megalith/runtime/hang_report.h"

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

std::string hang_report(const LaunchImage& image, const WorkerStatus* workers, const EventCounter* events,
                        int64_t idle_ms) {
  std::string text = fmt::format("[launch] {} made no progress for {} ms", image.name(), idle_ms);
  for (u32 w = 0; w < image.launch().num_workers; ++w) {
    const WorkerStatus& status = workers[w];
    const u32 task = load_relaxed(&status.task);
    const u32 iteration = load_relaxed(&status.iteration);
    const std::string where = task == kNone ? fmt::format("at the gate of iteration {}", iteration)
                              : task >= image.num_tasks()
                                  ? fmt::format("in task {} of {}: its memory was overwritten", task, image.num_tasks())
                                  : fmt::format("in task \"{}\" of iteration {}", image.task_name(task), iteration);
    text += fmt::format("\n  worker {} ", w);
    switch (static_cast<WorkerState>(load_relaxed(&status.state))) {
      case WorkerState::starting: text += "has not begun"; break;
      case WorkerState::running: text += "is " + where; break;
      case WorkerState::finished: text += "has finished"; break;
      case WorkerState::aborted: text += "was stopped " + where; break;
      case WorkerState::waiting: {
        const u32 event = load_relaxed(&status.event);
        if (event >= image.num_events()) {
          text +=
              fmt::format("waits {} for event {} of {}: its memory was overwritten", where, event, image.num_events());
          break;
        }
        text += fmt::format("waits {} for event \"{}\": has {}, wants {}", where, image.event_name(event),
                            word_arrived(load_acquire(&events[event].word)), load_relaxed(&status.wanted));
        const std::vector<u32> signallers = image.event_signallers(event);
        constexpr size_t kMostNamed = 4;
        for (size_t s = 0; s < std::min(signallers.size(), kMostNamed); ++s)
          text += fmt::format("{} \"{}\" (worker {})", s == 0 ? ", signalled by" : ",", image.task_name(signallers[s]),
                              image.task_worker(signallers[s]));
        if (signallers.size() > kMostNamed) text += fmt::format(" and {} more", signallers.size() - kMostNamed);
        if (signallers.empty()) text += ", signalled by no task";
      }
    }
  }
  return text + "\n  a wrong task graph, or a task slower than MEGALITH_WATCHDOG_MS; please report the former";
}

}  // namespace megalith::runtime
