#include "megalith/jit/cuda/build.h"

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/hash.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/progress.h"
#include "megalith/codegen/emit.h"
#include "megalith/jit/build_id.h"
#include "megalith/jit/cuda/driver.h"

namespace megalith::jit {

namespace {

constexpr const char* kCubin = "/kernel.cubin";
constexpr const char* kPtx = "/kernel.ptx";
constexpr const char* kLog = "/log.txt";

std::string key_of(const std::string& source, const std::string& architecture) {
  std::string text;
  auto add = [&](std::string_view part) { text += fmt::format("{}:{}\n", part.size(), part); };
  add(source);
  add(architecture);
  add(nvrtc_version());
  for (const std::string& flag : codegen::cuda_compile_flags(architecture)) add(flag);
  add(build_id());
  add(MEGALITH_VERSION);
  return hash_hex(text);
}

bool take(CudaBuild& build, const KernelCache& cache) {
  const std::optional<std::string> entry = cache.find(build.key);
  if (!entry) return false;
  build.directory = *entry;
  build.cubin = file_read(*entry + kCubin);
  build.ptx = file_read(*entry + kPtx);
  build.resources = parse_resources(file_read(*entry + kLog));
  build.cache_hit = true;
  return true;
}

// A cache that cannot be written costs time, never a result.
void keep(CudaBuild& build, const NvrtcResult& result, const std::string& name, const std::string& source,
          const KernelCache& cache) {
  try {
    const std::string workspace = cache.workspace(build.key);
    file_write_atomic(workspace + "/kernel.cu", source);
    file_write_atomic(workspace + kPtx, result.ptx);
    file_write_atomic(workspace + kCubin, result.cubin);
    file_write_atomic(workspace + kLog, result.log);
    file_write_atomic(workspace + "/command.txt",
                      fmt::format("{} {} --gpu-architecture={}\n", nvrtc_version(),
                                  fmt::join(codegen::cuda_compile_flags(build.architecture), " "), build.architecture));
    build.directory = cache.store(build.key, name, workspace);
  } catch (const SystemError& error) { log_warn("{}; the kernel is not kept", error.what()); }
}

}  // namespace

bool is_cuda_target(const std::string& target) { return target == "cuda" || target.starts_with("cuda:sm_"); }

std::string cuda_architecture(const std::string& target) {
  MEGALITH_CHECK(is_cuda_target(target), "\"{}\" is no CUDA target: want cuda or, for example, cuda:sm_90a", target);
  return target == "cuda" ? cuda_device().architecture : target.substr(5);
}

CudaBuild build_cubin(Pipeline& pipeline, const std::string& name, const std::string& source,
                      const std::string& architecture, const KernelCache& cache) {
  const StageSpec ptx_stage{"ptx", "kernel.ptx"}, cubin_stage{"cubin", "kernel.cubin"};
  pipeline.stage_begin(ptx_stage);
  StageReport ptx_report{.name = ptx_stage.name, .file = ptx_stage.file};
  const auto start = std::chrono::steady_clock::now();

  CudaBuild build;
  build.architecture = architecture;
  build.key = key_of(source, architecture);
  const bool look = option_integer("MEGALITH_ALWAYS_COMPILE") == 0;
  if (!look || !take(build, cache)) {
    const CacheLock lock = cache.lock(build.key);
    if (!look || !take(build, cache)) {
      const Progress progress("compiling " + name, 0);
      NvrtcResult result = nvrtc_compile(source, name, architecture, codegen::cuda_compile_flags(architecture));
      build.compile_ms = milliseconds_since(start);
      build.resources = result.resources;
      keep(build, result, name, source, cache);
      build.ptx = std::move(result.ptx);
      build.cubin = std::move(result.cubin);
    }
  }
  ptx_report.ms = milliseconds_since(start);
  if (build.cache_hit) ptx_report.from = StageFrom::cache;
  StageReport cubin_report{.name = cubin_stage.name, .file = cubin_stage.file, .from = ptx_report.from};
  if (pipeline.wants_artifact(ptx_stage)) pipeline.artifact(ptx_stage, build.ptx, ptx_report);
  pipeline.record(std::move(ptx_report));
  pipeline.stage_begin(cubin_stage);
  if (pipeline.wants_artifact(cubin_stage)) pipeline.artifact(cubin_stage, build.cubin, cubin_report);
  pipeline.record(std::move(cubin_report));
  log_info("kernel \"{}\" for {}: {}", name, architecture, build.resources.text());
  return build;
}

}  // namespace megalith::jit
