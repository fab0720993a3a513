// The parts of `megalith bench`: what a test is, what came out of it, and how that is written.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megalith/engine/engine.h"
#include "tools/model_options.h"

namespace megalith::tools {

/// A prompt of `prompt` tokens, or `generate` tokens one by one, or the first and then the second, behind `depth` tokens; and
/// of that so many requests at a time.
struct BenchTest {
  int64_t prompt = 0, generate = 0, depth = 0, requests = 1;

  bool is_mixed() const { return prompt > 0 && generate > 0; }
  std::string name() const;   // "pp512", "tg128 @ d4096", "tg128 x 8", "pp512+tg128 x 8"
  int64_t positions() const;  // of the context that each request needs
  int64_t tokens() const { return requests * (prompt + generate); }
};

struct BenchResult {
  BenchTest test;
  std::vector<double> seconds;   // per repetition
  std::vector<double> token_ms;  // from token to token of the first request, all repetitions
  std::vector<double> first_ms;  // of a mixed test: from its beginning to each request's first token, all repetitions
  double bytes_per_token = 0;    // of weights that are read
  double flops_per_token = 0;    // of the products with weights; attention comes on top
  int64_t peak_bytes = 0;        // of memory beyond weights
  // What memory gave just before the first repetition and after each of them, in GB/s. A machine's neighbours take more
  // or less of it from second to second, so a mean is held against a mean.
  std::vector<double> read_gbs;

  std::vector<double> tokens_per_second() const;
  double gigabytes_per_second() const;
  double gflops() const;
  double read_share() const;
};

/// What all tests of a run have in common.
struct BenchReport {
  std::string model, architecture, target;
  int64_t model_bytes = 0, num_parameters = 0, kv_bytes = 0, max_seq_len = 0;
  int num_workers = 0, repetitions = 0;
  double ready_ms = 0;         // from the beginning of the process until the model could be asked
  double multiply_gflops = 0;  // the larger of before and after
  engine::Sampling sampling;
  std::vector<BenchResult> results;

  double multiply_share(const BenchResult& result) const;

  std::string markdown() const;
  std::string csv() const;
  std::string json() const;
  std::string jsonl() const;
};

/// A table in Markdown, aligned for those who read it as it is; `right`: the columns that are aligned to the right.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::set<size_t>& right);

/// Runs a test `repetitions` times on the engine, once more to warm up, and reads memory in between. Nothing if
/// `interrupted` became true.
std::optional<BenchResult> bench_run(engine::Engine& engine, const BenchTest& test, int repetitions,
                                     const ModelOptions& options, const engine::Sampling& sampling,
                                     const bool& interrupted);

}  // namespace megalith::tools
