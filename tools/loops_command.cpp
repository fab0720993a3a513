// megalith loops: a loop kernel as its schedule makes it, step by step, and the source that comes of it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/jit/open_schedule.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/preprocess.h"
#include "megalith/loop/transform/transform.h"
#include "megalith/ops/registry.h"
#include "tools/command.h"
#include "tools/loops_bench.h"
#include "tools/loops_random.h"
#include "tools/loops_run.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct LoopsOptions {
  std::string file, schedule, target = "cpu", sizes, model;
  bool each = false, source = false, counts = false, assembly = false, check = false, bench = false;
  int64_t random = 0, seed = 1, nests = 0;
  bool duplications = false, passes = false;
};

// A file, or the loop kernel of an operator, whose types a graph gives: f32 here.
jit::OpenSchedule read_kernel(const std::string& file) {
  const auto registry = ops::builtin();
  if (registry->has(file) && !file_exists(file)) {
    const graph::Operator& op = registry->get(file);
    MEGALITH_CHECK(!op.loops.empty(), "the operator {} has no loop kernel of its own", file);
    std::string text = fmt::format("kernel {}\n", op.name);
    for (const loop::Attribute& attribute : op.attributes)
      text += fmt::format("attribute {} = {}\n", attribute.name, attribute.value);
    return jit::OpenSchedule(text + op.loops);
  }
  return jit::OpenSchedule(read_input(file));
}

// What the tags come to: who has which temporary, and where threads wait.
std::string summary(const loop::Kernel& kernel) {
  const std::vector<loop::Kernel> stages = loop::split_stages(loop::realise_dealt_out(loop::without_rules(kernel)));
  if (stages.size() > 1) {
    std::string text;
    for (const loop::Kernel& stage : stages) text += fmt::format("# {}:\n{}", stage.name, summary(stage));
    return text;
  }
  const loop::Parallel parallel = loop::make_parallel(stages[0]);
  std::string text = fmt::format("# checked: bounds, order, {}", plural(parallel.num_barriers, "barrier"));
  if (parallel.num_warp_barriers > 0) text += fmt::format(" ({} of a warp)", parallel.num_warp_barriers);
  int64_t threads = 1;
  for (const int64_t number : parallel.num_threads) threads *= number;
  if (threads > 1) text += fmt::format(", {} threads", threads);
  for (const auto& [name, space] : parallel.spaces) text += fmt::format(", {} {}", name, loop::space_name(space));
  return text + "\n";
}

int run_loops(const LoopsOptions& options) {
  if (options.random > 0) return check_random_loops(options.random, static_cast<uint64_t>(options.seed));
  if (options.target != "cpu" && !jit::is_cuda_target(options.target))
    throw UsageError{fmt::format("--target: \"{}\" is none of cpu, cuda, cuda:sm_90a", options.target)};
  if (options.nests > 0) return bench_loops(options.nests);
  if (!options.model.empty()) return bench_loops_of_model(options.model);
  if (options.file.empty()) throw UsageError{"FILE is missing: want a loop kernel, or --random N"};
  jit::OpenSchedule schedule = read_kernel(options.file);
  std::istringstream lines(options.schedule.empty() ? std::string() : read_input(options.schedule));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t before = schedule.schedule().steps().size();
    try {
      schedule = schedule.then(line);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}, line {}: {}", options.schedule, number, error.what()));
    }
    if (options.each && schedule.schedule().steps().size() > before)
      print(fmt::format("# {}\n{}{}\n", schedule.schedule().steps().back(), loop::print(schedule.kernel()),
                        summary(schedule.kernel())));
  }
  if (!options.each) print(loop::print(schedule.kernel()) + summary(schedule.kernel()));
  if (options.source) {
    const auto target = options.target == "cpu" ? codegen::LoopTarget::cpu : codegen::LoopTarget::cuda;
    const std::string name = schedule.kernel().name.empty() ? "kernel" : schedule.kernel().name;
    for (const codegen::LoopSource& source : codegen::emit_stages(schedule.kernel(), target, name))
      print("\n" + source.text);
  }
  if (options.passes)
    for (const loop::Pass& pass : loop::preprocess(schedule.kernel()))
      print(fmt::format("\n# {}\n{}", pass.name, pass.text));
  if (options.duplications)
    for (const auto& [iname, ids] : loop::duplication_options(schedule.kernel()))
      print(fmt::format("duplicate {0} -> {0}_copy in {1}\n", iname, fmt::join(ids, " ")));
  if (!options.counts && !options.assembly && !options.check && !options.bench) return kExitOk;
  const runtime::LoopKernel kernel(std::move(schedule), {});
  const LoopSizes sizes = parse_loop_sizes(options.sizes);
  if (options.counts) print(count_text(kernel, sizes));
  if (options.assembly) print(assembly_text(kernel, sizes, options.target));
  if (options.check) print(check_text(kernel, sizes, options.target));
  if (options.bench) print(bench_text(kernel, sizes, options.target));
  return kExitOk;
}

Action declare_loops(Arguments& arguments) {
  auto options = std::make_shared<LoopsOptions>();
  arguments.positional("FILE", options->file, "a loop kernel as text, - for stdin; or an operator's name", false);
  arguments.text("--apply", options->schedule, "FILE", "a schedule: a step a line");
  arguments.flag("--each", options->each, "the kernel after each step");
  arguments.flag("--source", options->source, "the function that comes of it");
  arguments.text("--target", options->target, "TARGET", "cpu, cuda or cuda:sm_90a: for which the source is");
  arguments.text("--sizes", options->sizes, "N=1024,M=64", "of the kernel, for what follows");
  arguments.flag("--counts", options->counts, "operations and accesses");
  arguments.flag("--asm", options->assembly, "the assembly, of a GPU PTX");
  arguments.flag("--check", options->check, "run it on random numbers, and hold it against the interpreter");
  arguments.flag("--bench", options->bench, "time it, beside a copy");
  arguments.flag("--duplications", options->duplications, "what would give each iname one loop, where they cross");
  arguments.integer("--bench-nests", options->nests, "no file: time for this many loop nests in a kernel");
  arguments.flag("--passes", options->passes,
                 "what it is before a schedule: types, what is computed twice, dependences, reductions as loops");
  arguments.text("--bench-model", options->model, "MODEL", "no file: time for the loop kernels of a decoder layer");
  arguments.integer("--random", options->random,
                    "no file: this many random kernels under random schedules, and as many that are wrong");
  arguments.integer("--seed", options->seed, "of the first of them");
  return [options] { return run_loops(*options); };
}

}  // namespace

Command loops_command() {
  return {"loops", "schedule a loop kernel: each step, its checks, the source, its speed",
          "megalith loops matmul.loops --apply matmul.schedule --source --target cuda", declare_loops};
}

}  // namespace megalith::tools
