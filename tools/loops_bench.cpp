#include "tools/loops_bench.h"

#include <fmt/format.h>

#include <chrono>

#include "megalith/codegen/loop_source.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/transform.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Each doubles one tensor: loopy's kernel that took it a minute to schedule.
std::string disjoint_nests(int64_t nests) {
  std::string text = "kernel disjoint\nassume n >= 1\n";
  for (int64_t i = 0; i < nests; ++i)
    text += fmt::format(
        "input x{0}: f32[n]\noutput y{0}: f32[n]\n{{ [q{0}] : 0 <= q{0} < n }}\ny{0}[q{0}] = 2 * x{0}[q{0}] + {0}\n",
        i);
  return text;
}

}  // namespace

int bench_loops(int64_t nests) {
  const std::string text = disjoint_nests(nests);
  auto start = Clock::now();
  loop::Kernel kernel = loop::parse_kernel(text);
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  const double read = seconds_since(start);
  start = Clock::now();
  // One step for all of them: what follows a step is looked at when it is done.
  std::string line = "split";
  for (int64_t i = 0; i < nests; ++i) line += fmt::format("{} q{} 128 -> q{}_o:g.0 q{}_i:l.0", i ? "," : "", i, i, i);
  const loop::Schedule schedule = loop::Schedule(kernel).then(line);
  const double scheduled = seconds_since(start);
  print(fmt::format("{} loop nests: read in {:.3f} s, scheduled and checked in {:.3f} s", nests, read, scheduled));
  double all = read + scheduled;
  for (const auto& [target, name] : {std::pair(codegen::LoopTarget::cpu, "cpu"), {codegen::LoopTarget::cuda, "cuda"}}) {
    start = Clock::now();
    const codegen::LoopSource source = codegen::emit_loops(schedule.kernel(), target, "disjoint");
    const double emitted = seconds_since(start);
    all += emitted;
    print(fmt::format(", {} source of {} bytes in {:.3f} s", name, source.text.size(), emitted));
  }
  print(fmt::format(": {:.3f} s in all\n", all));
  return kExitOk;
}

}  // namespace megalith::tools
