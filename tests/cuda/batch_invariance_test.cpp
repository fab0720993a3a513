// With one kernel a sequence has the same bits alone and beside others, whatever part of its prompt an iteration has room
// for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cuda/skip.h"
#include "megalith/engine/engine.h"

namespace megalith {
namespace {

std::vector<engine::Request> random_requests(size_t count, size_t longest) {
  std::mt19937_64 random(longest);
  std::vector<engine::Request> requests(count);
  for (engine::Request& request : requests) {
    for (size_t i = 1 + random() % longest; i > 0; --i)
      request.prompt.push_back(static_cast<int>(300 + random() % 1000));
    request.max_new_tokens = 30;
    request.ignore_stop_tokens = request.logprobs = true;
  }
  return requests;
}

/// With drafts prompts repeat themselves. How many were right.
uint64_t expect_same_alone(int64_t max_rows, size_t longest, int64_t drafts = 0) {
  engine::Engine engine(MEGALITH_SOURCE_DIR "/models/storyteller",
                        {.decoder = {.max_rows = max_rows,
                                     .max_requests = std::min<int64_t>(max_rows, 12),
                                     .draft_tokens = drafts,
                                     .draft_match = 2},
                         .target = "cuda"});
  std::vector<engine::Request> requests =
      random_requests(static_cast<size_t>(engine.decoder_options().max_requests), longest);
  for (size_t r = 0; drafts > 0 && r < requests.size(); ++r) {
    std::vector<int>& prompt = requests[r].prompt;
    for (size_t i = 5 + r; i < prompt.size(); ++i) prompt[i] = prompt[i - 5 - r];
    if (r % 3 == 1) requests[r].sampling = {.temperature = 0.6f, .seed = r};
    if (r % 3 == 2) requests[r].sampling = {.presence_penalty = -3, .seed = r};  // what was made is made again
  }
  uint64_t accepted = 0;
  const engine::Generation together = engine.generate(requests);
  const auto expect_same = [&](size_t r, const std::vector<int>& tokens, const std::vector<float>& logprobs,
                               const char* how) {
    const auto [token, other] = std::ranges::mismatch(together.tokens[r], tokens);
    const auto [logprob, its] = std::ranges::mismatch(together.logprobs[r], logprobs);
    if (logprob == together.logprobs[r].end() && token == together.tokens[r].end()) return;
    ADD_FAILURE() << fmt::format(
        "{} tokens at a time, prompts of up to {}: sequence {} with a prompt of {} differs {} in token {}, and in how "
        "likely one is from {} on, {} instead of {}",
        max_rows, longest, r, requests[r].prompt.size(), how, token - together.tokens[r].begin(),
        logprob - together.logprobs[r].begin(), *its, *logprob);
  };
  for (size_t r = 0; r < requests.size(); ++r) {
    const engine::Generation alone = engine.generate({requests[r]});
    accepted += alone.accepted;
    expect_same(r, alone.tokens[0], alone.logprobs[0], "alone");
  }
  const engine::Generation again = engine.generate(requests);
  for (size_t r = 0; r < requests.size(); ++r) expect_same(r, again.tokens[r], again.logprobs[r], "again");
  return accepted;
}

TEST(CudaBatchInvariance, OfSequencesWithoutPrompts) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const int64_t rows : {2, 4, 8, 16, 64, 128, 256}) expect_same_alone(rows, 1);
}

TEST(CudaBatchInvariance, OfSequencesWithPrompts) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const int64_t rows : {2, 4, 8, 16, 64, 128, 256, 272, 512}) expect_same_alone(rows, 150);
}

// The fewer sequences there are the more drafts each has: of sequences that repeat themselves some are right.
TEST(CudaBatchInvariance, OfSequencesWithDrafts) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  uint64_t accepted = 0;
  for (const int64_t rows : {12, 16, 64, 256}) accepted += expect_same_alone(rows, 100, 7);
  EXPECT_GT(accepted, 20u);
}

}  // namespace
}  // namespace megalith
