// megalith bench latency: how long a batch of requests takes from end to end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <memory>

#include "megalith/engine/engine.h"
#include "megalith/jit/stage.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/output_file.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr int kPercentiles[] = {10, 25, 50, 75, 90, 99};

struct LatencyOptions {
  ModelOptions model;
  int64_t input_len = 32, output_len = 128, batch_size = 8, warmup = 10, iterations = 30;
  std::string json;
};

std::string latency_json(const std::vector<double>& seconds) {
  std::vector<std::string> percentiles;
  for (int percent : kPercentiles)
    percentiles.push_back(fmt::format("\"{}\": {:.9f}", percent, percentile(seconds, percent)));
  return fmt::format(
      "{{\"avg_latency\": {:.9f}, \"std_latency\": {:.9f}, \"latencies\": [{:.9f}], \"percentiles\": {{{}}}}}\n",
      mean(seconds), standard_deviation(seconds), fmt::join(seconds, ", "), fmt::join(percentiles, ", "));
}

int run_bench_latency(const LatencyOptions& given) {
  LatencyOptions options = given;
  options.model.max_seq_len =
      context_for(options.input_len + options.output_len, options.model, config_read(options.model.folder()));
  const OutputFile json(options.json);
  engine::Engine engine(options.model.folder(), options.model.engine(options.batch_size));
  std::vector<engine::Request> requests;
  for (int64_t r = 0; r < options.batch_size; ++r) {
    engine::Request request{.max_new_tokens = options.output_len, .ignore_stop_tokens = true};
    for (int64_t i = 0; i < options.input_len; ++i)
      request.prompt.push_back(static_cast<int>((r * 104729 + i * 7919 + 13) % engine.config().vocab_size));
    requests.push_back(std::move(request));
  }

  std::vector<double> seconds;
  const InterruptGuard guard([&] { engine.cancel(); });
  for (int64_t i = -options.warmup; i < options.iterations; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    engine.generate(requests);
    if (guard.interrupted()) return kExitInterrupt;
    if (i >= 0) seconds.push_back(jit::milliseconds_since(begin) / 1000);
  }
  json.tell(fmt::format("Avg latency: {:.6f} seconds\nStd latency: {:.6f} seconds\n", mean(seconds),
                        standard_deviation(seconds)));
  for (int percent : kPercentiles)
    json.tell(fmt::format("{}% percentile latency: {:.6f} seconds\n", percent, percentile(seconds, percent)));
  json.write(latency_json(seconds));
  return kExitOk;
}

Action declare_bench_latency(Arguments& arguments) {
  auto options = std::make_shared<LatencyOptions>();
  arguments.group("Test");
  arguments.integer("--input-len", options->input_len, "tokens of each prompt (32)", 1, 1 << 20);
  arguments.integer("--output-len", options->output_len, "tokens made for each (128)", 1, 1 << 20);
  arguments.integer("--batch-size", options->batch_size, "requests at a time (8)", 1, 1024);
  arguments.integer("--num-iters-warmup", options->warmup, "runs before the first that counts (10)", 0, 10000);
  arguments.integer("--num-iters", options->iterations, "runs that count (30)", 1, 100000);
  arguments.text("--output-json", options->json, "FILE", "writes each latency and the percentiles there; - is stdout");
  options->model.declare(arguments, "as long as the tests need", "--batch-size");
  return [options] { return run_bench_latency(*options); };
}

}  // namespace

Command bench_latency_command() {
  return {"bench latency", "how long a batch of requests takes from end to end",
          "megalith bench latency models/storyteller --batch-size 4 --num-iters 5", declare_bench_latency};
}

}  // namespace megalith::tools
