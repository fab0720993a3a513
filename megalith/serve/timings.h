// How long an answer took, as llama-server says it: its prompt, without what the prefix cache had of it, and the tokens behind it.
// The first token comes with the prompt, so n tokens are n - 1 steps.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::serve {

/// On the steady clock; 0: not yet.
struct AnswerTimes {
  uint64_t admitted_ns = 0, first_ns = 0,
           last_ns = 0;  // the request got its place; its first token came, and its last one
};

/// {"cache_n", "prompt_n", "prompt_ms", ...}. All values are finite.
std::string timings_json(const AnswerTimes& times, int64_t prompt_tokens, int64_t cached_tokens, int64_t tokens);

}  // namespace megalith::serve
