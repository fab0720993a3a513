#include "megalith/engine/regime_build.h"

#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/jit/patience.h"
#include "megalith/optimize/schedule.h"

namespace megalith::engine {

namespace {

// Without its kernel. Nothing if it cannot share the others' memory, and nobody insists on it.
std::optional<Regime> prepare(const RegimeSource& source, const WantedRegime& wanted) {
  if (wanted.rows == source.options.max_rows) return Regime{.options = source.options, .graph = source.base};
  Regime regime{.options = source.options, .graph = nullptr, .is_named = wanted.option != nullptr};
  regime.options.max_rows = wanted.rows;
  regime.options = regime.options.resolved(source.config);
  regime.graph = std::make_shared<const graph::Graph>(build_decoder(source.config, regime.options));
  const graph::Schedule base = optimize::make_schedule(*source.base, source.options.target),
                        schedule = optimize::make_schedule(*regime.graph, regime.options.target);
  std::string reason = wanted.rows < source.options.max_rows
                           ? why_not_shared(*regime.graph, schedule, *source.base, base)
                           : why_not_shared(*source.base, base, *regime.graph, schedule);
  const auto streams = [](const graph::NodeSchedule& node) { return node.body && node.body->streamed; };
  if (!regime.is_named && std::ranges::none_of(schedule.nodes, streams)) reason = "its weights would not stream";
  if (reason.empty()) return regime;
  MEGALITH_CHECK(!regime.is_named, "{} {}: the kernels cannot share their memory: {}", wanted.option, wanted.rows,
                 reason);
  log_info("[engine] no kernel for {} tokens at a time: {}", wanted.rows, reason);
  return std::nullopt;
}

void give_way() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread, and of those that it starts
}

}  // namespace

RegimeBuild::RegimeBuild(std::shared_ptr<const RegimeSource> source, const std::vector<WantedRegime>& wanted,
                         bool gives_way)
    : source_(std::move(source)), gives_way_(gives_way) {
  for (const WantedRegime& one : wanted) add(one);
}

void RegimeBuild::add(const WantedRegime& wanted) {
  rows_.push_back(wanted.rows);
  // The thread that compiles may outlive all of this, so it owns what it works on.
  struct Work {
    std::shared_ptr<const RegimeSource> source;
    WantedRegime wanted;
    bool gives_way;
    std::promise<bool> is_shared;
    std::optional<Regime> made;
  };
  const auto work = std::make_shared<Work>(Work{source_, wanted, gives_way_, {}, {}});
  ones_.push_back({work->is_shared.get_future(), {}});
  ones_.back().made = std::async(std::launch::async, [this, work] {
    jit::call_patiently(
        fmt::format("the kernel for {} tokens at a time", work->wanted.rows),
        [work] {
          if (work->gives_way) give_way();
          try {
            work->made = prepare(*work->source, work->wanted);
          } catch (...) { return work->is_shared.set_exception(std::current_exception()); }
          work->is_shared.set_value(work->made.has_value());
          // Artifacts that somebody looks at, or brings, are those of the kernel that holds every sequence.
          if (work->made)
            work->made->kernel = jit::compile(
                *work->made->graph,
                {.target = work->source->target, .num_workers = work->source->num_workers, .pipeline = {}});
        },
        {.is_over = &is_over_});
    return std::move(work->made);
  });
}

RegimeBuild::~RegimeBuild() { is_over_.store(true); }

void RegimeBuild::check() {
  for (One& one : ones_)
    if (one.is_shared.valid()) one.is_shared.get();
}

bool RegimeBuild::is_ready(std::chrono::milliseconds within) const {
  const auto end = std::chrono::steady_clock::now() + within;
  return std::ranges::all_of(ones_,
                             [&](const One& one) { return one.made.wait_until(end) == std::future_status::ready; });
}

std::vector<Regime> RegimeBuild::take(const OnFailure& on_failure) {
  check();
  std::vector<Regime> all;
  for (size_t i = 0; i < ones_.size(); ++i) {
    try {
      if (std::optional<Regime> regime = ones_[i].made.get()) all.push_back(std::move(*regime));
    } catch (const std::exception& error) {
      if (!on_failure) throw;
      on_failure(rows_[i], error);
    }
  }
  return all;
}

}  // namespace megalith::engine
