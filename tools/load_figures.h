// What the records of a run of `megalith bench serve` say of the server, and of the client that made them. Names and
// definitions are those of vLLM's `vllm bench serve`, as far as it has them:
//   ttft  from sending a request to the first event with a token
//   itl   between two events with tokens, be it one token or several
//   tpot  from the first event to the last, by the tokens that came behind the first event
//   e2el  from sending a request to the last event with a token
// Latencies and tokens are of requests that came to their end; all others are failures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/load_client.h"

namespace megalith::tools {

/// A row of the results: how requests are sent.
struct LoadRow {
  std::optional<double> rate;  // a second; none: all at once
  int64_t concurrency = 0;     // at a time at most; 0: no limit
  int64_t requests = 0;

  std::string name() const;  // "8 at a time", "10/s", "all at once", "10/s, 8 at a time"
};

/// Limits in milliseconds, by "ttft", "tpot" and "e2el": a request is good that keeps all of them.
using LoadObjectives = std::map<std::string, double>;

struct FailureGroup {
  int64_t count = 0;
  std::string example, retry_after;  // of the first one
};

struct LoadFigures {
  LoadRow row;
  int64_t sent = 0, completed = 0, good = 0, peak = 0;
  std::map<std::string, FailureGroup> failures;  // by kind
  double seconds = 0;                            // from the first request sent to the end of the last one
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  int64_t num_events = 0, counted = 0, counted_each = 0, shorter = 0;  // the last three are requests
  std::map<std::string, std::vector<double>> ms;                       // by "ttft", "tpot", "itl" and "e2el"
  std::vector<double> send_late_ms, wake_late_ms;
  double core_share = 0;

  static LoadFigures of(const LoadRow& row, const LoadRun& run, const LoadObjectives& objectives);

  int64_t failed() const { return sent - completed; }
  double per_second(int64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
  double tokens_per_event() const;
  /// Where the client's own delays are large against what it measured, a sentence each.
  std::vector<std::string> warnings() const;
  /// What else a reader of the figures should know.
  std::vector<std::string> notes() const;
};

struct LoadReport {
  std::string title;  // what was measured
  std::string base_url, endpoint, model;
  int64_t input_len = 0, output_len = 0, prefix_len = 0, seed = 0;
  double burstiness = 1;
  bool has_objectives = false, is_interrupted = false;
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // in the table; JSON has all of them
  std::vector<double> percentiles = {50, 90, 99};
  std::vector<LoadFigures> rows;

  std::string markdown() const;
  /// An array with an object a row, whose members have the names of vLLM's results.
  std::string json() const;
};

}  // namespace megalith::tools
