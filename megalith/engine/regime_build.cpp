#include "megalith/engine/regime_build.h"

#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/engine/regime_machine.h"
#include "megalith/engine/regimes.h"
#include "megalith/jit/patience.h"
#include "megalith/machine/machine.h"
#include "megalith/optimize/limits.h"
#include "megalith/optimize/schedule.h"

namespace megalith::engine {

namespace {

// What a kernel is made from, and how.
struct Planned {
  DecoderOptions options;
  std::shared_ptr<const graph::Graph> graph;
  graph::Schedule schedule;
};

Planned plan(const DecoderOptions& options, std::shared_ptr<const graph::Graph> graph) {
  graph::Schedule schedule = optimize::make_schedule(*graph, options.target);
  return {options, std::move(graph), std::move(schedule)};
}

Planned plan(const ModelConfig& config, DecoderOptions options, int64_t rows) {
  options.max_rows = rows;
  options = options.resolved(config);
  return plan(options, std::make_shared<const graph::Graph>(build_decoder(config, options)));
}

std::string reason_against_sharing(const Planned& a, const Planned& b) {
  const auto& [smaller, larger] = a.options.max_rows < b.options.max_rows ? std::tie(a, b) : std::tie(b, a);
  return why_not_shared(*smaller.graph, smaller.schedule, *larger.graph, larger.schedule);
}

// Which kernels can share the memory of that of `options`, going by a model of one layer.
class OneLayer {
 public:
  OneLayer(const ModelConfig& config, const DecoderOptions& options) : config_(config), options_(options) {
    config_.num_layers = 1;
    options_.shares_caches = true;
  }

  // One of so many rows, with caches in rows or as bodies like them best.
  bool shares_with(int64_t rows, bool in_rows) {
    options_.caches_in_rows = in_rows;
    std::optional<Planned>& base = base_[in_rows];
    if (!base) base = plan(config_, options_, options_.max_rows);
    return reason_against_sharing(plan(config_, options_, rows), *base).empty();
  }

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::array<std::optional<Planned>, 2> base_;
};

// Without its kernel. Nothing if it cannot share the others' memory, and nobody insists on it.
std::optional<Regime> prepare(const RegimeSource& source, const WantedRegime& wanted) {
  if (wanted.rows == source.options.max_rows) return Regime{.options = source.options, .graph = source.base};
  const Planned planned = plan(source.config, source.options, wanted.rows);
  Regime regime{.options = planned.options, .graph = planned.graph, .is_named = wanted.option != nullptr};
  std::string reason = reason_against_sharing(planned, plan(source.options, source.base));
  const auto streams = [](const graph::NodeSchedule& node) { return node.body && node.body->streamed; };
  if (!regime.is_named && std::ranges::none_of(planned.schedule.nodes, streams))
    reason = "its weights would not stream";
  if (reason.empty()) return regime;
  MEGALITH_CHECK(
      !regime.is_named,
      "{} {}: the kernels cannot share their memory: {}; want other numbers of tokens, or the option left out",
      wanted.option, wanted.rows, reason);
  log_info("[engine] no kernel for {} tokens at a time: {}", wanted.rows, reason);
  return std::nullopt;
}

void give_way() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread, and of those that it starts
}

}  // namespace

bool want_caches_in_rows(const ModelConfig& config, const DecoderOptions& options,
                         const std::vector<WantedRegime>& others) {
  OneLayer layer(config, options);
  return std::ranges::any_of(others, [&](const WantedRegime& other) {
    return !layer.shares_with(other.rows, false) && layer.shares_with(other.rows, true);
  });
}

std::vector<int64_t> shared_prompt_regimes(const ModelConfig& config, const DecoderOptions& options) {
  const int64_t more = options.draft_model ? options.draft_model_rows() - options.max_rows : 0;
  const auto up_to = [&](int64_t most) { return prompt_regimes(options.max_rows, most, more); };
  const bool has_room = machine::gpu_of_target(options.target).shared_bytes >= kSharedBytesOfLongPrompts;
  OneLayer layer(config, options);
  for (const int64_t most : {optimize::kMaxNarrowRows, kPromptRowsOfAll, kPromptRowsWithoutTiles}) {
    if (most > kPromptRowsOfAll && !has_room) continue;
    const std::vector<int64_t> rows = up_to(most);
    if (rows.empty() || layer.shares_with(rows.back(), false)) return rows;
  }
  return up_to(kPromptRowsOfAll);
}

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
