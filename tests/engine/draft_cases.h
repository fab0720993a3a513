// What tests of drafts share, whoever makes them: requests asked for in all the ways there are, and how many drafts are right, counted
// slowly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "megalith/engine/engine.h"

namespace megalith::engine {

/// Request number r of several: how many tokens, and by which sampling.
inline void ask_in_a_way_of_its_own(Request& request, size_t r, std::mt19937_64& random) {
  request.max_new_tokens = r % 5 == 4 ? static_cast<int64_t>(1 + random() % 3) : 40;
  request.ignore_stop_tokens = r % 3 != 2;
  request.logprobs = true;
  Sampling& sampling = request.sampling;
  sampling.seed = r;
  if (r % 4 == 1) sampling.temperature = 0.7f;
  if (r % 4 == 2) sampling = {.temperature = 0.9f, .top_p = 0.9f, .top_k = 20, .seed = r};
  if (r % 4 == 3) sampling = {.repetition_penalty = 1.1f, .presence_penalty = 0.1f, .frequency_penalty = 0.05f};
}

inline void expect_same_sequences(const Generation& given, const Generation& wanted) {
  EXPECT_EQ(given.tokens, wanted.tokens);
  EXPECT_EQ(given.logprobs, wanted.logprobs);
  EXPECT_EQ(given.reasons, wanted.reasons);
}

/// Drafts that a sequence had while it was made, in how many iterations, and how many were right.
struct DraftCounts {
  uint64_t steps = 0, drafts = 0, accepted = 0;
  bool operator==(const DraftCounts&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const DraftCounts& counts) {
    return out << counts.accepted << " of " << counts.drafts << " in " << counts.steps << " steps";
  }
  DraftCounts& operator+=(const DraftCounts& more) {
    steps += more.steps, drafts += more.drafts, accepted += more.accepted;
    return *this;
  }
};
inline DraftCounts draft_counts(const Generation& generation) {
  return {generation.draft_steps, generation.drafted, generation.accepted};
}

/// The same, slowly, of a sequence that is alone and ends by its length: `guess(known, count)` makes `count` drafts behind tokens
/// that are known, or none; `most` of them at a time and, whatever came of the last ones, `least` (kernels/drafts.h).
template <class Guess>
DraftCounts count_slowly(const std::vector<int>& prompt, const std::vector<int>& made, int64_t most, int64_t least,
                         Guess guess) {
  DraftCounts counts;
  int64_t allowed = most;
  std::vector<int> known = prompt;
  known.push_back(made[0]);
  for (size_t at = 1; at < made.size();) {
    // The last token is the model's in any case. With none left one is guessed and not worked on.
    const int64_t room = static_cast<int64_t>(made.size() - at) - 1, count = std::min(room, allowed);
    const std::vector<int> drafts = room > 0 ? guess(known, std::max<int64_t>(count, 1)) : std::vector<int>();
    int64_t right = 0;
    while (right < static_cast<int64_t>(drafts.size()) &&
           drafts[static_cast<size_t>(right)] == made[at + static_cast<size_t>(right)])
      ++right;
    const int64_t accepted = std::min(right, count);
    if (!drafts.empty()) {
      allowed = right == static_cast<int64_t>(drafts.size()) ? std::min(most, 2 * allowed + 1)
                                                             : std::max((allowed + accepted) / 2, least);
      counts += {uint64_t{count > 0}, static_cast<uint64_t>(count), static_cast<uint64_t>(accepted)};
    }
    for (int64_t i = 0; i <= accepted; ++i) known.push_back(made[at++]);
  }
  return counts;
}

}  // namespace megalith::engine
