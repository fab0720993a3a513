#include "megalith/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace megalith::serve {

namespace {

// A step of a small model on a GPU takes some 0.4 ms, one of a large one 5 ms: there they are close enough that a tenth
// more is seen.
constexpr double kTokenSeconds[] = {0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.0006, 0.0008, 0.001, 0.0015, 0.002,
                                    0.0025, 0.003,  0.004,  0.005,  0.006,  0.008,  0.01,   0.015, 0.02,   0.03,
                                    0.05,   0.075,  0.1,    0.2,    0.5,    1,      2,      5};
constexpr double kRequestSeconds[] = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                      0.5,    1,      2,      5,     10,    20,    30,   60,   120,  300, 600};
constexpr double kTokens[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

std::string label(const std::string& value) {
  std::string result;
  for (const char c : value) {
    if (c == '\\' || c == '"') result += '\\';
    result += c;
    if (c == '\n') result.replace(result.size() - 1, 1, "\\n");
  }
  return result;
}

void head(std::string& text, const std::string& name, const char* type, const std::string& help) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

void Histogram::observe(double value) {
  ++counts_[static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

int64_t Histogram::count() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

void Histogram::write(std::string& text, const std::string& name, const std::string& help,
                      const std::string& labels) const {
  head(text, name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, below);
  }
  text += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, below);
}

Metrics::Metrics()
    : first_token_seconds(kRequestSeconds),
      inter_token_seconds(kTokenSeconds),
      request_seconds(kRequestSeconds),
      seconds_per_token(kTokenSeconds),
      queue_seconds(kRequestSeconds),
      prompt_seconds(kRequestSeconds),
      decode_seconds(kRequestSeconds),
      prompt_tokens_of_request(kTokens),
      tokens_of_request(kTokens) {}

std::string Metrics::text(const std::string& model, const engine::ServiceLoad& load, int connections,
                          const grammar::CompilerLoad& grammars) const {
  std::string text;
  const std::string labels = fmt::format("model_name=\"{}\"", label(model));
  const auto one = [&](const char* name, const char* type, const char* help, auto value) {
    head(text, name, type, help);
    text += fmt::format("{}{{{}}} {}\n", name, labels, value);
  };
  const auto each = [&](const char* name, const char* help, const char* key, const auto& values) {
    head(text, name, "counter", help);
    for (const auto& [value, count] : values)
      text += fmt::format("{}{{{},{}=\"{}\"}} {}\n", name, labels, key, value, count);
  };
  one("vllm:num_requests_running", "gauge", "Sequences that are being worked on.", load.running);
  one("vllm:num_requests_waiting", "gauge", "Sequences that wait for a slot.", load.waiting);
  const auto pages = static_cast<double>(std::max<int64_t>(load.pages, 1));
  one("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache's pages in use; 1 is all.",
      static_cast<double>(load.pages_used) / pages);
  one("vllm:num_preemptions_total", "counter", "Sequences that gave up their pages to others.", load.preemptions);
  one("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the prefix cache.",
      load.prefix_queries);
  one("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", load.prefix_hits);
  one("vllm:spec_decode_num_drafts_total", "counter", "Steps of a sequence that had drafts.", load.drafts);
  one("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts.", load.drafted_tokens);
  one("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that were right.", load.accepted_tokens);
  std::map<size_t, uint64_t> accepted_at;
  for (size_t i = 0; i < load.accepted_at.size(); ++i)
    if (load.accepted_at[i] > 0 || i == 0) accepted_at[i] = load.accepted_at[i];
  each("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafts that were right, by their place behind a token.",
       "position", accepted_at);
  one("vllm:prompt_tokens_total", "counter", "Prompt tokens of sequences whose first token was made.", prompt_tokens);
  one("vllm:generation_tokens_total", "counter", "Tokens made.", generated_tokens);
  each("vllm:request_success_total", "Sequences that ended, by why.", "finished_reason", finished);
  first_token_seconds.write(text, "vllm:time_to_first_token_seconds", "From the request to its first token.", labels);
  inter_token_seconds.write(text, "vllm:inter_token_latency_seconds", "Between a token and the next, at the engine.",
                            labels);
  seconds_per_token.write(text, "vllm:request_time_per_output_token_seconds",
                          "Time from the first token to the last by the tokens behind the first.", labels);
  queue_seconds.write(text, "vllm:request_queue_time_seconds", "From the request to its slot.", labels);
  prompt_seconds.write(text, "vllm:request_prefill_time_seconds", "From the slot to the first token.", labels);
  decode_seconds.write(text, "vllm:request_decode_time_seconds", "From the first token to the last.", labels);
  request_seconds.write(text, "vllm:e2e_request_latency_seconds", "From the request to the end of a sequence.", labels);
  prompt_tokens_of_request.write(text, "vllm:request_prompt_tokens", "Prompt tokens of a sequence.", labels);
  tokens_of_request.write(text, "vllm:request_generation_tokens", "Tokens made for a sequence.", labels);
  one("megalith:connections", "gauge", "Connections that are open.", connections);
  each("megalith:grammars_total", "Grammars of answers that were asked for, by what came of them.", "result",
       std::map<std::string, uint64_t>{
           {"compiled", grammars.compiled}, {"cached", grammars.found}, {"refused", grammars.refused}});
  one("megalith:grammar_cache_bytes", "gauge", "Memory of the grammars that are kept.", grammars.cache_bytes);
  each("megalith:http_replies_total", "Answers, by HTTP status.", "status", replies);
  each("megalith:requests_refused_total", "Requests for generation that were turned away, by why.", "reason", refused);
  return text;
}

}  // namespace megalith::serve
