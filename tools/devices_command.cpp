// megalith devices: what there is to run on.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/jit/cuda/nvrtc.h"
#include "megalith/runtime/topology.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

std::string core_ranges(const std::vector<int>& cores) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    ranges.push_back(end - i == 1 ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(ranges, ","));
}

void add_cuda(Table& table) {
  try {
    for (const jit::CudaDeviceInfo& gpu : jit::cuda_devices()) {
      table.row({fmt::format("cuda {}", gpu.ordinal), gpu.name});
      table.row({"  architecture", gpu.architecture});
      table.row({"  workers", fmt::format("{} multiprocessors", gpu.num_multiprocessors)});
      table.row({"  shared memory", format_bytes(gpu.shared_bytes_per_block) + " per worker"});
      table.row({"  memory", format_bytes(static_cast<int64_t>(gpu.memory_bytes))});
    }
    if (jit::cuda_devices().empty()) table.row({"cuda", "not available: the driver sees no GPU"});
  } catch (const SystemError& error) { table.row({"cuda", fmt::format("not available: {}", error.what())}); }
  try {
    table.row({"cuda compiler", jit::nvrtc_version()});
  } catch (const SystemError& error) { table.row({"cuda compiler", fmt::format("not available: {}", error.what())}); }
}

int run_devices() {
  const runtime::CpuTopology cpu = runtime::cpu_topology();
  Table table({"cpu", cpu.model.empty() ? "unknown" : cpu.model});
  std::string cores = fmt::format("{} usable ({})", cpu.num_usable(), core_ranges(cpu.cores));
  if (cpu.quota_cores > 0) cores += fmt::format(", quota of {:.1f}", cpu.quota_cores);
  table.row({"  cores", cores});
  table.row({"  simd", cpu.simd.empty() ? "none known" : fmt::format("{}", fmt::join(cpu.simd, " "))});
  for (const runtime::CpuCache& cache : cpu.caches)
    table.row({fmt::format("  cache L{}", cache.level), fmt::format("{} {}, shared by {}", format_bytes(cache.bytes),
                                                                    cache.type, plural(cache.num_sharing, "core"))});
  table.row({"  memory", fmt::format("{}, {} available", format_bytes(cpu.memory_bytes),
                                     format_bytes(runtime::memory_available_bytes()))});
  add_cuda(table);
  print(table.text());
  return kExitOk;
}

Action declare_devices(Arguments&) { return run_devices; }

}  // namespace

Command devices_command() { return {"devices", "what there is to run on", "megalith devices", declare_devices}; }

}  // namespace megalith::tools
