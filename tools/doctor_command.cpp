// megalith doctor: whether this machine has what Megalith needs, down to a kernel that is compiled and run.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/format.h"
#include "megalith/base/hash.h"
#include "megalith/base/options.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/compiler.h"
#include "megalith/jit/library.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/program.h"
#include "megalith/runtime/topology.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

enum class Health { ok, note, fail };

struct Finding {
  Health health = Health::ok;
  std::string text;
};

Finding look_at_compiler() {
  const jit::Compiler compiler = jit::compiler_find(jit::KernelCache::from_environment());
  return {Health::ok, fmt::format("{} ({})", fmt::join(compiler.command, " "), compiler.version)};
}

Finding look_at_cache() {
  const jit::KernelCache cache = jit::KernelCache::from_environment();
  const std::string use = fmt::format("{}, {} of {} used", cache.directory(), format_bytes(cache.bytes()),
                                      format_bytes(cache.limit_bytes()));
  try {
    const std::string key = hash_hex("doctor");
    const jit::CacheLock lock = cache.lock(key);
    const std::string workspace = cache.workspace(key);
    file_write_atomic(workspace + "/probe", "x");
    const bool is_noexec = jit::is_noexec(workspace);
    cache.discard(workspace);
    if (is_noexec)
      throw SystemError(fmt::format("{} is mounted noexec: no kernel can be run from there", cache.directory()));
  } catch (const SystemError& error) {
    return {Health::fail,
            fmt::format("{}; set MEGALITH_CACHE_DIR to a directory that only you can write", error.what())};
  }
  return {Health::ok, use};
}

Finding look_at_cores() {
  const runtime::CpuTopology cpu = runtime::cpu_topology();
  const int workers = engine::default_num_workers();
  const std::string text = fmt::format("{} usable, {} by default", cpu.num_usable(), plural(workers, "worker"));
  if (workers > cpu.num_usable())
    return {Health::note, text + ": workers that share cores wait for each other; lower MEGALITH_THREADS"};
  return {Health::ok, text};
}

Finding look_at_memory() {
  return {Health::ok, fmt::format("{} available", format_bytes(runtime::memory_available_bytes()))};
}

// Weights are read in full for every token: with pages of 4 KiB the page walks cost as much as some of the reading.
Finding look_at_huge_pages() {
  const char* const kFile = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (!file_exists(kFile)) return {Health::note, fmt::format("not told: there is no {}", kFile)};
  const std::string text = file_read(kFile);
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos) return {Health::note, "not told by the system"};
  const std::string mode = text.substr(begin + 1, end - begin - 1);
  if (mode == "never") return {Health::note, fmt::format("never: slower; \"madvise\" in {} would help", kFile)};
  return {Health::ok, mode};
}

// y = a + b, from the graph to the threads.
Finding look_at_kernel() {
  constexpr int64_t kSize = 1000;
  graph::Graph graph(ops::builtin(), "doctor");
  const graph::TensorId a = graph.state("a", DType::f32, {1, kSize}), b = graph.state("b", DType::f32, {1, kSize});
  const graph::TensorId y = graph.state("y", DType::f32, {1, kSize});
  graph.add("add", "sum", {a, b}, {.outputs = {{"y", y}}});

  const auto start = std::chrono::steady_clock::now();
  const jit::CompiledKernel kernel =
      jit::compile(graph, {.num_workers = engine::default_num_workers(), .pipeline = {}});
  std::vector<float> values_a(kSize), values_b(kSize, 0.5f), values_y(kSize, 0.0f);
  for (size_t i = 0; i < values_a.size(); ++i) values_a[i] = static_cast<float>(i);
  runtime::Program program(graph, kernel, {{"a", values_a.data()}, {"b", values_b.data()}, {"y", values_y.data()}});
  runtime::Launcher launcher(program.entry(), program.image());
  launcher.run();
  for (size_t i = 0; i < values_y.size(); ++i)
    if (values_y[i] != values_a[i] + values_b[i])
      return {Health::fail, fmt::format("the kernel computed {} + {} = {}", values_a[i], values_b[i], values_y[i])};
  return {Health::ok, fmt::format("{} and run right in {}", kernel.report.cache_hit ? "found in the cache" : "compiled",
                                  format_ms(jit::milliseconds_since(start)))};
}

// A check that throws has found what is wrong.
Finding look(const std::function<Finding()>& check) {
  try {
    return check();
  } catch (const std::exception& error) { return {Health::fail, error.what()}; }
}

std::string option_lines() {
  Table table({"variable", "value", "meaning"});
  for (const Option& option : option_table()) {
    std::string value = option_value(option.name);
    if (value.empty()) value = "-";
    table.row({option.name, option_is_set(option.name) ? value + " (set)" : value, option.meaning});
  }
  return table.text();
}

int run_doctor() {
  struct Check {
    const char* name;
    Finding (*look)();
  };
  constexpr Check kChecks[] = {{"compiler", look_at_compiler},     {"cache", look_at_cache},
                               {"cores", look_at_cores},           {"memory", look_at_memory},
                               {"huge pages", look_at_huge_pages}, {"kernel", look_at_kernel}};
  constexpr const char* kMarks[] = {"ok  ", "note", "FAIL"};
  bool well = true;
  for (const Check& check : kChecks) {
    const Finding finding = look(check.look);
    well = well && finding.health != Health::fail;
    print(fmt::format("{}  {:<10}  {}\n", kMarks[static_cast<int>(finding.health)], check.name, finding.text));
  }
  print("\n" + option_lines());
  return well ? kExitOk : kExitError;
}

Action declare_doctor(Arguments&) { return run_doctor; }

}  // namespace

Command doctor_command() {
  return {"doctor", "check that this machine has what Megalith needs", "megalith doctor", declare_doctor};
}

}  // namespace megalith::tools
