#include "megalith/runtime/hang_report.h"

#include <algorithm>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

namespace {

constexpr size_t kMaxNamed = 4;

// ", signalled by "a" (worker 0), "b" (worker 1) and 3 more".
std::string named(const LaunchImage& image, const char* what, const std::vector<u32>& tasks,
                  const std::function<std::string(u32)>& more) {
  std::string text;
  for (size_t t = 0; t < std::min(tasks.size(), kMaxNamed); ++t)
    text += fmt::format("{} \"{}\" (worker {}){}", t == 0 ? fmt::format(", {} by", what) : ",",
                        image.task_name(tasks[t]), image.task_worker(tasks[t]), more(tasks[t]));
  if (tasks.size() > kMaxNamed) text += fmt::format(" and {} more", tasks.size() - kMaxNamed);
  if (tasks.empty()) text += fmt::format(", {} by no task", what);
  return text;
}

std::string waits_for_event(const LaunchImage& image, const WorkerStatus& status, const EventCounter* events,
                            const std::string& where) {
  const u32 event = load_relaxed(&status.event);
  if (event >= image.num_events())
    return fmt::format("waits {} for event {} of {}: its memory was overwritten", where, event, image.num_events());
  return fmt::format("waits {} for event \"{}\": has {}, wants {}{}", where, image.event_name(event),
                     word_arrived(load_acquire(&events[event].word)), load_relaxed(&status.wanted),
                     named(image, "signalled", image.event_signallers(event), [](u32) { return ""; }));
}

// Of a task that runs: the flag that it waits for; "" if it waits for none.
std::string waits_for_flag(const LaunchImage& image, const WorkerStatus* workers, u32 worker, u32 task, u32 iteration,
                           const std::string& where, const LoadWord& load_word) {
  const u64 flag = __atomic_load_n(&workers[worker].flag, __ATOMIC_RELAXED);
  // What a thread wrote down stays there: of an earlier iteration, or of a word that has come since.
  if (flag == 0 || !load_word || flag_epoch(flag) != iteration + 1) return "";
  const auto place = image.flags().find(flag, task);
  if (!place) return "";
  const auto found = static_cast<u32>(load_word(place->address) >> 32);
  if (found == flag_epoch(flag)) return "";
  const Launch& launch = image.launch();
  const auto has_run = [&](u32 writer) {
    const u32 w = image.task_worker(writer), length = launch.list_begin[w + 1] - launch.list_begin[w];
    const u32 needed = (iteration - launch.first_iteration) * length + image.task_position(writer) + 1;
    return static_cast<i32>(load_relaxed(&workers[w].tasks_done) - needed) >= 0 ? ", which has run it"
                                                                                : ", which has not run it";
  };
  return fmt::format("waits {} for the flag of {}: has sequence number {}, wants {}{}", where, place->range, found,
                     flag_epoch(flag), named(image, "written", place->writers, has_run));
}

}  // namespace

std::string hang_report(const LaunchImage& image, const WorkerStatus* workers, const EventCounter* events,
                        int64_t idle_ms, const LoadWord& load_word) {
  std::string text = fmt::format("[launch] {} made no progress for {} ms", image.name(), idle_ms);
  for (u32 w = 0; w < image.launch().num_workers; ++w) {
    const WorkerStatus& status = workers[w];
    const u32 task = load_relaxed(&status.task);
    const u32 iteration = load_relaxed(&status.iteration);
    const bool is_task = task < image.num_tasks();
    const std::string where =
        task == kNone ? fmt::format("at the gate of iteration {}", iteration)
        : is_task     ? fmt::format("in task \"{}\" of iteration {}", image.task_name(task), iteration)
                      : fmt::format("in task {} of {}: its memory was overwritten", task, image.num_tasks());
    text += fmt::format("\n  worker {} ", w);
    switch (static_cast<WorkerState>(load_relaxed(&status.state))) {
      case WorkerState::starting: text += "has not begun"; break;
      case WorkerState::running: {
        const std::string waits = is_task ? waits_for_flag(image, workers, w, task, iteration, where, load_word) : "";
        text += waits.empty() ? "is " + where : waits;
        break;
      }
      case WorkerState::finished: text += "has finished"; break;
      case WorkerState::aborted: text += "was stopped " + where; break;
      case WorkerState::waiting: text += waits_for_event(image, status, events, where); break;
    }
  }
  return text + "\n  a wrong task graph, or a task slower than MEGALITH_WATCHDOG_MS; please report the former";
}

}  // namespace megalith::runtime
