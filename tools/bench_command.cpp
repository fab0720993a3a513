// megalith bench: how fast a model runs, beside how fast memory can be read.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/log.h"
#include "megalith/engine/machine_limits.h"
#include "megalith/runtime/process_age.h"
#include "megalith/runtime/resident_memory.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct BenchOptions {
  ModelOptions model;
  std::vector<int64_t> prompts = {512}, generates = {128}, depths = {0}, mixed = {}, active = {};
  int64_t repetitions = 5;
  std::string output = "md";
  SamplingOptions sampling = {.seed = 0};
};

std::vector<BenchTest> tests_of(const BenchOptions& options) {
  std::vector<BenchTest> tests;
  const int64_t room = std::max<int64_t>(options.model.max_batch, 1);
  if (options.mixed.size() % 2 != 0)
    throw UsageError{fmt::format("--mixed takes pairs, the tokens of a prompt and those made behind it, and has {}",
                                 plural(static_cast<int64_t>(options.mixed.size()), "number"))};
  for (int64_t depth : options.depths)
    for (int64_t requests : options.active.empty() ? std::vector{room} : options.active) {
      if (requests > room)
        throw UsageError{
            fmt::format("--active is {} and there is room for {}: add --max-batch {}", requests, room, requests)};
      const auto add = [&](int64_t prompt, int64_t generate) {
        if (prompt + generate > 0)
          tests.push_back({.prompt = prompt, .generate = generate, .depth = depth, .requests = requests});
      };
      for (int64_t prompt : options.prompts) add(prompt, 0);
      for (int64_t generate : options.generates) add(0, generate);
      for (size_t i = 0; i < options.mixed.size(); i += 2) add(options.mixed[i], options.mixed[i + 1]);
    }
  if (tests.empty()) throw UsageError{"nothing to measure: -p and -n are 0"};
  for (const BenchTest& test : tests)
    if (test.prompt > 0 && test.depth > 0 && !options.model.dummy())
      throw UsageError{
          "a prompt at a depth (-p or --mixed with -d) is measured on dummy weights only: add --load-format dummy, "
          "or -p 0"};
  return tests;
}

int64_t positions_of(const std::vector<BenchTest>& tests) {
  int64_t positions = 0;
  for (const BenchTest& test : tests) positions = std::max(positions, test.positions());
  return positions;
}

int run_bench(const BenchOptions& given) {
  const std::vector<BenchTest> tests = tests_of(given);
  BenchOptions options = given;
  options.model.max_seq_len = context_for(positions_of(tests), given.model, config_read(given.model.folder()));
  engine::Engine engine(options.model.folder(), options.model.engine(1));

  BenchReport report;
  report.ready_ms = runtime::process_age_ms();
  report.model = engine.config().name;
  report.architecture = engine.config().architecture;
  report.target = options.model.target;
  report.model_bytes = engine.weight_bytes();
  report.num_parameters = engine.num_parameters();
  report.kv_bytes = engine.kv_bytes();
  report.max_seq_len = engine.decoder_options().max_seq_len;
  report.num_workers = engine.num_workers();
  report.repetitions = static_cast<int>(options.repetitions);
  report.sampling = options.sampling.over({});

  bool interrupted = false;
  {
    const InterruptGuard guard([&] {
      interrupted = true;
      engine.cancel();
    });
    const auto multiply_rate = [&] { return engine::multiply_rate_gflops(report.target, report.num_workers); };
    report.multiply_gflops = multiply_rate();
    if (!runtime::resident_peak_reset()) log_info("[bench] the peak of memory includes that of compiling");
    for (const BenchTest& test : tests) {
      std::optional<BenchResult> result =
          bench_run(engine, test, report.repetitions, options.model, report.sampling, interrupted);
      if (!result) break;
      log_info("[bench] {} done", test.name());
      report.results.push_back(std::move(*result));
    }
    report.multiply_gflops = std::max(report.multiply_gflops, multiply_rate());
  }
  if (!interrupted || !report.results.empty())
    print(options.output == "md"     ? report.markdown()
          : options.output == "csv"  ? report.csv()
          : options.output == "json" ? report.json()
                                     : report.jsonl());
  return interrupted ? kExitInterrupt : kExitOk;
}

Action declare_bench(Arguments& arguments) {
  auto options = std::make_shared<BenchOptions>();
  arguments.group("Tests");
  arguments.integers("-p,--n-prompt", options->prompts, "prompts of so many tokens (512); 0: none", 0, 1 << 20);
  arguments.integers("-n,--n-gen", options->generates, "so many tokens made one by one (128); 0: none", 0, 1 << 20);
  arguments.integers("-d,--n-depth", options->depths, "behind so many tokens (0); free with --load-format dummy", 0,
                     1 << 20);
  arguments.integers("--mixed", options->mixed,
                     "P,N: a prompt of P tokens and N made behind it, in one run; more pairs behind it", 1, 1 << 20);
  arguments.integers("--active", options->active, "sequences at a time, of those that there is room for (--max-batch)",
                     1, 1 << 20);
  arguments.integer("-r,--repetitions", options->repetitions, "of each test, after one to warm up (5)", 1, 10000);
  arguments.choice("-o,--output", options->output, {"md", "csv", "json", "jsonl"}, "how results are written (md)");
  arguments.group("Sampling (greedy unless something else is asked for)");
  options->sampling.declare_drawing(arguments);
  options->model.declare(arguments, "as long as the tests need", "one");
  return [options] { return run_bench(*options); };
}

}  // namespace

Command bench_command() {
  return {"bench", "how fast a model runs, beside how fast memory is read",
          "megalith bench models/storyteller -p 64 -n 128", declare_bench};
}

}  // namespace megalith::tools
