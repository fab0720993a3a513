// megalith tune: which schedules of a model's generated bodies are the fastest here, measured, kept, and used from then on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/codegen/bodies_text.h"
#include "megalith/engine/tune.h"
#include "megalith/graph/graph_file.h"
#include "megalith/jit/measured_schedules.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using engine::TimedBody;
using engine::TimedSchedule;

struct TuneCommandOptions {
  ModelOptions model;
  std::vector<std::string> bodies, files;
  int64_t most = engine::TuneOptions{}.most, rows = 1, repetitions = engine::TuneOptions{}.runs;
  bool dry_run = false, forget = false;
};

// Models are folders.
graph::GraphFile read_graph(const ModelOptions& options) {
  const std::string path = options.folder();
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return {model_graph(options).graph, {}};
  try {
    graph::GraphFile file = graph::from_file(read_input(path), ops::builtin());
    return {optimize::optimize(file.graph, options.target), std::move(file.values)};
  } catch (const UserError& error) { throw UserError(fmt::format("{}: {}", path, error.what())); }
}

std::map<std::string, std::vector<std::string>> read_schedules(const std::vector<std::string>& files) {
  std::map<std::string, std::vector<std::string>> schedules;
  for (const std::string& path : files) {
    try {
      for (const auto& [body, steps] : codegen::read_schedules(read_input(path))) schedules[body].push_back(steps);
    } catch (const UserError& error) { throw UserError(fmt::format("{}: {}", path, error.what())); }
  }
  return schedules;
}

// A line a schedule.
std::string on_a_line(std::string steps) {
  while (steps.ends_with('\n')) steps.pop_back();
  size_t at = 0;
  while ((at = steps.find('\n', at)) != std::string::npos) steps.replace(at, 1, "; ");
  return steps.empty() ? "all in step" : steps;
}

void add_rows(Table& table, const TimedBody& body) {
  if (body.tried.empty()) return table.row({body.kernel.name, "-", body.reason, ""});
  std::vector<const TimedSchedule*> sorted;
  for (const TimedSchedule& one : body.tried) sorted.push_back(&one);
  std::ranges::stable_sort(sorted, {}, [](const TimedSchedule* one) { return one->seconds; });
  for (const TimedSchedule* one : sorted) {
    const bool is_proposed = one == &body.proposed(), is_best = one == &body.best();
    table.row({one == sorted.front() ? body.kernel.name : "",
               std::isinf(one->seconds) ? "-" : fmt::format("{:.3f}", 1e6 * one->seconds), on_a_line(one->steps),
               fmt::format("{}{}{}", is_proposed ? "proposed" : "", is_proposed && is_best ? ", " : "",
                           is_best ? "taken" : one->reason)});
  }
}

int forget(const graph::GraphFile& file, const ModelOptions& options, const jit::KernelCache& cache) {
  jit::MeasuredSchedules measured(cache, options.target);
  int64_t number = 0;
  const auto lowered = optimize::lower(file.graph, options.target).kernels;
  const auto taken = measured.take(lowered);
  for (size_t i = 0; i < lowered.size(); ++i)
    if (taken[i].steps && !lowered[i].steps) number += measured.forget(lowered[i]);
  note(fmt::format("{} of this model left what was kept", plural(number, "schedule")));
  return kExitOk;
}

int run_tune(const TuneCommandOptions& options) {
  const graph::GraphFile file = read_graph(options.model);
  const jit::KernelCache cache = jit::KernelCache::from_environment();
  if (options.forget) return forget(file, options.model, cache);
  const InterruptGuard guard([] {});
  const engine::TuneOptions tune{.target = options.model.target,
                                 .num_workers = options.model.workers(),
                                 .rows = options.rows,
                                 .runs = static_cast<int>(options.repetitions),
                                 .most = options.most,
                                 .bodies = options.bodies,
                                 .more = read_schedules(options.files),
                                 .cancelled = [&] { return guard.interrupted(); }};
  jit::MeasuredSchedules measured(cache, options.model.target);
  Table table({"body", ">us", "schedule", "what it is"});
  int64_t faster = 0;
  const auto bodies = engine::tune_bodies(file, tune, [&](const TimedBody& body) {
    add_rows(table, body);
    if (body.tried.empty()) return true;
    const TimedSchedule& best = body.best();
    const bool is_faster = &best != &body.proposed();
    faster += is_faster;
    if (options.dry_run) return true;
    if (is_faster)
      measured.keep(
          body.kernel, best.steps,
          fmt::format("tuned: {:.3f} us, and {:.3f} as proposed", 1e6 * best.seconds, 1e6 * body.proposed().seconds));
    else
      measured.forget(body.kernel);
    return true;
  });
  if (bodies.empty() && !guard.interrupted()) note("all bodies were written by hand: none has a schedule");
  if (!bodies.empty()) print(table.text());
  if (faster > 0)
    note(fmt::format("{} faster than proposed; {}", plural(faster, "schedule"),
                     options.dry_run ? "without --dry-run it would be used from now on"
                                     : "kept in " + cache.directory() + ", and used from now on"));
  return guard.interrupted() ? kExitInterrupt : kExitOk;
}

Action declare_tune(Arguments& arguments) {
  auto options = std::make_shared<TuneCommandOptions>();
  arguments.texts("--body", options->bodies, "NAME",
                  "this one alone, as inspect --stage bodies calls it; again for more (all)");
  arguments.texts("--try", options->files, "FILE",
                  "schedules to be tried, too, in the form of bodies.txt; again for more");
  arguments.integer("--most", options->most, "schedules that are tried for a body, the proposed one included (12)", 1,
                    1000);
  arguments.integer("--rows", options->rows, "tokens of the batch that it is measured for (1, a decode step)", 1, 4096);
  arguments.integer("-r,--repetitions", options->repetitions, "runs of each, the fastest of which counts (60)", 1,
                    10000);
  arguments.flag("--dry-run", options->dry_run, "keep nothing");
  arguments.flag("--forget", options->forget, "measure nothing, and take out what was kept for this model");
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_tune(*options); };
}

}  // namespace

Command tune_command() {
  return {"tune", "measure schedules of a model's generated bodies, and use the fastest from then on",
          "megalith tune models/storyteller --body head_norm_0", declare_tune};
}

}  // namespace megalith::tools
