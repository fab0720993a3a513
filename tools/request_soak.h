// Requests that come and go at random while a kernel runs, for as long as one likes, each compared with what it made alone:
// the load goes up and down, prompts share their beginnings or repeat themselves, a third of the requests are given up at a random token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "megalith/engine/engine.h"
#include "megalith/engine/token_service.h"

namespace megalith::tools {

struct RequestSoakOptions {
  int64_t requests = 1000;
  uint64_t seed = 0;
  int64_t kinds = 256;  // different requests, each of which is first run alone; a fourth of `requests` at most
};

struct RequestSoakResult {
  int64_t ended = 0, aborted = 0, tokens = 0;
  int64_t steps = 0;  // that made a token, at least so many (with drafts more are counted)
  /// Ended requests that made another token, or the same ones with other log-probabilities, than alone.
  int64_t other_tokens = 0, other_logprobs = 0;
  /// Where those that take the likeliest token first made another one: by how much the two likeliest ones' log-probabilities
  /// differ at most, alone.
  double largest_gap = 0;
  std::string first_difference;                     // "": none
  engine::ServiceLoad before, after;                // without a request
  int64_t resident_before = 0, resident_after = 0;  // bytes, once a tenth of the requests had ended, and at the end
  int descriptors_before = 0, descriptors_after = 0;
  double seconds = 0;  // without those alone
  bool interrupted = false;
};

/// `alone`: runs each kind first, by itself; the same one, or one without drafts. `on_ended`: how many have; false ends it. SystemError if a request has not ended within a minute after the last one.
RequestSoakResult soak_requests(engine::Engine& engine, engine::Engine& alone, const RequestSoakOptions& options,
                                const std::function<bool(int64_t)>& on_ended);

}  // namespace megalith::tools
