// Rows for the operator `sampling`, with every wish that a request may have, and what its reference makes of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "megalith/ops/registry.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/batch.h"
#include "support/graph_run.h"

namespace megalith::testing {

/// One node `sampling` whose operands are states, to be set and read.
inline graph::Graph sampling_graph(int64_t rows, int64_t vocab, int64_t length = 1) {
  graph::Graph graph(ops::builtin(), "sampling");
  const std::vector<graph::TensorId> inputs = {graph.state("logits", DType::f32, {rows, vocab}),
                                               graph.state("best", DType::i32, {rows}),
                                               graph.state("sample_request", DType::i32, {rows}),
                                               graph.state("requests", DType::i32, {rows, batch::kRequestFields}),
                                               graph.state("history", DType::i32, {rows, length}),
                                               graph.state("sampling_f32", DType::f32, {rows, batch::kSamplingFloats}),
                                               graph.state("sampling_i32", DType::i32, {rows, batch::kSamplingInts}),
                                               graph.state("stop_tokens", DType::i32, {2}),
                                               graph.state("own_stops", DType::i32, {rows, batch::kMaxOwnStops}),
                                               graph.state("bias_tokens", DType::i32, {rows, batch::kMaxBiases}),
                                               graph.state("biases", DType::f32, {rows, batch::kMaxBiases}),
                                               graph.state("masks", DType::i32, {rows, (vocab + 31) / 32}),
                                               graph.state("mask_lengths", DType::i32, {rows})};
  graph.add("sampling", "sampling", inputs,
            {.outputs = {{"token", graph.state("token", DType::i32, {rows})},
                         {"logprob", graph.state("logprob", DType::f32, {rows})},
                         {"top_token", graph.state("top_token", DType::i32, {rows, batch::kMaxTop})},
                         {"top_logprob", graph.state("top_logprob", DType::f32, {rows, batch::kMaxTop})}}});
  return graph;
}

/// `run` makes the graph's tokens; they must be those of the reference.
inline void expect_sampling_is_right(int64_t vocab, const std::function<void(const graph::Graph&, GraphMemory&)>& run) {
  constexpr int64_t kRows = 1024, kLength = 600;
  const graph::Graph graph = sampling_graph(kRows, vocab, kLength);
  GraphMemory memory(graph);
  std::mt19937_64 random(3);
  std::vector<double> logits = random_values(kRows * vocab, DType::f32, 0, random), best, f32s, i32s, requests, history,
                      own_stops, bias_tokens, biases, told, masks, mask_lengths;
  for (double& value : logits) value = static_cast<float>(value * 3);
  for (int64_t r = 0; r < kRows; ++r)
    best.push_back(static_cast<double>(std::max_element(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab) -
                                       (logits.begin() + r * vocab)));
  const auto top_of = [](int64_t request) { return request % 16 == 1 ? batch::kMaxTop : request % 16 == 4 ? 3 : 0; };
  const auto request_of = [](int64_t row) { return kRows - 1 - row; };  // and the row of a request
  for (int64_t request = 0; request < kRows; ++request) {
    const double temperatures[] = {0, 0.3, 1.0, 1.7}, top_ps[] = {1.0, 0.9, 0.5, 0.01};
    const int64_t top_ks[] = {0, 1, 5, vocab - 1, vocab, 3 * vocab};
    const double min_ps[] = {0, 0, 0.05, 0.5}, repetitions[] = {1, 0, 1.3, 0.8, 1};
    const double presences[] = {0, 0, 1.5, -0.5}, frequencies[] = {0, 0, 0.25};
    f32s.insert(f32s.end(), {temperatures[random() % 4], top_ps[random() % 4], min_ps[random() % 4],
                             repetitions[random() % 5], presences[random() % 4], frequencies[random() % 3], 0, 0});
    // Every third has other logits: for some tokens, or for none; half of those may not end yet, and half have bad words.
    const bool is_edited = request % 3 == 2;
    const int64_t num_biases = is_edited ? static_cast<int64_t>(random() % 4) * std::min(vocab, int64_t{100}) : 0;
    // Bad words of one token, of two, and of three, the last of which ends with its row's likeliest token.
    const int64_t num_bad = is_edited && num_biases <= 200 && vocab >= 8 && random() % 2 == 0 ? 6 : 0;
    const bool is_masked = request % 8 == 5;
    const int extras = (is_masked ? batch::kMasked : 0) | (request % 4 == 0 ? 0 : batch::kLogprobs) |
                       (is_edited ? batch::kEdits : 0) | (num_biases > 0 && random() % 2 == 0 ? batch::kOnly : 0) |
                       (top_of(request) > 0 ? batch::kTop : 0);
    const double min_tokens = is_edited ? static_cast<double>(random() % kLength) : 0;
    i32s.insert(i32s.end(),
                {static_cast<double>(top_ks[random() % 6]), static_cast<double>(static_cast<int32_t>(random())),
                 static_cast<double>(request % 3), static_cast<double>(extras), min_tokens,
                 static_cast<double>(num_biases), static_cast<double>(num_bad), 0});
    // One that is sampled behind each row: in the middle of what is known, or at its end.
    const bool is_told = request % 8 == 3;
    const double length = static_cast<double>(1 + random() % kLength);
    const double done = is_told && request % 16 == 3 ? std::floor(length / 2) : length;
    const int stops[] = {0, batch::kIgnoreStop, batch::kOwnStops, batch::kIgnoreStop | batch::kOwnStops};
    for (int f = 0; f < batch::kRequestFields; ++f)
      requests.push_back(f == batch::kLength   ? length
                         : f == batch::kPrompt ? std::floor(length * static_cast<double>(1 + random() % 4) / 4)
                         : f == batch::kDone   ? done
                         : f == batch::kFlags  ? stops[random() % 4] | (is_told ? batch::kPromptLogprobs : 0) |
                                                    top_of(request) << batch::kTopShift
                                              : 0);
    told.push_back(is_told && done < length ? done : -1);
    // Some tokens, half of them, or nearly all; one at least.
    const uint64_t kept = random() % 3, one = random() % static_cast<uint64_t>(vocab);
    mask_lengths.push_back(is_masked ? length : 0);
    for (int64_t first = 0; first < vocab; first += 32) {
      auto word = static_cast<uint32_t>(random());
      if (kept != 1)
        word = kept == 0 ? word & static_cast<uint32_t>(random() & random() & random()) : word | 0xfffeffffU;
      if (one / 32 == static_cast<uint64_t>(first) / 32) word |= 1U << one % 32;
      masks.push_back(static_cast<double>(static_cast<int32_t>(word)));
    }
    // Its row's likeliest token among them, or penalties, biases and stop tokens would change nothing.
    const double likeliest = best[static_cast<size_t>(request_of(request))];
    std::vector<double> all(static_cast<size_t>(vocab));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    std::swap(all[0], *std::ranges::find(all, likeliest));
    for (int i = 0; i < batch::kMaxOwnStops; ++i)
      own_stops.push_back(i == 3 && request % 2 == 0 ? likeliest : i % 5 == 0 ? -1 : all[random() % all.size()]);
    for (size_t i = 0; i < batch::kMaxBiases; ++i) {
      bias_tokens.push_back(all[i % all.size()]);
      biases.push_back(static_cast<double>(static_cast<int64_t>(random() % 33) - 16) / 4);
    }
    for (int64_t s = 0; s < kLength; ++s)
      history.push_back(s % 7 == 0 ? likeliest : static_cast<double>(random() % vocab));
    if (num_bad == 0) continue;
    double* const tokens = bias_tokens.data() + request * batch::kMaxBiases + num_biases;
    double* const counts = biases.data() + request * batch::kMaxBiases + num_biases;
    tokens[5] = likeliest;
    for (int i = 0; i < 6; ++i) counts[i] = i == 0 ? 1 : i == 2 ? 2 : i == 5 ? 3 : 0;
    if (length < 2) continue;
    for (int i = 1; i <= 2; ++i)
      history[static_cast<size_t>(request * kLength + static_cast<int64_t>(length) - i)] = tokens[5 - i];
  }
  std::vector<double> sample_request;
  for (int64_t r = 0; r < kRows; ++r) sample_request.push_back(static_cast<double>(request_of(r)));
  memory.set("logits", logits);
  memory.set("best", best);
  memory.set("sample_request", sample_request);
  memory.set("requests", requests);
  memory.set("history", history);
  memory.set("sampling_f32", f32s);
  memory.set("sampling_i32", i32s);
  memory.set("stop_tokens", {-1, best[5]});
  memory.set("own_stops", own_stops);
  memory.set("bias_tokens", bias_tokens);
  memory.set("biases", biases);
  memory.set("masks", masks);
  memory.set("mask_lengths", mask_lengths);

  loop::Arrays expected = memory.arrays();
  graph::interpret(graph, optimize::lower(graph, "cpu"), expected, 1);
  run(graph, memory);
  const std::vector<double> found = memory.array("token").values, wanted = expected.at("token").values;
  int64_t different = 0, not_best = 0, greedy_moved = 0, edit_moved = 0, mask_moved = 0, num_told = 0;
  for (size_t r = 0; r < found.size(); ++r) {
    different += found[r] != wanted[r];
    not_best += found[r] != best[r];
    const auto request = static_cast<size_t>(request_of(static_cast<int64_t>(r)));
    if (told[request] >= 0) {  // what stands there
      EXPECT_EQ(found[r], history[request * kLength + static_cast<size_t>(told[request])]) << "row " << r;
      ++num_told;
      continue;
    }
    const bool is_moved = f32s[request * batch::kSamplingFloats + batch::kTemperature] == 0 && found[r] != best[r];
    (request % 8 == 5 ? mask_moved : request % 3 == 2 ? edit_moved : greedy_moved) += is_moved;
    if (request % 8 != 5) continue;
    const auto token = static_cast<size_t>(found[r]), words = static_cast<size_t>((vocab + 31) / 32);
    const auto word = static_cast<uint32_t>(static_cast<int32_t>(masks[request * words + token / 32]));
    EXPECT_TRUE(word >> token % 32 & 1) << "row " << r << " has a token that its mask leaves out";
  }
  const std::vector<double> logprob = memory.array("logprob").values, wanted_logprob = expected.at("logprob").values;
  for (size_t r = 0; r < found.size(); ++r) {
    if (found[r] != wanted[r]) continue;
    EXPECT_NEAR(logprob[r], wanted_logprob[r], 1e-5 * std::max(1.0, std::abs(wanted_logprob[r]))) << "row " << r;
    const int64_t request = request_of(static_cast<int64_t>(r));
    EXPECT_EQ(logprob[r] != 0, request % 4 != 0 || top_of(request) > 0) << "row " << r;
  }
  const std::vector<double> top = memory.array("top_token").values, top_logprob = memory.array("top_logprob").values;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < std::min<int64_t>(top_of(request_of(r)), vocab); ++i) {
      const auto at = static_cast<size_t>(r * batch::kMaxTop + i);
      EXPECT_EQ(top[at], expected.at("top_token").values[at]) << "row " << r << ", token " << i;
      EXPECT_NEAR(top_logprob[at], expected.at("top_logprob").values[at], 1e-5 * (1 - top_logprob[at])) << "row " << r;
    }
  // f32 weights against float64 ones: a draw that falls on the border of two tokens may go either way.
  EXPECT_LE(different, 2);
  EXPECT_GT(greedy_moved, kRows / 48) << "penalties hardly ever change the likeliest token";
  EXPECT_GT(edit_moved, kRows / 24) << "edits hardly ever do";
  EXPECT_GT(mask_moved, vocab > 1 ? kRows / 128 : -1) << "masks hardly ever do";
  EXPECT_GT(not_best, kRows / 8) << "sampling hardly ever samples";
  EXPECT_GT(num_told, kRows / 20) << "tokens hardly ever are known";
}

}  // namespace megalith::testing
