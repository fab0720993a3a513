#include "megalith/runtime/launch_state.h"

#include <fmt/format.h>

namespace megalith::runtime {

std::string why_not_ready(const LaunchImage& image, const EventCounter* events, const WorkerStatus* status,
                          const Control& control, u32 first_iteration) {
  for (u32 e = 0; e < image.num_events(); ++e) {
    const u32 arrived = word_arrived(events[e].word), wanted = image.event_arrivals(e) * first_iteration;
    if (arrived != wanted)
      return fmt::format("event \"{}\" has {} signals before iteration {}, want {}", image.event_name(e), arrived,
                         first_iteration, wanted);
    if (const u32 sleepers = word_sleepers(events[e].word); sleepers != 0)
      return fmt::format("{} workers sleep on event \"{}\", want none", sleepers, image.event_name(e));
  }
  for (u32 w = 0; w < image.launch().num_workers; ++w) {
    const WorkerStatus& worker = status[w];
    if (worker.state != static_cast<u32>(WorkerState::starting) || worker.tasks_done != 0)
      return fmt::format("worker {} is in state {} and has done {} tasks, want one that starts", w, worker.state,
                         worker.tasks_done);
    if (worker.fault.found != 0) return fmt::format("worker {} has the fault of an earlier run", w);
    if (worker.flag != 0) return fmt::format("worker {} waits for a flag of an earlier run", w);
  }
  if (control.abort != kNoAbort) return fmt::format("the abort word is {}, want 0", control.abort);
  if (image.launch().first_iteration != first_iteration)
    return fmt::format("iterations are numbered from {}, want {}", image.launch().first_iteration, first_iteration);
  return "";
}

}  // namespace megalith::runtime
