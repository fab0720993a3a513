// megalith devices: what there is to run on.
#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "megalith/runtime/memory.h"
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

// The library is only asked whether it is there: no target compiles for it.
std::string cuda_line() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return "not available: no NVIDIA driver (libcuda.so.1 was not found)";
  ::dlclose(driver);
  return "not available: there is an NVIDIA driver, but no target of this build makes code for it";
}

int run() {
  const runtime::CpuTopology cpu = runtime::cpu_topology();
  Table table({"cpu", cpu.model.empty() ? "unknown" : cpu.model});
  std::string cores = fmt::format("{} usable ({})", cpu.num_usable(), core_ranges(cpu.cores));
  if (cpu.quota_cores > 0) cores += fmt::format(", quota of {:.1f}", cpu.quota_cores);
  table.row({"  cores", cores});
  table.row({"  simd", cpu.simd.empty() ? "none known" : fmt::format("{}", fmt::join(cpu.simd, " "))});
  for (const runtime::CpuCache& cache : cpu.caches)
    table.row(
        {fmt::format("  cache L{}", cache.level), fmt::format("{} {}, shared by {}", runtime::format_bytes(cache.bytes),
                                                              cache.type, plural(cache.num_sharing, "core"))});
  table.row({"  memory", fmt::format("{}, {} available", runtime::format_bytes(cpu.memory_bytes),
                                     runtime::format_bytes(runtime::memory_available_bytes()))});
  table.row({"cuda", cuda_line()});
  print(table.text());
  return kExitOk;
}

Action declare(Arguments&) { return run; }

}  // namespace

Command devices_command() { return {"devices", "what there is to run on", "megalith devices", declare}; }

}  // namespace megalith::tools
