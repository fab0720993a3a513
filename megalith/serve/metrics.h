// What a server counts, as Prometheus reads it. Names are vLLM's, prefix included, so that what people have for it (boards,
// autoscalers, routers) works here; histograms begin at 0.1 ms, because tokens take less than vLLM's first bucket of 10.
// All on the server's one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "megalith/engine/token_service.h"
#include "megalith/grammar/grammar.h"

namespace megalith::serve {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value);
  int64_t count() const;
  /// Appends its lines; `labels` is "a=\"b\"".
  void write(std::string& text, const std::string& name, const std::string& help, const std::string& labels) const;

 private:
  std::span<const double> bounds_;  // ascending; a value equal to one is in its bucket
  std::vector<int64_t> counts_;     // of each bucket alone; the last one is of what is above all bounds
  double sum_ = 0;
};

class Metrics {
 public:
  Metrics();

  Histogram first_token_seconds, inter_token_seconds, request_seconds, seconds_per_token;
  Histogram queue_seconds, prompt_seconds, decode_seconds;
  Histogram prompt_tokens_of_request, tokens_of_request;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  std::map<std::string, int64_t> finished;  // sequences, by finish reason: stop, length, abort, error
  std::map<int, int64_t> replies;           // by status
  std::map<std::string, int64_t> refused;   // generations, by reason: queue_full, draining, loading

  /// Everything, in the text format 0.0.4.
  std::string text(const std::string& model, const engine::ServiceLoad& load, int connections,
                   const grammar::CompilerLoad& grammars = {}) const;
};

}  // namespace megalith::serve
