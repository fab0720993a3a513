#include "tools/load_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/statistics.h"

namespace megalith::tools {

namespace {

// From this share of what was measured on, the client's own delay is told of: below it, figures of two runs differ by as much.
constexpr double kLargeShare = 0.1;
// A thread that is busy for longer has requests waiting for it.
constexpr double kBusyShare = 0.7;

bool keeps(const LoadRecord& record, const LoadObjectives& objectives) {
  return std::ranges::all_of(objectives, [&](const auto& objective) {
    const auto& [metric, most_ms] = objective;
    const double ms = metric == "ttft"   ? record.ttft_ms()
                      : metric == "tpot" ? record.tpot_ms().value_or(0)
                                         : record.e2el_ms();
    return ms <= most_ms;
  });
}

void add_failure(LoadFigures& figures, const LoadFailure& failure) {
  FailureGroup& group = figures.failures[failure.kind];
  if (group.count++ > 0) return;
  group.example = failure.detail;
  group.retry_after = failure.retry_after;
}

}  // namespace

std::string LoadRow::name() const {
  if (!rate) return concurrency > 0 ? fmt::format("{} at a time", concurrency) : "all at once";
  return concurrency > 0 ? fmt::format("{}/s, {} at a time", *rate, concurrency) : fmt::format("{}/s", *rate);
}

LoadFigures LoadFigures::of(const LoadRow& row, const LoadRun& run, const LoadObjectives& objectives) {
  LoadFigures figures{.row = row, .peak = run.peak, .wake_late_ms = run.wake_late_ms, .core_share = run.core_share};
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) figures.ms[metric] = {};
  double first = std::numeric_limits<double>::max(), last = 0;
  for (const LoadRecord& record : run.records) {
    ++figures.sent;
    first = std::min(first, record.sent_ms);
    last = std::max(last, record.ended_ms);
    figures.send_late_ms.push_back(record.late_ms);
    if (record.failure) {
      add_failure(figures, *record.failure);
      continue;
    }
    ++figures.completed;
    figures.good += keeps(record, objectives);
    figures.prompt_tokens += record.prompt_tokens;
    figures.output_tokens += record.output_tokens;
    figures.cached_tokens += record.cached_tokens;
    figures.num_events += std::ssize(record.events);
    figures.counted += record.is_counted;
    figures.counted_each += record.is_counted_each;
    figures.shorter += record.output_tokens < record.asked_tokens;
    figures.ms["ttft"].push_back(record.ttft_ms());
    figures.ms["e2el"].push_back(record.e2el_ms());
    if (const auto tpot = record.tpot_ms()) figures.ms["tpot"].push_back(*tpot);
    for (size_t i = 1; i < record.events.size(); ++i)
      figures.ms["itl"].push_back(record.events[i].ms - record.events[i - 1].ms);
  }
  figures.seconds = std::max(0.0, last - first) / 1e3;
  return figures;
}

double LoadFigures::tokens_per_event() const {
  return num_events > 0 ? static_cast<double>(output_tokens) / static_cast<double>(num_events) : 0;
}

std::vector<std::string> LoadFigures::warnings() const {
  std::vector<std::string> texts;
  const auto compare = [&](const std::vector<double>& late, const char* what, const char* metric, const char* name) {
    const double late_ms = percentile(late, 99), measured = percentile(ms.at(metric), 50);
    if (measured > 0 && late_ms > kLargeShare * measured)
      texts.push_back(
          fmt::format("{}: the client {} up to {:.3f} ms late (p99), which is {:.0f} % of the median {} of {:.3f} ms: "
                      "the machine is busy, or the client is; give it a core of its own, or another machine",
                      row.name(), what, late_ms, 100 * late_ms / measured, name, measured));
  };
  compare(wake_late_ms, "was woken", "itl", "ITL");
  compare(wake_late_ms, "was woken", "ttft", "TTFT");
  compare(send_late_ms, "sent requests", "ttft", "TTFT");
  if (core_share > kBusyShare)
    texts.push_back(
        fmt::format("{}: the client's thread was busy for {:.0f} % of the time, so it may be what was measured: "
                    "share the load between two of them",
                    row.name(), 100 * core_share));
  return texts;
}

std::vector<std::string> LoadFigures::notes() const {
  std::vector<std::string> texts;
  if (counted < completed)
    texts.push_back(
        fmt::format("{}: of {} of {} answers the server did not count the tokens (\"usage\"): there each event "
                    "is counted as one",
                    row.name(), completed - counted, completed));
  // Servers put the last token and the end in one event, or a part of a character in an event of its own: a few are no matter.
  constexpr double kSeveral = 1.05;
  if (tokens_per_event() > kSeveral)
    texts.push_back(fmt::format("{}: an event holds {:.2f} tokens on average: ITL is between events, TPOT by tokens",
                                row.name(), tokens_per_event()));
  if (cached_tokens > 0)
    texts.push_back(
        fmt::format("{}: {} of {} prompt tokens were in the server's prefix cache, so TTFT is without them; "
                    "prompts of another --seed are not",
                    row.name(), cached_tokens, prompt_tokens));
  if (shorter > 0)
    texts.push_back(fmt::format("{}: {} of {} answers have fewer tokens than were asked for{}", row.name(), shorter,
                                completed, " (--ignore-eos asks for all of them)"));
  return texts;
}

}  // namespace megalith::tools
