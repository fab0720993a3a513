#include "megalith/jit/build.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/first_lines.h"
#include "megalith/base/hash.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/printable.h"
#include "megalith/base/progress.h"

namespace megalith::jit {

namespace {

constexpr const char* kSource = "kernel.cpp";
constexpr const char* kObject = "kernel.so";
constexpr int kLogLinesShown = 20;

// The cache cannot take the kernel, though nothing is wrong with the kernel.
struct CacheUnusable : SystemError {
  using SystemError::SystemError;
};

std::vector<std::string> flags_of(const BuildRequest& request, const Compiler& compiler) {
  std::vector<std::string> flags = request.flags;
  for (const std::string& flag : common_flags(compiler, request.effort)) flags.push_back(flag);
  return flags;
}

// Not the build-id of this program: all that a kernel shares with it, down to the layout of a launch, is in the source.
std::string key_of(const BuildRequest& request, const Compiler& compiler) {
  // Lengths go before contents, so that no two different requests read the same.
  std::string text;
  auto add = [&](std::string_view part) { text += fmt::format("{}:{}\n", part.size(), part); };
  add(request.source);
  for (const SourceFile& file : request.more) add(file.name), add(file.text);
  for (const std::string& word : compiler.command) add(word);
  add(compiler.version);
  add(compiler.variables);
  for (const std::string& flag : flags_of(request, compiler)) add(flag);
  add(cpu_features());
  add(MEGALITH_VERSION);
  return hash_hex(text);
}

bool is_written(const std::string& file) {
  std::error_code code;
  return std::filesystem::file_size(file, code) > 0 && !code;
}

bool says(const std::string& log, const char* words) { return log.find(words) != std::string::npos; }

bool says_disk_is_full(const std::string& log) {
  return says(log, "No space left on device") || says(log, "Disk quota exceeded");
}

// Where a compiler's log says that the system would not let it go on: why, and what to do.
std::string limit_in(const std::string& log) {
  struct Sign {
    const char* words;
    std::string (*meaning)();
  };
  const Sign signs[] = {
      {"Killed signal terminated", [] { return signal_text(SIGKILL); }},
      {"CPU time limit exceeded", [] { return signal_text(SIGXCPU); }},
      {"File size limit exceeded", [] { return signal_text(SIGXFSZ); }},
      {"File too large", [] { return limit_text(EFBIG); }},
      {"virtual memory exhausted", [] { return limit_text(ENOMEM); }},
      {"out of memory", [] { return limit_text(ENOMEM); }},
      {"annot allocate memory", [] { return limit_text(ENOMEM); }},
      {"Resource temporarily unavailable", [] { return limit_text(EAGAIN); }},
      {"Too many open files", [] { return limit_text(EMFILE); }},
      {"Read-only file system", [] { return std::string("TMPDIR may name a directory that can be written"); }},
  };
  for (const Sign& sign : signs)
    if (const std::string meaning = sign.meaning(); says(log, sign.words) && !meaning.empty()) return ": " + meaning;
  return "";
}

// An entry is found by a hash, which is made for speed: somebody may know another source with the same one. So the
// source itself is looked at.
bool is_made_from(const std::string& entry, const BuildRequest& request) {
  auto has = [&](const std::string& name, const std::string& text) {
    return file_exists(entry + "/" + name) && file_read(entry + "/" + name) == text;
  };
  return has(kSource, request.source) &&
         std::ranges::all_of(request.more, [&](const SourceFile& file) { return has(file.name, file.text); });
}

// `what` it did that it should not have done.
[[noreturn]] void throw_compile_error(const BuildRequest& request, const KernelCache& cache, const std::string& key,
                                      const std::string& workspace, const CompileResult& result,
                                      const std::string& what) {
  const std::string& log = result.process.output;
  if (!cache.is_temporary() && says_disk_is_full(log)) { throw CacheUnusable("No space left on device"); }
  try {
    file_write_atomic(workspace + "/log.txt", log);
  } catch (const SystemError&) {
    // The error to tell is the compiler's.
  }
  const std::string place = cache.keep_failed(key, workspace);
  throw SystemError(Lines{fmt::format(
      "[jit] compiling \"{}\" failed: {} {}{}\n{}the source is {}/{}, the whole log log.txt beside it; to "
      "repeat: cd {} && {}",
      printable_line(request.name), result.command[0], what, limit_in(log), first_lines(log, kLogLinesShown),
      printable_line(place), kSource, printable_line(command_line({place})), command_line(result.command))});
}

// Writes the sources, compiles and stores; returns the entry's directory. Anything that the file system refuses makes
// the cache unusable.
std::string compile_into(const KernelCache& cache, const BuildRequest& request, const std::string& key,
                         const Compiler& compiler, double& compile_ms) {
  auto in_cache = [&](auto&& action) {
    try {
      return action();
    } catch (const SystemError& error) { throw CacheUnusable(error.what()); }
  };
  const std::string workspace = in_cache([&] { return cache.workspace(key); });
  // Gone already when it was stored, or kept for the reader of an error.
  struct Remover {
    const KernelCache& cache;
    const std::string& workspace;
    ~Remover() { cache.discard(workspace); }
  } remover{cache, workspace};
  std::vector<std::string> units = {kSource};
  in_cache([&] {
    file_write_atomic(workspace + "/" + kSource, request.source, 0600);
    for (const SourceFile& file : request.more) {
      file_write_atomic(workspace + "/" + file.name, file.text, 0600);
      if (file.name.ends_with(".cpp")) units.push_back(file.name);
    }
  });
  if (is_noexec(workspace))
    throw CacheUnusable(fmt::format("{} is mounted noexec: no code can be run from there", workspace));
  const CompileResult result = [&] {
    Progress progress("compiling " + request.name, units.size() > 1 ? static_cast<int64_t>(units.size()) : 0);
    try {
      return compile_units(compiler, flags_of(request, compiler), workspace, units, kObject, &progress);
    } catch (const WorkspaceError& error) { throw CacheUnusable(error.what()); }
  }();
  compile_ms += result.ms;
  if (!result.process.ok()) throw_compile_error(request, cache, key, workspace, result, result.process.ending());
  if (!is_written(workspace + "/" + kObject))
    throw_compile_error(
        request, cache, key, workspace, result,
        fmt::format("exited with code 0, but wrote no {}: is it a C++ compiler (MEGALITH_CXX says which is taken)?",
                    kObject));
  if (!result.process.output.empty())
    log_line(LogLevel::debug,
             Lines{fmt::format("compiling \"{}\":\n{}", printable_line(request.name), result.process.output)});
  return in_cache([&] { return cache.store(key, request.name, workspace); });
}

Build build_in(const KernelCache& cache, const BuildRequest& request, const Compiler& compiler) {
  Build build;
  build.key = key_of(request, compiler);
  const bool look = option_integer("MEGALITH_ALWAYS_COMPILE") == 0;
  auto found = [&] {
    if (!look) return false;
    const std::optional<std::string> entry = cache.find(build.key);
    if (!entry) return false;
    try {
      if (!is_made_from(*entry, request)) {
        log_warn("the cache entry {} is of another source; it is made again", *entry);
        cache.remove(build.key);
        return false;
      }
      build.library = Library::load(*entry + "/" + kObject);
    } catch (const SystemError& error) {
      if (maps_no_code(*entry + "/" + kObject)) throw CacheUnusable(error.what());
      // Evicted by another process a moment ago, or made for a system library that is gone.
      log_warn("{}; it is made again", error.what());
      cache.remove(build.key);
      return false;
    }
    build.directory = *entry;
    build.cache_hit = true;
    return true;
  };
  try {
    if (found()) return build;
    const CacheLock lock = cache.lock(build.key);
    if (found()) return build;  // made by the process that held the lock
    build.directory = compile_into(cache, request, build.key, compiler, build.compile_ms);
    try {
      build.library = Library::load(build.directory + "/" + kObject);
    } catch (const SystemError& error) {
      // A file system that is mounted noexec, or another process that has just cleared the cache.
      const std::string object = build.directory + "/" + kObject;
      if (maps_no_code(object) || !file_exists(object)) throw CacheUnusable(error.what());
      throw;
    }
  } catch (const CacheUnusable& error) {
    if (cache.is_temporary())
      throw SystemError(
          fmt::format("[jit] no kernel can be kept or run: {}; set MEGALITH_CACHE_DIR or TMPDIR to a "
                      "directory of yours that can be written and run from",
                      error.what()));
    const double spent = build.compile_ms;
    build = build_in(cache.temporary(error.what()), request, compiler);
    build.compile_ms += spent;
  }
  return build;
}

}  // namespace

std::string build_key(const BuildRequest& request, const KernelCache& cache) {
  return key_of(request, compiler_find(cache));
}

BuildRequest without_haste(BuildRequest request, const KernelCache& cache) {
  BuildRequest chosen = request;
  chosen.effort = codegen::Effort::chosen;
  const std::string key = build_key(chosen, cache);
  return key == build_key(request, cache) || cache.find(key) ? chosen : request;
}

Build build_shared_object(const BuildRequest& request, const KernelCache& cache) {
  const auto start = std::chrono::steady_clock::now();
  Build build = build_in(cache, request, compiler_find(cache));
  build.total_ms = milliseconds_since(start);
  log_debug("kernel \"{}\" {} in {:.1f} ms ({})", request.name, build.cache_hit ? "loaded" : "compiled", build.total_ms,
            build.directory);
  return build;
}

Build build_shared_object(Pipeline& pipeline, const BuildRequest& request, const KernelCache& cache) {
  const StageSpec spec{"assemble", kObject};
  pipeline.stage_begin(spec);
  StageReport report{.name = spec.name, .file = spec.file};
  const auto start = std::chrono::steady_clock::now();
  Build build;
  if (const std::optional<std::string> path = pipeline.override_path(spec)) {
    try {
      build.library = Library::load(*path);
    } catch (const SystemError& error) {
      throw UserError(
          fmt::format("[jit] the override {} of stage \"assemble\" does not load: {}", *path, error.what()));
    }
    report.from = StageFrom::override_file;
  } else {
    build = build_shared_object(request, cache);
    if (build.cache_hit) report.from = StageFrom::cache;
  }
  build.total_ms = report.ms = milliseconds_since(start);
  if (pipeline.wants_artifact(spec)) {
    pipeline.artifact(spec, file_read(build.library.path()), report);
    if (!build.directory.empty() && !pipeline.dump_path().empty())
      file_write_atomic(pipeline.dump_path() + "/command.txt", file_read(build.directory + "/command.txt"));
  }
  pipeline.record(std::move(report));
  return build;
}

}  // namespace megalith::jit
