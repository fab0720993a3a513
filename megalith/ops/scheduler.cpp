#include <algorithm>
#include <array>
#include <ranges>

#include "megalith/base/error.h"
#include "megalith/graph/operator.h"
#include "megalith/kernels/advance_layout.h"
#include "megalith/loop/interpret.h"
#include "megalith/ops/draft_reference.h"
#include "megalith/runtime/batch.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// The same decisions as kernels/cpu/advance.h, on arrays and without a mailbox.
void advance_reference(const loop::Binding& binding, loop::Arrays& arrays) {
  auto at = [&](const char* name, int64_t i) -> double& { return loop::element(arrays, name, {i}); };
  auto field = [&](int64_t n, int f) -> double& { return loop::element(arrays, "requests", {n, f}); };
  auto history = [&](int64_t n, double position) -> double& {
    return loop::element(arrays, "history", {n, static_cast<int64_t>(position)});
  };
  const int64_t num_requests = binding.sizes.at("N");

  const int64_t num_samples = binding.sizes.at("R");
  const auto is_sampled_each_row = [&](int64_t n) {
    return (static_cast<int>(field(n, batch::kFlags)) & batch::kPromptLogprobs) != 0;
  };
  std::vector<bool> is_known(static_cast<size_t>(num_samples), false);  // the sample's token, which is told and no more
  for (int64_t r = num_samples - 1, behind = 0; r >= 0; --r) {
    const auto n = static_cast<int64_t>(at("sample_request", r));
    behind = r + 1 < num_samples && at("sample_request", r + 1) == at("sample_request", r) ? behind + 1 : 0;
    is_known[static_cast<size_t>(r)] =
        is_sampled_each_row(n) && field(n, batch::kDone) - static_cast<double>(behind) < field(n, batch::kLength);
  }
  const auto attribute = [&](const char* name) { return static_cast<int64_t>(binding.attributes.at(name)); };
  const auto bits = [&](int64_t n) { return static_cast<int64_t>(field(n, batch::kFlags)); };
  constexpr int64_t kFewerUnit = int64_t{1} << batch::kFewerDraftsShift;
  const auto allowance = [&](int64_t n) { return attribute("draft_tokens") - bits(n) / kFewerUnit % 16; };
  struct Outcome {
    int64_t drafts = 0, accepted = 0;
  };
  std::vector<Outcome> outcomes(static_cast<size_t>(num_requests));
  for (int64_t r = 0; r < num_samples; ++r) {
    if (is_known[static_cast<size_t>(r)]) continue;
    const double token = at("token", r);
    const auto n = static_cast<int64_t>(at("sample_request", r));
    // Behind a draft that was not sampled before it, or behind the text's end, nothing counts.
    const bool is_behind_draft =
        r > 0 && at("sample_request", r - 1) == at("sample_request", r) && !is_known[static_cast<size_t>(r - 1)];
    Outcome& outcome = outcomes[static_cast<size_t>(n)];
    if (is_behind_draft) {
      ++outcome.drafts;
    } else if ((bits(n) & batch::kGuessed) != 0) {
      outcome = {1, history(n, field(n, batch::kLength)) == token};
      field(n, batch::kFlags) -= int{batch::kGuessed};
    }
    if (is_behind_draft && (static_cast<int>(field(n, batch::kState)) != batch::kActive ||
                            field(n, batch::kDone) < field(n, batch::kLength)))
      continue;
    outcome.accepted += is_behind_draft;
    history(n, field(n, batch::kLength)) = token;
    field(n, batch::kLength) += 1;
    field(n, batch::kLast) = token;
    const bool goes_on = r + 1 < num_samples && at("sample_request", r + 1) == at("sample_request", r) &&
                         at("row_token", static_cast<int64_t>(at("sample_row", r + 1))) == token;
    if (!goes_on) field(n, batch::kDone) = field(n, batch::kLength) - 1;
    const auto flags = static_cast<int>(field(n, batch::kFlags));
    bool stops = false;
    if ((flags & batch::kIgnoreStop) == 0)
      for (double stop_token : arrays.at("stop_tokens").values) stops |= stop_token == token;
    for (int64_t i = 0; (flags & batch::kOwnStops) != 0 && i < batch::kMaxOwnStops; ++i)
      stops |= loop::element(arrays, "own_stops", {n, i}) == token;
    if (stops)
      field(n, batch::kReason) = batch::kStopToken;
    else if (field(n, batch::kLength) >= field(n, batch::kLimit))
      field(n, batch::kReason) = batch::kLengthLimit;
    else
      continue;
    field(n, batch::kState) = batch::kFinished;
    field(n, batch::kDone) = field(n, batch::kLength) - 1;
  }

  for (int64_t n = 0; n < num_requests; ++n) {
    const auto [tried, accepted] = outcomes[static_cast<size_t>(n)];
    if (tried == 0 || static_cast<int>(field(n, batch::kState)) != batch::kActive) continue;
    const int64_t before = std::max<int64_t>(allowance(n), attribute("draft_model") > 0);
    const int64_t now =
        accepted == tried ? std::min(attribute("draft_tokens"), 2 * before + 1) : (before + accepted) / 2;
    field(n, batch::kFlags) += static_cast<double>((allowance(n) - now) * kFewerUnit);
  }

  const auto max_samples = static_cast<double>(arrays.at("sample_row").values.size());
  auto budget = static_cast<double>(arrays.at("row_token").values.size()), sample_budget = max_samples;
  const auto is_active = [&](int64_t n) { return static_cast<int>(field(n, batch::kState)) == batch::kActive; };
  double waiting = 0;
  for (int64_t n = 0; n < num_requests; ++n) {
    budget -= is_active(n), sample_budget -= is_active(n);
    if (!is_active(n)) continue;
    const double tokens = field(n, batch::kLength) - field(n, batch::kDone);
    waiting += is_sampled_each_row(n) ? std::min(tokens, std::max<double>(max_samples, 2)) : tokens;
  }
  const auto num_active =
      static_cast<int64_t>(std::ranges::count_if(std::views::iota(int64_t{0}, num_requests), is_active));
  std::vector<double> drafts(static_cast<size_t>(num_requests), 0);  // behind each request's text
  double possible = waiting;
  bool is_quiet = true;
  if (attribute("draft_tokens") > 0) {
    const auto share_of = [&](const char* rows) {
      return num_active > 0 && waiting == static_cast<double>(num_active)
                 ? std::clamp<int64_t>((attribute(rows) - num_active) / num_active, 0, attribute("draft_tokens"))
                 : 0;
    };
    const int64_t each = share_of("draft_rows"), free = share_of("draft_free_rows");
    bool has_some = false;
    for (int64_t n = 0; n < num_requests && each > 0; ++n) {
      if (!is_active(n)) continue;
      const auto length = static_cast<int64_t>(field(n, batch::kLength));
      const int64_t most = std::min<int64_t>(
          {each, static_cast<int64_t>(field(n, batch::kLimit)) - 1 - length, binding.sizes.at("S") - length});
      if (most <= 0 || (static_cast<int>(field(n, batch::kFlags)) & batch::kNoDrafts) != 0) continue;
      if (attribute("draft_model") > 0) {
        const int64_t count = std::min(most, std::max({free, allowance(n), int64_t{1}}));
        drafts[static_cast<size_t>(n)] = static_cast<double>(count);
        waiting += static_cast<double>(count);
        has_some = true;
        continue;
      }
      const auto token = [&](int64_t s) -> double& { return history(n, static_cast<double>(s)); };
      const int64_t behind = find_draft_place(token, length, attribute("draft_match")).begin;
      if (behind == 0) continue;
      const int64_t count = std::min(most, std::max(free, allowance(n)));
      token(length) = token(behind);
      if (count == 0) field(n, batch::kFlags) += int{batch::kGuessed};
      for (int64_t i = 1; i < count; ++i) token(length + i) = token(behind + i);  // of drafts, too
      drafts[static_cast<size_t>(n)] = static_cast<double>(count);
      waiting += static_cast<double>(count);
      has_some |= count > 0;
    }
    double& quiet = at("counts", batch::kQuiet);
    if (each > 0) possible = static_cast<double>(num_active * (1 + each));
    if (each > 0) quiet = has_some ? 0 : std::min<double>(quiet + 1, batch::kPatience);
    is_quiet = quiet >= batch::kPatience;
  }
  at("counts", batch::kWaiting) = waiting;
  if (is_quiet) possible = waiting;
  const bool goes_on =
      waiting > 0 && possible > at("counts", batch::kLeast) && waiting <= at("counts", batch::kMaxWaiting);
  // Rows of requests that have one, and of those that have several: {request, position, where its rows begin}.
  std::vector<std::array<double, 3>> singles, others;
  std::vector<std::array<double, 3>> sampled;  // rows
  for (int64_t n = 0; n < num_requests; ++n) {
    if (!is_active(n) || !goes_on) continue;
    const double start = field(n, batch::kDone), length = field(n, batch::kLength);
    const double room = is_sampled_each_row(n) ? std::min(budget, sample_budget) : budget;
    const double end = drafts[static_cast<size_t>(n)] > 0 ? length + drafts[static_cast<size_t>(n)]
                                                          : std::min(length, start + 1 + room);
    if (is_sampled_each_row(n)) sample_budget -= end - start - 1;
    if (drafts[static_cast<size_t>(n)] == 0) budget -= end - start - 1;
    for (double position = start; position < end; ++position) {
      const std::array<double, 3> row = {static_cast<double>(n), position, start};
      (end - start == 1 ? singles : others).push_back(row);
      if (position >= length - 1 || is_sampled_each_row(n)) sampled.push_back(row);
    }
    field(n, batch::kDone) = end;
  }
  const size_t rows = singles.size() + others.size(), slices = (rows + batch::kSliceRows - 1) / batch::kSliceRows;
  std::vector<std::array<double, 3>> order;
  for (size_t slice = 0, single = 0, other = 0; slice < slices; ++slice) {
    const size_t length = std::min<size_t>(batch::kSliceRows, rows - order.size());
    const size_t share = (slice + 1) * singles.size() / slices,
                 fitting = std::min(length, share - std::min(share, single)),
                 num_others = std::min(length - fitting, others.size() - other);
    const auto put_singles = [&] {
      for (size_t i = num_others; i < length; ++i) order.push_back(singles[single++]);
    };
    if (slice % 2 == 0) put_singles();
    for (size_t i = 0; i < num_others; ++i) order.push_back(others[other++]);
    if (slice % 2 != 0) put_singles();
  }
  for (size_t row = 0; row < rows; ++row) {
    const auto& [n, position, start] = order[row];
    const auto at_row = static_cast<int64_t>(row);
    at("row_token", at_row) = history(static_cast<int64_t>(n), position);
    at("row_request", at_row) = n;
    at("row_position", at_row) = position;
    at("row_start", at_row) = start;
  }
  const size_t samples = sampled.size();
  for (size_t i = 0; i < samples; ++i) {
    at("sample_row", static_cast<int64_t>(i)) =
        static_cast<double>(std::ranges::find(order, sampled[i]) - order.begin());
    at("sample_request", static_cast<int64_t>(i)) = sampled[i][0];
  }
  at("counts", batch::kRows) = static_cast<double>(rows);
  at("counts", batch::kSamples) = static_cast<double>(samples);
  at("stop", 0) = rows > 0 ? 0 : 1;
}

}  // namespace

/// Ends an iteration: takes in the sampled tokens and lays out the next iteration's rows (runtime/batch.h). Bookkeeping
/// is beyond a loop kernel, so this one only says what it touches: all of the batch block. With `draft_tokens` a request has so
/// many drafts at most (kernels/drafts.h), if `draft_match` tokens of its text say them, and those that have drafts
/// `draft_rows` rows together; of these `draft_free_rows` cost nothing. With `draft_model` a model makes them, and none are looked for.
graph::Operator advance() {
  return operator_("advance", "scheduler step: takes in the sampled tokens, ends requests, lays out the next iteration")
      .input("token", {"R"}, DType::i32)
      .input("logprob", {"R"})
      .input("top_token", {"R", "20"}, DType::i32)
      .input("top_logprob", {"R", "20"})
      .input("stop_tokens", {"E"}, DType::i32)
      .input("own_stops", {"N", "16"}, DType::i32)
      .inout("requests", {"N", "8"}, DType::i32)
      .inout("history", {"N", "S"}, DType::i32)
      .inout("counts", {"6"}, DType::i32)
      .inout("row_token", {"T"}, DType::i32)
      .inout("row_request", {"T"}, DType::i32)
      .inout("row_position", {"T"}, DType::i32)
      .inout("row_start", {"T"}, DType::i32)
      .inout("sample_row", {"R"}, DType::i32)
      .inout("sample_request", {"R"}, DType::i32)
      .inout("mailbox", {"W"}, DType::i32)
      .inout("stop", {"1"}, DType::i32)
      .attribute("draft_tokens", 0)
      .attribute("draft_match", 0)
      .attribute("draft_rows", 0)
      .attribute("draft_free_rows", 0)
      .attribute("draft_model", 0)
      .loops(R"(
        { [n, f, s, i, t, r, e, o, w, k] : 0 <= n < N and 0 <= f < 8 and 0 <= s < S and 0 <= i < 6 and 0 <= t < T and 0 <= r < R and 0 <= e < E and 0 <= o < 16 and 0 <= w < W and 0 <= k < 20 }
        requests[n, f]    = requests[n, f] + sum(r, token[r] + sample_request[r] + logprob[r]) + sum(e, stop_tokens[e]) + sum(o, own_stops[n, o])
        history[n, s]     = history[n, s]
        counts[i]         = counts[i]
        row_token[t]      = row_token[t]
        row_request[t]    = row_request[t]
        row_position[t]   = row_position[t]
        row_start[t]      = row_start[t]
        sample_row[r]     = sample_row[r]
        sample_request[r] = sample_request[r]
        mailbox[w]        = mailbox[w] + sum(r, sum(k, top_token[r, k] + top_logprob[r, k]))
        stop[0]           = stop[0]
      )")
      .reference(advance_reference)
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
             .prefetch = "advance_ahead",
             .take_over = "take_over_by_block"})
      .body("cuda", "scheduler/single_thread.cuh", "advance_by_one");
}

}  // namespace megalith::ops
