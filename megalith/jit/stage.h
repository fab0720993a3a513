// The one door through which every stage of compilation passes. A stage says how to compute its value, print it, parse
// it and check it; the door does what all stages share: it times the stage, checks its output, writes the artifact when
// MEGALITH_DUMP is set, takes an edited artifact instead when MEGALITH_OVERRIDE holds one, and records what happened.
// It knows no stage: graphs, tasks and sources come in as callbacks, so that this folder depends on base/ alone.
//
//   jit::Pipeline pipeline("storyteller");
//   TaskGraph tasks = pipeline.stage({"partition", "tasks.json"}, [&] { return partition(kernels); }, to_json,
//                                    from_json, verify);
//   jit::CompileReport report = pipeline.finish();
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "megalith/base/error.h"

namespace megalith::jit {

enum class StageFrom { computed, override_file, cache };
std::string_view stage_from_name(StageFrom from);

struct StageSpec {
  std::string name;                      // "partition"
  std::string file;                      // of its artifact, "tasks.json"; "" = none
  StageFrom from = StageFrom::computed;  // where its value comes from, unless it is overridden
};

struct StageReport {
  std::string name;
  std::string file;
  int64_t bytes = -1;  // of the artifact; -1: nobody asked for it, and printing costs time
  double ms = 0;       // to compute and check; printing and dumping are not counted
  StageFrom from = StageFrom::computed;
  std::string text;  // the artifact, if PipelineOptions::keep names this stage
};

/// Who compiled what, how long it took, and whether the cache had it.
struct CompileReport {
  std::string kernel;
  std::vector<StageReport> stages;
  double total_ms = 0;
  bool cache_hit = false;  // the last stage, the expensive one, came from the cache

  /// One line a stage, aligned: "partition    tasks.json   12.3 kB    4.2 ms  computed".
  std::string table() const;
};

/// Hooks for whoever shows progress or counts compilations. Both may be empty; called on the compiling thread.
struct CompileListener {
  std::function<void(const std::string& kernel, const StageSpec&)> stage_begins;
  std::function<void(const CompileReport&)> finished;
};

struct PipelineOptions {
  std::string dump_directory;      // "" = no dump
  std::string override_directory;  // "" = no override
  std::vector<std::string> keep;   // names of the stages whose artifacts the report shall hold
  CompileListener listener;

  /// From MEGALITH_DUMP and MEGALITH_OVERRIDE.
  static PipelineOptions from_environment();
};

/// `name` as one path component: anything but letters, digits, '.', '-' and '_' becomes '_'.
std::string file_name_of(std::string_view name);

/// One compilation of one kernel. Artifacts go to <dump>/<kernel>/<file>; an edited one is looked for in
/// <override>/<kernel>/<file>, then <override>/<file>.
class Pipeline {
 public:
  explicit Pipeline(std::string kernel, PipelineOptions options = PipelineOptions::from_environment());

  /// Runs one stage. `print` and `parse` may be nullptr: a stage without `print` has no artifact, one without `parse`
  /// cannot be overridden. `check` throws on a bad value, or is nullptr.
  ///   compute: () -> T
  ///   print:   (const T&) -> std::string
  ///   parse:   (const std::string&) -> T
  ///   check:   (const T&)
  template <class Compute, class Print, class Parse, class Check>
  auto stage(const StageSpec& spec, Compute&& compute, Print&& print, Parse&& parse, Check&& check);

  // ---- the pieces of the door, for a stage whose artifact is not text (the shared object) ----
  void stage_begin(const StageSpec& spec);
  /// The edited file for this stage, if there is one.
  std::optional<std::string> override_path(const StageSpec& spec);
  bool wants_artifact(const StageSpec& spec) const;
  /// Writes the artifact if dumping is on; keeps it in `report` if asked to.
  void artifact(const StageSpec& spec, std::string_view content, StageReport& report);
  void record(StageReport report) { report_.stages.push_back(std::move(report)); }

  const std::string& kernel() const { return report_.kernel; }
  const PipelineOptions& options() const { return options_; }
  /// Where this kernel's artifacts are written; "" without a dump.
  std::string dump_path() const;

  /// Ends the compilation: fills in the totals, warns of override files that no stage took, calls the listener.
  CompileReport finish();

 private:
  // Throw the current exception again, with the stage, the file and what to try.
  [[noreturn]] void fail_parse(const StageSpec& spec, const std::string& path) const;
  [[noreturn]] void fail_check(const StageSpec& spec, const std::optional<std::string>& override_path) const;
  [[noreturn]] void fail_compute(const StageSpec& spec) const;
  static std::string read_override(const std::string& path);

  PipelineOptions options_;
  CompileReport report_;
  std::vector<std::string> files_seen_;  // artifact names of the stages so far
  bool override_taken_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double milliseconds_since(std::chrono::steady_clock::time_point start);

template <class Compute, class Print, class Parse, class Check>
auto Pipeline::stage(const StageSpec& spec, Compute&& compute, Print&& print, Parse&& parse, Check&& check) {
  constexpr bool kPrints = !std::is_null_pointer_v<std::decay_t<Print>>;
  constexpr bool kParses = !std::is_null_pointer_v<std::decay_t<Parse>>;
  constexpr bool kChecks = !std::is_null_pointer_v<std::decay_t<Check>>;
  using T = std::decay_t<std::invoke_result_t<Compute>>;

  stage_begin(spec);
  StageReport report{.name = spec.name, .file = spec.file, .from = spec.from};
  const std::optional<std::string> edited = override_path(spec);
  std::string text;

  auto start = std::chrono::steady_clock::now();
  T value = [&]() -> T {
    if (!edited) {
      try {
        return compute();
      } catch (const std::exception&) { fail_compute(spec); }
    }
    if constexpr (kParses) {
      text = read_override(*edited);
      report.from = StageFrom::override_file;
      try {
        return parse(std::as_const(text));
      } catch (const std::exception&) { fail_parse(spec, *edited); }
    } else {
      throw UserError(
          fmt::format("[jit] {} would replace the artifact of stage \"{}\", which cannot be read back; remove it",
                      *edited, spec.name));
    }
  }();
  report.ms = milliseconds_since(start);

  // The artifact is written before the check, so that a value that fails it can be looked at.
  if constexpr (kPrints) {
    if (edited || wants_artifact(spec)) {
      if (!edited) text = print(std::as_const(value));
      artifact(spec, text, report);
    }
  }
  if constexpr (kChecks) {
    start = std::chrono::steady_clock::now();
    try {
      check(std::as_const(value));
    } catch (const std::exception&) { fail_check(spec, edited); }
    report.ms += milliseconds_since(start);
  }
  record(std::move(report));
  return value;
}

}  // namespace megalith::jit
