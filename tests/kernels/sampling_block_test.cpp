// A GPU's sampling (sampling/sampling.cuh) on a block of the host's threads, against the CPU's: the same tokens,
// whatever is asked for and however logits lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#define MEGALITH_BLOCK_WARPS 2
#define MEGALITH_BLOCK_LANES 4
#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 64 << 10, .area_bytes = 32 << 10, .stream_rows = 1};
}

#include "megalith/kernels/cuda/sampling/sampling.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[kWorkerConfig.shared_bytes];

namespace {

/// The operands of a `sampling` of rows that each have a request of their own.
struct Rows {
  static constexpr i64 N = 45, E = 3;  // requests: more than a warp has lanes
  struct Checks {
    static constexpr u32 best = 0, sample_request = 1, requests = 2, history = 3, sampling_i32 = 4, stop_tokens = 5,
                         own_stops = 6, bias_tokens = 7;
  };
  FaultNote faults{};  // of right data nobody notes one
  const Rows* task = this;
  i64 r_begin = 0, r_end, R, V, S, M = (V + 31) / 32;
  u32 is_aborted = 0;
  const u32* abort = &is_aborted;
  std::vector<f32> logits_, f32s, logprobs, adjusted_, biases_, top_logprobs;
  std::vector<i32> best_, request_, fields, texts, i32s, tokens, heap_, stops, own_stops_, bias_tokens_, top_tokens,
      masks_, mask_lengths_;
  f32 *logits, *sampling_f32, *logprob, *adjusted, *biases, *top_logprob;
  i32 *best, *sample_request, *requests, *history, *sampling_i32, *token, *heap, *stop_tokens, *own_stops, *bias_tokens,
      *top_token, *masks, *mask_lengths;

  Rows(i64 rows, i64 vocabulary, i64 length)
      : r_end(rows),
        R(rows),
        V(vocabulary),
        S(length),
        logits_(static_cast<size_t>(rows * vocabulary)),
        f32s(static_cast<size_t>(N * batch::kSamplingFloats)),
        logprobs(static_cast<size_t>(rows)),
        adjusted_(logits_.size()),
        biases_(static_cast<size_t>(N * batch::kMaxBiases)),
        top_logprobs(static_cast<size_t>(rows * batch::kMaxTop)),
        best_(static_cast<size_t>(rows)),
        request_(static_cast<size_t>(rows)),
        fields(static_cast<size_t>(N * batch::kRequestFields)),
        texts(static_cast<size_t>(N * length)),
        i32s(static_cast<size_t>(N * batch::kSamplingInts)),
        tokens(static_cast<size_t>(rows), -1),
        heap_(logits_.size()),
        stops(static_cast<size_t>(E), -1),
        own_stops_(static_cast<size_t>(N * batch::kMaxOwnStops), -1),
        bias_tokens_(biases_.size()),
        top_tokens(top_logprobs.size(), -1),
        masks_(static_cast<size_t>(N * M)),
        mask_lengths_(static_cast<size_t>(N)) {
    bind();
    for (i64 r = 0; r < rows; ++r) request_[static_cast<size_t>(r)] = static_cast<i32>((7 * r + 33) % N);
  }
  Rows(const Rows& other) = delete;
  static const Rows& of(const Rows& task) { return task; }

  void bind() {
    logits = logits_.data(), sampling_f32 = f32s.data(), logprob = logprobs.data(), adjusted = adjusted_.data();
    best = best_.data(), sample_request = request_.data(), requests = fields.data(), history = texts.data();
    sampling_i32 = i32s.data(), token = tokens.data(), heap = heap_.data(), biases = biases_.data();
    stop_tokens = stops.data(), own_stops = own_stops_.data(), bias_tokens = bias_tokens_.data();
    top_token = top_tokens.data(), top_logprob = top_logprobs.data();
    masks = masks_.data(), mask_lengths = mask_lengths_.data();
  }
  void find_best() {
    for (i64 r = 0; r < R; ++r)
      best[r] = static_cast<i32>(std::max_element(logits + r * V, logits + (r + 1) * V) - (logits + r * V));
  }
};

/// How logits lie: far apart, close together, on few values, all the same, most of them impossible.
enum class Spread { wide, narrow, steps, flat, holes };

f32 logit_of(Spread spread, std::mt19937_64& random) {
  const f32 normal = std::normal_distribution<f32>()(random);
  switch (spread) {
    case Spread::wide: return 3 * normal;
    case Spread::narrow: return 20 + 0.01f * normal;
    case Spread::steps: return std::round(2 * normal);
    case Spread::flat: return -1.5f;
    case Spread::holes: return random() % 8 == 0 ? normal : -kInfinity;
  }
  return 0;
}

template <class T>
T one_of(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

TEST(SamplingBlock, NormalExponentialsHaveTheBitsOfAll) {
  for (f32 x = -80; x <= 80; x += 0.000917f) ASSERT_EQ(exp_normal(x), exp(x)) << x;
}

class SamplingBlock : public ::testing::TestWithParam<std::tuple<i64, Spread>> {};

TEST_P(SamplingBlock, DrawsWhatOneThreadDraws) {
  const auto [vocabulary, spread] = GetParam();
  std::mt19937_64 random(static_cast<unsigned long>(vocabulary) * 7 + static_cast<unsigned long>(spread));
  const i64 num_rows = vocabulary > 5000 ? 6 : 40, length = 30;
  Rows rows(num_rows, vocabulary, length);
  for (f32& logit : rows.logits_) logit = logit_of(spread, random);
  for (i64 r = 0; r < num_rows; ++r) rows.logits[r * vocabulary] = 0.5f;  // one at least is possible
  rows.find_best();
  const i32 all = static_cast<i32>(vocabulary);
  for (i64 r = 0; r < num_rows; ++r) {
    const i64 n = rows.sample_request[r];
    f32* f32s = rows.sampling_f32 + n * batch::kSamplingFloats;
    f32s[batch::kTemperature] = one_of(random, {0.0f, 0.3f, 1.0f, 1.7f});
    f32s[batch::kTopP] = one_of(random, {1.0f, 0.95f, 0.5f, 0.01f, 0.0f});
    f32s[batch::kMinP] = one_of(random, {0.0f, 0.0f, 0.05f, 0.5f});
    f32s[batch::kRepetitionPenalty] = one_of(random, {1.0f, 1.0f, 0.0f, 1.3f, 0.8f});
    f32s[batch::kPresencePenalty] = one_of(random, {0.0f, 0.0f, 1.5f, -0.5f});
    f32s[batch::kFrequencyPenalty] = one_of(random, {0.0f, 0.0f, 0.25f});
    i32* i32s = rows.sampling_i32 + n * batch::kSamplingInts;
    i32s[batch::kTopK] = one_of(random, {0, 0, 1, 3, 8, 20, 600, all - 1, all, all + 5});
    i32s[batch::kSeedLow] = static_cast<i32>(random());
    const i32 top = r % 5 == 1 ? one_of(random, {1, 7, batch::kMaxTop}) : 0;
    i32s[batch::kExtras] = (r % 2 == 0 ? 0 : batch::kLogprobs) | (top > 0 ? batch::kTop : 0);
    i32* fields = rows.requests + n * batch::kRequestFields;
    fields[batch::kFlags] = top << batch::kTopShift;
    fields[batch::kLength] = static_cast<i32>(1 + random() % length);
    fields[batch::kPrompt] = static_cast<i32>(random() % static_cast<u64>(fields[batch::kLength] + 1));
    for (i64 s = 0; s < length; ++s)
      rows.history[n * length + s] = s % 5 == 0 ? rows.best[r] : static_cast<i32>(random() % static_cast<u64>(all));
    // A mask, of many tokens or few, with one at least.
    if (random() % 4 == 0) {
      i32s[batch::kExtras] |= batch::kMasked;
      rows.mask_lengths[n] = fields[batch::kLength];
      const bool is_sparse = random() % 2 == 0;
      for (i64 w = 0; w < rows.M; ++w)
        rows.masks[n * rows.M + w] = static_cast<i32>(random() & (is_sparse ? random() & random() & random() : ~0UL));
      const i64 one = static_cast<i64>(random() % static_cast<u64>(all));
      rows.masks[n * rows.M + one / 32] |= static_cast<i32>(1U << one % 32);
    }
    if (random() % 2 == 0) continue;
    // Biases of the top-1 token and of some of those behind it, each once; and it may not end yet, or not be another token.
    i32s[batch::kExtras] |= batch::kEdits;
    i32s[batch::kBiases] = std::min(all, one_of(random, {0, 1, 17, batch::kMaxBiases}));
    if (i32s[batch::kBiases] > 0 && random() % 3 == 0) i32s[batch::kExtras] |= batch::kOnly;
    for (i32 i = 0; i < i32s[batch::kBiases]; ++i) {
      rows.bias_tokens[n * batch::kMaxBiases + i] = (rows.best[r] + i) % all;
      rows.biases[n * batch::kMaxBiases + i] = one_of(random, {-100.0f, -1.5f, 0.25f, 3.0f});
    }
    // A bad word that ends with the top-1 token, whose other tokens were the last ones, if those were made.
    if (i32s[batch::kBiases] < 20 && fields[batch::kLength] >= 2) {
      i32s[batch::kBadTokens] = 3;
      const i64 at = n * batch::kMaxBiases + i32s[batch::kBiases];
      for (i32 i = 0; i < 3; ++i) {
        rows.bias_tokens[at + i] = i == 2 ? rows.best[r] : rows.history[n * length + fields[batch::kLength] - 2 + i];
        rows.biases[at + i] = i == 2 ? 3.0f : 0.0f;
      }
    }
    i32s[batch::kMinTokens] = static_cast<i32>(random() % 30);
    fields[batch::kFlags] |= static_cast<i32>(random() % 4);
    rows.stop_tokens[1] = rows.best[0];
    for (i32 i = 0; i < 5; ++i) rows.own_stops[n * batch::kMaxOwnStops + 3 * i] = (rows.best[r] + 2 * i) % all;
  }
  sample_rows(rows);
  const std::vector<i32> wanted = rows.tokens, wanted_top = rows.top_tokens;
  const std::vector<f32> logprobs = rows.logprobs, top_logprobs = rows.top_logprobs;
  std::ranges::fill(rows.tokens, -1);
  std::ranges::fill(rows.top_tokens, -1);
  by_block([&] { sample_rows_by_block(rows); });
  EXPECT_EQ(rows.tokens, wanted);
  EXPECT_EQ(rows.top_tokens, wanted_top);
  for (size_t i = 0; i < top_logprobs.size(); ++i) {
    if (rows.top_logprobs[i] == top_logprobs[i]) continue;  // both may be infinite
    EXPECT_NEAR(rows.top_logprobs[i], top_logprobs[i], 1e-6f * (1 - top_logprobs[i])) << i;
  }
  for (i64 r = 0; r < num_rows; ++r)
    EXPECT_NEAR(rows.logprob[r], logprobs[static_cast<size_t>(r)], 1e-6f * (1 + std::abs(rows.logprob[r]))) << r;
}

// Rows of requests that are told how likely their prompts are, some of them in the middle and some with drafts behind them.
TEST(SamplingBlock, TakesTokensThatAreKnown) {
  const i64 num_rows = 12, length = 30;
  Rows rows(num_rows, 333, length);
  std::mt19937_64 random(6);
  for (f32& logit : rows.logits_) logit = logit_of(Spread::wide, random);
  rows.find_best();
  const i32 request_of[] = {0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 4, 4};
  struct {
    i32 length, done;
    bool is_told;
  } const of[] = {{20, 9, true}, {20, 7, false}, {11, 11, true}, {6, 7, true}, {6, 7, false}};
  for (i32 n = 0; n < 5; ++n) {
    i32* const fields = rows.requests + n * batch::kRequestFields;
    fields[batch::kLength] = of[n].length, fields[batch::kDone] = of[n].done, fields[batch::kPrompt] = 3;
    fields[batch::kFlags] = of[n].is_told ? batch::kPromptLogprobs : 0;
    rows.sampling_i32[n * batch::kSamplingInts + batch::kExtras] = batch::kLogprobs;
    rows.sampling_f32[n * batch::kSamplingFloats + batch::kTemperature] = n == 2 ? 0.9f : 0;
    rows.sampling_f32[n * batch::kSamplingFloats + batch::kTopP] = 1;
    rows.sampling_f32[n * batch::kSamplingFloats + batch::kPresencePenalty] = n == 0 ? 5 : 0;
    for (i32 s = 0; s < length; ++s) rows.history[n * length + s] = 100 + 40 * n + s;
  }
  std::ranges::copy(request_of, rows.sample_request);
  sample_rows(rows);
  const std::vector<i32> wanted = rows.tokens;
  const std::vector<f32> logprobs = rows.logprobs;
  // The rows of request 0 stand behind 7, 8 and 9 tokens of 20, those of request 2 behind 8 to 11 of 11.
  const std::vector<i32> known = {107, 108, 109, -1, 188, 189, 190, -1, -1, -1, -1, -1};
  for (size_t r = 0; r < known.size(); ++r) {
    if (known[r] >= 0) { EXPECT_EQ(wanted[r], known[r]) << r; }
    if (known[r] < 0 && request_of[r] != 2) { EXPECT_EQ(wanted[r], rows.best[r]) << r; }
  }
  std::ranges::fill(rows.tokens, -1);
  by_block([&] { sample_rows_by_block(rows); });
  EXPECT_EQ(rows.tokens, wanted);
  for (size_t r = 0; r < logprobs.size(); ++r) {
    EXPECT_LT(logprobs[r], 0.0f);
    EXPECT_NEAR(rows.logprobs[r], logprobs[r], 1e-6f * (1 - logprobs[r])) << r;
  }
}

// The host is late: the block waits, and takes what it is sent then. A row that has no mask, or whose mask is there, does not.
TEST(SamplingBlock, WaitsForAMaskThatIsLate) {
  constexpr i64 kVocabulary = 700;
  Rows rows(3, kVocabulary, 8);
  std::mt19937_64 random(4);
  for (f32& logit : rows.logits_) logit = logit_of(Spread::wide, random);
  rows.find_best();
  const auto request_of = [&](i64 r) { return rows.sample_request[r]; };
  for (i64 r = 0; r < 3; ++r) {
    rows.requests[request_of(r) * batch::kRequestFields + batch::kLength] = static_cast<i32>(5 + r);
    if (r > 0) rows.sampling_i32[request_of(r) * batch::kSamplingInts + batch::kExtras] = batch::kMasked;
  }
  const auto allow = [&](i64 r, i32 token) { rows.masks[request_of(r) * rows.M + token / 32] = 1 << token % 32; };
  u32* const lengths = reinterpret_cast<u32*>(rows.mask_lengths);
  allow(1, 333);
  runtime::mask_publish(lengths + request_of(1), 6);
  runtime::mask_publish(lengths + request_of(2), 6);  // of the token before
  std::jthread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_EQ(load_relaxed(reinterpret_cast<u32*>(rows.token) + 1), 333U) << "the row before has waited, too";
    EXPECT_EQ(rows.token[2], -1) << "the row did not wait";
    allow(2, 699);
    runtime::mask_publish(lengths + request_of(2), 7);
  });
  by_block([&] { sample_rows_by_block(rows); });
  EXPECT_EQ(rows.tokens, (std::vector<i32>{rows.best[0], 333, 699}));
}

// Nobody writes it any more.
TEST(SamplingBlock, AnAbortEndsTheWaitForAMask) {
  Rows rows(1, 50, 4);
  rows.sampling_i32[rows.sample_request[0] * batch::kSamplingInts + batch::kExtras] = batch::kMasked;
  rows.requests[rows.sample_request[0] * batch::kRequestFields + batch::kLength] = 3;
  std::jthread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    store_relaxed(&rows.is_aborted, u32{1});
  });
  by_block([&] { sample_rows_by_block(rows); });
  sample_rows(rows);
}

TEST(SamplingBlock, SaysOfWhichRowsTheLogitsMeanNothing) {
  Rows rows(3, 20, 1);
  std::fill_n(rows.logits + 20, 20, std::numeric_limits<f32>::quiet_NaN());
  std::fill_n(rows.logits + 40, 20, std::numeric_limits<f32>::infinity());
  const auto expect_told = [&] {
    EXPECT_EQ(rows.logprob[0], 0.0f);
    EXPECT_TRUE(std::isnan(rows.logprob[1]));
    EXPECT_TRUE(std::isnan(rows.logprob[2]));
  };
  sample_rows(rows);
  expect_told();
  std::ranges::fill(rows.logprobs, 1.0f);
  by_block([&] { sample_rows_by_block(rows); });
  expect_told();
}

INSTANTIATE_TEST_SUITE_P(Rows, SamplingBlock,
                         ::testing::Combine(::testing::Values(1, 5, 333, 2500, 20000),
                                            ::testing::Values(Spread::wide, Spread::narrow, Spread::steps, Spread::flat,
                                                              Spread::holes)));

// The largest vocabulary of the shapes here, and what a model without training makes of it: nearly all tokens weigh.
INSTANTIATE_TEST_SUITE_P(ManyTokens, SamplingBlock,
                         ::testing::Combine(::testing::Values(151936),
                                            ::testing::Values(Spread::wide, Spread::narrow)));

TEST(SamplingBlock, DrawsGumbelNoiseAsOneThreadDoes) {
  struct {
    i64 r_begin = 0, r_end = 20, R = 20, V = 700;
    const f32* logits;
    i32 *seed, *draw, *token;
  } rows;
  std::mt19937_64 random(1);
  std::vector<f32> logits(static_cast<size_t>(rows.R * rows.V));
  for (f32& logit : logits) logit = logit_of(Spread::wide, random);
  i32 seed = 5, draw = 9;
  std::vector<i32> tokens(20, -1), wanted(20);
  rows.logits = logits.data(), rows.seed = &seed, rows.draw = &draw, rows.token = wanted.data();
  gumbel_argmax(rows);
  rows.token = tokens.data();
  by_block([&] { gumbel_argmax_by_block(rows); });
  EXPECT_EQ(tokens, wanted);
}

}  // namespace
}  // namespace megalith::kernels
