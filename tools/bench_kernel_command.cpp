// megalith bench kernel: how fast one operator runs by itself, beside what memory and the processor can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/engine/operator_bench.h"
#include "megalith/ops/registry.h"
#include "megalith/task/partition.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using engine::MachineLimits;
using engine::OperatorSizes;
using engine::OperatorTiming;

struct KernelOptions {
  std::string name, target = "cpu", dtype = "bf16", output = "md";
  std::vector<std::string> shapes;
  int64_t workers = 0, repetitions = 100;
};

// "T=1,H=4096"
OperatorSizes parse_shape(const std::string& text) {
  OperatorSizes sizes;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equal = part.find('=');
    int64_t value = 0;
    const char* const first = part.data() + std::min(equal, part.size() - 1) + 1;
    const auto [rest, code] = std::from_chars(first, part.data() + part.size(), value);
    if (equal == std::string::npos || equal == 0 || code != std::errc() || rest != part.data() + part.size() ||
        value < 1)
      throw UsageError{fmt::format("--shape {}: \"{}\" is no size, want such as T=8,H=4096", text, part)};
    sizes[part.substr(0, equal)] = value;
    at = end + 1;
  }
  return sizes;
}

struct Row {
  const OperatorTiming& timing;
  double seconds, gbs, gflops, read_share, multiply_share;

  Row(const OperatorTiming& t, const MachineLimits& limits)
      : timing(t),
        seconds(t.median_seconds()),
        gbs(t.gigabytes_per_second()),
        gflops(t.gflops()),
        read_share(gbs / limits.read_gbs),
        multiply_share(gflops / limits.multiply_gflops) {}
  const char* bound() const { return read_share >= multiply_share ? "memory" : "arithmetic"; }
};

std::string sizes_text(const OperatorSizes& sizes, const char* format, const char* between) {
  std::vector<std::string> texts;
  for (const auto& [name, size] : sizes) texts.push_back(fmt::format(fmt::runtime(format), name, size));
  return fmt::format("{}", fmt::join(texts, between));
}

std::string kernel_markdown(const KernelOptions& options, int workers, const std::vector<Row>& rows,
                            const MachineLimits& limits) {
  std::vector<std::vector<std::string>> cells = {{"operator", "shape", "dtype", "backend", "workers", "median us",
                                                  "GB/s", "of read", "GFLOP/s", "of multiply", "nearest limit"}};
  for (const Row& row : rows)
    cells.push_back({options.name, sizes_text(row.timing.sizes, "{}={}", " "), options.dtype, options.target,
                     fmt::format("{}", workers), fmt::format("{:.2f}", row.seconds * 1e6),
                     fmt::format("{:.2f}", row.gbs), fmt::format("{:.1f} %", 100 * row.read_share),
                     fmt::format("{:.1f}", row.gflops), fmt::format("{:.1f} %", 100 * row.multiply_share),
                     row.bound()});
  return markdown_table(cells, {4, 5, 6, 7, 8, 9}) +
         fmt::format("\nlimits: {:.2f} GB/s read, {:.1f} GFLOP/s multiplied, by as many workers; medians of {}\n",
                     limits.read_gbs, limits.multiply_gflops, plural(options.repetitions, "run"));
}

std::string kernel_json(const KernelOptions& options, int workers, const std::vector<Row>& rows,
                        const MachineLimits& limits) {
  std::vector<std::string> objects;
  for (const Row& row : rows) {
    std::vector<std::string> samples;
    for (const double seconds : row.timing.seconds) samples.push_back(fmt::format("{:.4f}", seconds * 1e6));
    objects.push_back(fmt::format(
        "{{\"operator\": {}, \"sizes\": {{{}}}, \"dtype\": {}, \"backend\": {}, \"build\": {}, \"n_workers\": {}, "
        "\"copies\": {}, \"iterations\": {}, \"runs\": {}, \"median_us\": {:.4f}, \"p10_us\": {:.4f}, \"p90_us\": "
        "{:.4f}, "
        "\"bytes\": {:.0f}, \"gbs\": {:.4f}, \"read_gbs\": {:.4f}, \"read_share\": {:.6f}, \"flops\": {:.0f}, "
        "\"gflops\": {:.4f}, \"multiply_gflops\": {:.4f}, \"multiply_share\": {:.6f}, \"samples_us\": [{}]}}",
        json_quote(options.name), sizes_text(row.timing.sizes, "\"{}\": {}", ", "), json_quote(options.dtype),
        json_quote(options.target), json_quote(MEGALITH_VERSION), workers, row.timing.copies, row.timing.iterations,
        row.timing.seconds.size(), row.seconds * 1e6, percentile(row.timing.seconds, 10) * 1e6,
        percentile(row.timing.seconds, 90) * 1e6, row.timing.bytes, row.gbs, limits.read_gbs, row.read_share,
        row.timing.flops, row.gflops, limits.multiply_gflops, row.multiply_share, fmt::join(samples, ", ")));
  }
  return fmt::format("[\n{}\n]\n", fmt::join(objects, ",\n"));
}

int run_bench_kernel(const KernelOptions& options) {
  std::vector<OperatorSizes> shapes;
  for (const std::string& text : options.shapes) shapes.push_back(parse_shape(text));
  const graph::Operator& op = ops::builtin()->get(options.name);
  if (shapes.empty()) shapes = engine::bench_shapes(op);
  const InterruptGuard guard([] {});
  const engine::OperatorBench bench{.target = options.target,
                                    .num_workers = static_cast<int>(options.workers),
                                    .runs = static_cast<int>(options.repetitions),
                                    .dtype = dtype_parse(options.dtype),
                                    .cancelled = [&] { return guard.interrupted(); }};
  const engine::OperatorBenchResult result =
      engine::bench_operator(op, shapes, bench, [&](const OperatorTiming& timing) {
        log_info("[bench] {} {} done", options.name, sizes_text(timing.sizes, "{}={}", " "));
        return !guard.interrupted();
      });
  std::vector<Row> rows;
  for (const OperatorTiming& timing : result.timings) rows.emplace_back(timing, result.limits);
  if (rows.empty()) return kExitInterrupt;
  const bool is_markdown = options.output == "md";
  print((is_markdown ? kernel_markdown : kernel_json)(options, result.num_workers, rows, result.limits));
  return guard.interrupted() ? kExitInterrupt : kExitOk;
}

Action declare_bench_kernel(Arguments& arguments) {
  auto options = std::make_shared<KernelOptions>();
  arguments.positional("NAME", options->name, "the operator: its file in megalith/ops, such as rmsnorm");
  arguments.group("Test");
  arguments.texts("-s,--shape", options->shapes, "SIZES",
                  "such as T=8,H=4096, for each of the operator's sizes; again for more shapes (four that it chooses)");
  arguments.choice("--dtype", options->dtype, {"bf16", "f16", "f32"}, "of operands that have none of their own (bf16)");
  arguments.integer("-r,--repetitions", options->repetitions, "runs of each shape, whose median is told (100)", 1,
                    10000);
  arguments.integer("-t,--threads,--workers", options->workers, "workers (0: MEGALITH_THREADS, or every core)", 0,
                    task::kMaxWorkers);
  arguments.choice("--target", options->target, {"cpu", "cuda"}, "cuda: the GPU of this machine (cpu)");
  arguments.choice("-o,--output", options->output, {"md", "json"}, "how results are written (md)");
  return [options] { return run_bench_kernel(*options); };
}

}  // namespace

Command bench_kernel_command() {
  return {"bench kernel", "how fast one operator runs, beside what memory and cores can do",
          "megalith bench kernel rmsnorm -s T=8,H=4096 -s T=64,H=4096", declare_bench_kernel};
}

}  // namespace megalith::tools
