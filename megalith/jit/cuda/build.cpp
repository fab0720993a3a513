#include "megalith/jit/cuda/build.h"

#include <cstdlib>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/plain_text.h"
#include "megalith/base/printable.h"
#include "megalith/base/progress.h"
#include "megalith/codegen/emit.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/jit/cuda/nvjitlink.h"
#include "megalith/jit/process.h"

namespace megalith::jit {

namespace {

constexpr const char* kSource = "/kernel.cu";
constexpr const char* kCubin = "/kernel.cubin";
constexpr const char* kPtx = "/kernel.ptx";
constexpr const char* kLog = "/log.txt";

std::string key_of(const std::string& source, const std::string& architecture, const std::vector<std::string>& flags) {
  std::string text;
  auto add = [&](std::string_view part) { text += fmt::format("{}:{}\n", part.size(), part); };
  add(source);
  add(architecture);
  add(nvrtc_version());
  add(nvrtc_identity());  // it says 12.4 of each 12.4.x
  for (const std::string& flag : flags) add(flag);
  add(MEGALITH_VERSION);
  return hash_hex(text);
}

bool take(CudaBuild& build, const std::string& source, const KernelCache& cache) {
  const std::optional<std::string> entry = cache.find(build.key);
  if (!entry) return false;
  try {
    build.cubin = file_read(*entry + kCubin);
    build.ptx = file_read(*entry + kPtx);
    build.log = file_read(*entry + kLog);
    build.resources = parse_resources(build.log);
  } catch (const SystemError& error) {
    // Evicted by another process a moment ago, or stored without one of its files.
    log_info("{}; the kernel is made again", error.what());
    return false;
  }
  if (!is_cubin(build.cubin)) {
    log_warn("the cache entry {} holds no cubin ({} bytes of something else); it is made again", *entry,
             build.cubin.size());
    return false;
  }
  // As for a CPU: the key is a hash that is made for speed.
  if (!file_exists(*entry + kSource) || file_read(*entry + kSource) != source) {
    log_warn("the cache entry {} is of another source; it is made again", *entry);
    return false;
  }
  build.directory = *entry;
  build.cache_hit = true;
  return true;
}

// A cache that cannot be written costs time, never a result.
void keep(CudaBuild& build, const NvrtcResult& result, const std::string& name, const std::string& source,
          const KernelCache& cache, std::vector<std::string> flags) {
  flags.push_back("--gpu-architecture=" + build.architecture);
  std::string workspace;
  try {
    workspace = cache.workspace(build.key);
    file_write_atomic(workspace + kSource, source);
    file_write_atomic(workspace + kPtx, result.ptx);
    file_write_atomic(workspace + kCubin, result.cubin);
    file_write_atomic(workspace + kLog, result.log);
    file_write_atomic(workspace + "/command.txt",
                      fmt::format("# {}\n{}\n", plain_text(nvrtc_version()), command_line(flags)));
    build.directory = cache.store(build.key, name, workspace);
  } catch (const SystemError& error) {
    log_warn("{}; the kernel is not kept", error.what());
    if (!workspace.empty()) cache.discard(workspace);
  }
}

}  // namespace

bool is_cuda_target(const std::string& target) { return target == "cuda" || target.starts_with("cuda:sm_"); }

std::string target_family(const std::string& target) { return is_cuda_target(target) ? "cuda" : target; }

std::string cuda_architecture(const std::string& target) {
  MEGALITH_CHECK(is_cuda_target(target), "\"{}\" is no CUDA target: want cuda or, for example, cuda:sm_90a", target);
  const std::string architecture = target == "cuda" ? cuda_device().architecture : target.substr(5);
  constexpr int kOldest = 80;  // copies past registers (cp.async) and bf16 on tensor cores
  MEGALITH_CHECK(std::atoi(architecture.c_str() + 3) >= kOldest,
                 "kernels are for GPUs from sm_{} on (Ampere), not for {}{}: use --target cpu", kOldest, architecture,
                 target == "cuda" ? ", which this one is" : "");
  return architecture;
}

std::string target_with_architecture(const std::string& target) {
  return is_cuda_target(target) ? "cuda:" + cuda_architecture(target) : target;
}

std::string default_target() {
  if (const std::string said = option_value("MEGALITH_TARGET"); !said.empty()) {
    MEGALITH_CHECK(said == "cpu" || is_cuda_target(said),
                   "MEGALITH_TARGET is \"{}\", want cpu, cuda or, for example, cuda:sm_90a", said);
    return said;
  }
  try {
    if (cuda_devices().empty()) return "cpu";
  } catch (const Error& error) {
    log_debug("{}", error.what());  // most machines have no driver
    return "cpu";
  }
  try {
    cuda_architecture("cuda");
    nvrtc_identity();
  } catch (const Error& error) {
    log_warn("this runs on the CPU, since the GPU cannot be used ({}); --target says which it is to be", error.what());
    return "cpu";
  }
  return "cuda";
}

std::vector<std::string> cubin_flags(const std::string& source, const std::string& architecture, codegen::Effort effort,
                                     const KernelCache& cache) {
  std::vector<std::string> flags = codegen::cuda_compile_flags(architecture);
  constexpr int kOldest = 13;
  if (effort == codegen::Effort::chosen || nvrtc_major() < kOldest || cache.find(key_of(source, architecture, flags)))
    return flags;
  return codegen::cuda_compile_flags(architecture, effort);
}

CudaBuild compile_cubin(const std::string& name, const std::string& source, const std::string& architecture,
                        const KernelCache& cache, const std::vector<std::string>& given_flags,
                        const std::atomic<bool>* is_over) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> flags = given_flags.empty() ? codegen::cuda_compile_flags(architecture) : given_flags;
  CudaBuild build;
  build.architecture = architecture;
  build.key = key_of(source, architecture, flags);
  const bool look = option_integer("MEGALITH_ALWAYS_COMPILE") == 0;
  if (look && take(build, source, cache)) return build;
  const CacheLock lock = cache.lock(build.key);
  if (look && take(build, source, cache)) return build;
  const Progress progress("compiling " + name, 0);
  NvrtcResult result = nvrtc_compile(source, name, architecture, flags, is_over);
  build.compile_ms = milliseconds_since(start);
  keep(build, result, name, source, cache, flags);
  build.resources = result.resources;
  build.ptx = std::move(result.ptx);
  build.cubin = std::move(result.cubin);
  build.log = std::move(result.log);
  return build;
}

namespace {

void take_edited_ptx(CudaBuild& build, const std::string& name, const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  build.ptx = file_read(path);
  try {
    AssembledPtx assembled = nvjitlink_assemble(build.ptx, name, build.architecture);
    build.cubin = std::move(assembled.cubin);
    build.resources = assembled.resources;
  } catch (const UserError& error) {
    throw UserError(
        Lines{fmt::format("[jit] the override {} of stage \"ptx\" is wrong: {}", printable_line(path), error.what())});
  }
  build.compile_ms = milliseconds_since(start);
}

void take_edited_cubin(CudaBuild& build, const std::string& path) {
  build.cubin = file_read(path);
  MEGALITH_CHECK(is_cubin(build.cubin),
                 "[jit] the override {} of stage \"cubin\" is no cubin: it has {} bytes and does not begin as an ELF "
                 "file does",
                 path, build.cubin.size());
}

}  // namespace

CudaBuild build_cubin(Pipeline& pipeline, const std::string& name, const std::string& source,
                      const std::string& architecture, const KernelCache& cache, const std::vector<std::string>& flags,
                      const std::function<CudaBuild()>& begun) {
  const StageSpec ptx_stage{"ptx", "kernel.ptx"}, cubin_stage{"cubin", "kernel.cubin"};
  CudaBuild build;
  build.architecture = architecture;

  pipeline.stage_begin(ptx_stage);
  StageReport ptx_report{.name = ptx_stage.name, .file = ptx_stage.file};
  auto start = std::chrono::steady_clock::now();
  const std::optional<std::string> edited_ptx = pipeline.override_path(ptx_stage);
  const std::optional<std::string> edited_cubin = pipeline.override_path(cubin_stage);
  if (edited_ptx)
    take_edited_ptx(build, name, *edited_ptx);
  else if (!edited_cubin)
    build = begun ? begun() : compile_cubin(name, source, architecture, cache, flags);
  ptx_report.ms = std::max(milliseconds_since(start), build.compile_ms);
  ptx_report.from = edited_ptx ? StageFrom::override_file : build.cache_hit ? StageFrom::cache : StageFrom::computed;
  if (pipeline.wants_artifact(ptx_stage) && !build.ptx.empty()) pipeline.artifact(ptx_stage, build.ptx, ptx_report);

  pipeline.stage_begin(cubin_stage);
  StageReport cubin_report{.name = cubin_stage.name, .file = cubin_stage.file};
  start = std::chrono::steady_clock::now();
  if (edited_cubin) take_edited_cubin(build, *edited_cubin);
  cubin_report.ms = milliseconds_since(start);
  cubin_report.from = edited_cubin      ? StageFrom::override_file
                      : build.cache_hit ? StageFrom::cache
                                        : StageFrom::computed;
  if (pipeline.wants_artifact(cubin_stage)) pipeline.artifact(cubin_stage, build.cubin, cubin_report);

  // Without a PTX there was no such stage: an edited cubin needs none.
  if (!build.ptx.empty()) pipeline.record(std::move(ptx_report));
  pipeline.record(std::move(cubin_report));
  log_info("kernel \"{}\" for {}: {}", name, architecture, edited_cubin ? "an edited cubin" : build.resources.text());
  return build;
}

}  // namespace megalith::jit
