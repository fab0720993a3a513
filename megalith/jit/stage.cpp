#include "megalith/jit/stage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <new>
#include <system_error>

#include "megalith/base/file.h"
#include "megalith/base/interruption.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/printable.h"

namespace megalith::jit {

namespace {

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Adds `note` to an error that is ours, and to an exception of a foreign kind (a library's), which becomes ours: nobody
// else can do anything about it. What the user or the system did wrong is said well enough already.
[[noreturn]] void rethrow_with(const std::string& note) {
  try {
    throw;
  } catch (const UserError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw SystemError(fmt::format("[jit] memory does not suffice ({})", note));
  } catch (const std::system_error& error) {
    throw SystemError(fmt::format("{} ({})", system_error(error).what(), note));
  } catch (const std::exception& error) { throw InternalError(fmt::format("{} ({})", error.what(), note)); }
}

// Text of the exception being handled.
std::string current_message() {
  try {
    throw;
  } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

std::string_view stage_from_name(StageFrom from) {
  constexpr std::string_view kNames[] = {"computed", "override", "cache"};
  return kNames[static_cast<int>(from)];
}

std::string file_name_of(std::string_view name) {
  std::string result(name);
  for (char& c : result)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '_';
  // "", "." and ".." name directories.
  if (result.find_first_not_of('.') == std::string::npos) result += '_';
  return result;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

PipelineOptions PipelineOptions::from_environment() {
  PipelineOptions options;
  options.dump_directory = option_value("MEGALITH_DUMP");
  options.override_directory = option_value("MEGALITH_OVERRIDE");
  return options;
}

std::string CompileReport::table() const {
  std::string text;
  for (const StageReport& stage : stages) {
    const std::string size = stage.bytes < 0 ? "-" : fmt::format("{:.1f} kB", static_cast<double>(stage.bytes) / 1000);
    text += fmt::format("{:<12} {:<16} {:>12} {:>10.1f} ms  {}\n", stage.name, stage.file.empty() ? "-" : stage.file,
                        size, stage.ms, stage_from_name(stage.from));
  }
  return text + fmt::format("{:<12} {:<16} {:>12} {:>10.1f} ms\n", "total", "", "", total_ms);
}

Pipeline::Pipeline(std::string kernel, PipelineOptions options) : options_(std::move(options)) {
  report_.kernel = std::move(kernel);
  // A mistyped directory must not pass for "nothing to override".
  MEGALITH_CHECK(options_.override_directory.empty() || is_directory(options_.override_directory),
                 "[jit] MEGALITH_OVERRIDE is \"{}\", which is not a directory", options_.override_directory);
}

std::string Pipeline::dump_path() const {
  if (options_.dump_directory.empty()) return "";
  return options_.dump_directory + "/" + file_name_of(kernel());
}

void Pipeline::stage_begin(const StageSpec& spec) {
  interruption_check();
  if (!spec.file.empty()) files_seen_.push_back(spec.file);
  if (options_.listener.stage_begins) options_.listener.stage_begins(kernel(), spec);
}

std::optional<std::string> Pipeline::override_path(const StageSpec& spec) {
  if (options_.override_directory.empty() || spec.file.empty()) return std::nullopt;
  for (const std::string& path : {options_.override_directory + "/" + file_name_of(kernel()) + "/" + spec.file,
                                  options_.override_directory + "/" + spec.file}) {
    if (!file_exists(path)) continue;
    override_taken_ = true;
    log_info("stage \"{}\" of \"{}\" is taken from {}", spec.name, kernel(), path);
    return path;
  }
  return std::nullopt;
}

bool Pipeline::wants_artifact(const StageSpec& spec) const {
  if (spec.file.empty()) return false;
  return !options_.dump_directory.empty() || std::ranges::find(options_.keep, spec.name) != options_.keep.end();
}

void Pipeline::artifact(const StageSpec& spec, std::string_view content, StageReport& report) {
  report.bytes = static_cast<int64_t>(content.size());
  if (std::ranges::find(options_.keep, spec.name) != options_.keep.end()) report.text = content;
  if (options_.dump_directory.empty() || spec.file.empty()) return;
  directory_create(dump_path());
  file_write_atomic(dump_path() + "/" + spec.file, content);
}

CompileReport Pipeline::finish() {
  if (!options_.override_directory.empty() && !override_taken_)
    log_warn("MEGALITH_OVERRIDE={} holds no artifact of \"{}\"; the stages' files are {}", options_.override_directory,
             kernel(), fmt::join(files_seen_, ", "));
  report_.total_ms = milliseconds_since(start_);
  report_.cache_hit = !report_.stages.empty() && report_.stages.back().from == StageFrom::cache;
  if (log_level() >= LogLevel::debug)
    log_line(LogLevel::debug, Lines{fmt::format("compiled \"{}\"\n{}", printable_line(kernel()), report_.table())});
  if (options_.listener.finished) options_.listener.finished(report_);
  return report_;
}

std::string Pipeline::read_override(const std::string& path) { return file_read(path); }

void Pipeline::fail_parse(const StageSpec& spec, const std::string& path) const {
  throw UserError(
      fmt::format("[jit] the override {} of stage \"{}\" does not parse: {} (MEGALITH_DUMP=dir writes one that does)",
                  path, spec.name, current_message()));
}

void Pipeline::fail_check(const StageSpec& spec, const std::optional<std::string>& override_path) const {
  if (override_path)
    throw UserError(fmt::format("[jit] the override {} of stage \"{}\" is wrong: {}", *override_path, spec.name,
                                current_message()));
  if (dump_path().empty() || spec.file.empty())
    rethrow_with(
        fmt::format("checking stage \"{}\" of \"{}\"; MEGALITH_DUMP=dir keeps the artifacts", spec.name, kernel()));
  rethrow_with(fmt::format("checking stage \"{}\" of \"{}\"; its artifact is {}/{}", spec.name, kernel(), dump_path(),
                           spec.file));
}

void Pipeline::fail_compute(const StageSpec& spec) const {
  if (dump_path().empty())
    rethrow_with(fmt::format("in stage \"{}\" of \"{}\"; MEGALITH_DUMP=dir keeps the artifacts", spec.name, kernel()));
  rethrow_with(
      fmt::format("in stage \"{}\" of \"{}\"; the artifacts so far are in {}", spec.name, kernel(), dump_path()));
}

}  // namespace megalith::jit
