#include <algorithm>

#include "megalith/graph/operator.h"
#include "megalith/kernels/advance_layout.h"
#include "megalith/loop/interpret.h"
#include "megalith/runtime/batch.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// The same decisions as kernels/cpu/advance.h, on arrays and without a mailbox.
void reference(const loop::Binding& binding, loop::Arrays& arrays) {
  auto at = [&](const char* name, int64_t i) -> double& { return loop::element(arrays, name, {i}); };
  auto field = [&](int64_t n, int f) -> double& { return loop::element(arrays, "requests", {n, f}); };
  auto history = [&](int64_t n, double position) -> double& {
    return loop::element(arrays, "history", {n, static_cast<int64_t>(position)});
  };
  const int64_t num_requests = binding.sizes.at("N");

  for (int64_t r = 0; r < binding.sizes.at("R"); ++r) {
    const double token = at("token", r);
    const auto n = static_cast<int64_t>(at("sample_request", r));
    history(n, field(n, batch::kLength)) = token;
    field(n, batch::kLength) += 1;
    bool stops = false;
    for (double stop_token : arrays.at("stop_tokens").values) stops |= stop_token == token;
    if (stops && field(n, batch::kIgnoreStop) == 0)
      field(n, batch::kReason) = batch::kStopToken;
    else if (field(n, batch::kLength) >= field(n, batch::kLimit))
      field(n, batch::kReason) = batch::kLengthLimit;
    else
      continue;
    field(n, batch::kState) = batch::kFinished;
  }

  auto budget = static_cast<double>(arrays.at("row_token").values.size());
  for (int64_t n = 0; n < num_requests; ++n) budget -= static_cast<int>(field(n, batch::kState)) == batch::kActive;
  int64_t rows = 0, samples = 0;
  for (int64_t n = 0; n < num_requests; ++n) {
    if (static_cast<int>(field(n, batch::kState)) != batch::kActive) continue;
    const double extra = std::min(field(n, batch::kLength) - field(n, batch::kDone) - 1, budget);
    budget -= extra;
    const double start = field(n, batch::kDone);
    for (double i = 0; i < 1 + extra; ++i, ++rows) {
      const double position = field(n, batch::kDone)++;
      at("row_token", rows) = history(n, position);
      at("row_request", rows) = static_cast<double>(n);
      at("row_position", rows) = position;
      at("row_start", rows) = start;
    }
    if (field(n, batch::kDone) < field(n, batch::kLength)) continue;
    at("sample_row", samples) = static_cast<double>(rows - 1);
    at("sample_request", samples++) = static_cast<double>(n);
  }
  at("counts", batch::kRows) = static_cast<double>(rows);
  at("counts", batch::kSamples) = static_cast<double>(samples);
  at("stop", 0) = static_cast<double>(rows) > at("counts", batch::kLeast) ? 0 : 1;
}

}  // namespace

/// Ends an iteration: takes in the sampled tokens and lays out the next iteration's rows (runtime/batch.h). Bookkeeping
/// is beyond a loop kernel, so this one only says what it touches: all of the batch block.
graph::Operator advance() {
  return operator_("advance", "scheduler step: takes in the sampled tokens, ends requests, lays out the next iteration")
      .input("token", {"R"}, DType::i32)
      .input("logprob", {"R"})
      .input("stop_tokens", {"E"}, DType::i32)
      .inout("requests", {"N", "8"}, DType::i32)
      .inout("history", {"N", "S"}, DType::i32)
      .inout("counts", {"4"}, DType::i32)
      .inout("row_token", {"T"}, DType::i32)
      .inout("row_request", {"T"}, DType::i32)
      .inout("row_position", {"T"}, DType::i32)
      .inout("row_start", {"T"}, DType::i32)
      .inout("sample_row", {"R"}, DType::i32)
      .inout("sample_request", {"R"}, DType::i32)
      .inout("mailbox", {"W"}, DType::i32)
      .inout("stop", {"1"}, DType::i32)
      .loops(R"(
        { [n, f, s, i, t, r, e, w] : 0 <= n < N and 0 <= f < 8 and 0 <= s < S and 0 <= i < 4 and 0 <= t < T and 0 <= r < R and 0 <= e < E and 0 <= w < W }
        requests[n, f]    = requests[n, f] + sum(r, token[r] + sample_request[r] + logprob[r]) + sum(e, stop_tokens[e])
        history[n, s]     = history[n, s]
        counts[i]         = counts[i]
        row_token[t]      = row_token[t]
        row_request[t]    = row_request[t]
        row_position[t]   = row_position[t]
        row_start[t]      = row_start[t]
        sample_row[r]     = sample_row[r]
        sample_request[r] = sample_request[r]
        mailbox[w]        = mailbox[w]
        stop[0]           = stop[0]
      )")
      .reference(reference)
      .body("cpu", "advance.h", "advance")
      .body({.target = "cuda",
             .file = "scheduler/advance.cuh",
             .name = "advance_by_block",
             .applies =
                 [](const graph::BodyQuery& q) {
                   return q.sizes.at("N") <= advance::kMaxRequests && q.sizes.at("R") <= advance::kMaxRequests &&
                          q.sizes.at("T") <= advance::kMaxRows && q.sizes.at("E") <= advance::kMaxStopTokens;
                 },
             .area_bytes = [](const graph::BodyQuery&) { return int64_t{advance::area_bytes()}; },
             .prefetch = "advance_ahead"})
      .body("cuda", "scheduler/single_thread.cuh", "advance_by_one");
}

}  // namespace megalith::ops
