// megalith loops: a loop kernel as its schedule makes it, step by step, and the source that comes of it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/jit/random_loops.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct LoopsOptions {
  std::string file, schedule, target = "cpu";
  bool each = false, source = false;
  int64_t random = 0, seed = 1;
};

loop::Kernel read_kernel(const std::string& file) {
  loop::Kernel kernel = loop::parse_kernel(read_input(file));
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  return kernel;
}

// What the tags come to: who has which temporary, and where threads wait.
std::string summary(const loop::Kernel& kernel) {
  const loop::Parallel parallel = loop::make_parallel(kernel);
  std::string text = fmt::format("# checked: bounds, order, {}", plural(parallel.num_barriers, "barrier"));
  int64_t threads = 1;
  for (const int64_t number : parallel.num_threads) threads *= number;
  if (threads > 1) text += fmt::format(", {} threads", threads);
  for (const auto& [name, space] : parallel.spaces) text += fmt::format(", {} {}", name, loop::space_name(space));
  return text + "\n";
}

// Sixty-four kernels to a library.
int run_random(const LoopsOptions& options) {
  constexpr int64_t kTogether = 64;
  jit::RandomLoops all;
  for (int64_t done = 0; done < options.random; done += kTogether) {
    const auto count = static_cast<int>(std::min(kTogether, options.random - done));
    const jit::RandomLoops part = jit::check_random_loops(static_cast<uint64_t>(options.seed + done), count, 10,
                                                          {"-std=c++20", "-fPIC", "-O0", "-w"});
    all.num_kernels += part.num_kernels;
    all.num_steps += part.num_steps;
    all.num_refused += part.num_refused;
    all.num_barriers += part.num_barriers;
    all.num_without += part.num_without;
    for (const std::string& wrong : part.wrong) print(wrong + "\n");
    all.wrong.insert(all.wrong.end(), part.wrong.begin(), part.wrong.end());
  }
  print(fmt::format("{}, {} accepted, {} refused, {}, {} refused as code: {} wrong\n",
                    plural(all.num_kernels, "kernel"), plural(all.num_steps, "step"), all.num_refused,
                    plural(all.num_barriers, "barrier"), plural(all.num_without, "source"), all.wrong.size()));
  return all.wrong.empty() ? kExitOk : kExitError;
}

int run_loops(const LoopsOptions& options) {
  if (options.random > 0) return run_random(options);
  if (options.file.empty()) throw UsageError{"FILE is missing: want a loop kernel, or --random N"};
  loop::Schedule schedule(read_kernel(options.file));
  if (options.schedule.empty()) loop::check_scheduled(schedule.kernel());
  std::istringstream lines(options.schedule.empty() ? std::string() : read_input(options.schedule));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t before = schedule.steps().size();
    try {
      schedule = schedule.then(line);
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}, line {}: {}", options.schedule, number, error.what()));
    }
    if (options.each && schedule.steps().size() > before)
      print(fmt::format("# {}\n{}{}\n", schedule.steps().back(), loop::print(schedule.kernel()),
                        summary(schedule.kernel())));
  }
  if (!options.each) print(loop::print(schedule.kernel()) + summary(schedule.kernel()));
  if (options.source) {
    const auto target = options.target == "cpu" ? codegen::LoopTarget::cpu : codegen::LoopTarget::cuda;
    const std::string name = schedule.kernel().name.empty() ? "kernel" : schedule.kernel().name;
    print("\n" + codegen::emit_loops(schedule.kernel(), target, name).text);
  }
  return kExitOk;
}

Action declare_loops(Arguments& arguments) {
  auto options = std::make_shared<LoopsOptions>();
  arguments.positional("FILE", options->file, "a loop kernel as text; - is stdin", false);
  arguments.text("--apply", options->schedule, "FILE", "a schedule: a step a line");
  arguments.flag("--each", options->each, "the kernel after each step");
  arguments.flag("--source", options->source, "the function that comes of it");
  arguments.choice("--target", options->target, {"cpu", "cuda"}, "for which the source is");
  arguments.integer("--random", options->random, "no file: this many random kernels under random schedules, checked");
  arguments.integer("--seed", options->seed, "of the first of them");
  return [options] { return run_loops(*options); };
}

}  // namespace

Command loops_command() {
  return {"loops", "schedule a loop kernel: each step, its checks, the source",
          "megalith loops matmul.loops --apply matmul.schedule --source --target cuda", declare_loops};
}

}  // namespace megalith::tools
