// A draft model's part of an iteration (ops/draft_model.cpp): which rows its first step works on, and what becomes of the token
// that a step has made. Bookkeeping of a few words, by one thread.
//
// The draft model sees each token that the other one sees, one step later at most. Of a request whose rows begin at `start` its
// first step works on the same known tokens; and on the one before, if that was made here: had all drafts been right, the last of
// them was made by the draft model and never looked at by it. Each further step works on the draft of the one before.
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/drafts.h"
#include "megalith/runtime/batch.h"

namespace megalith::kernels {

/// Drafts behind the request's last token in this iteration.
constexpr i32 num_drafts(const i32* fields) {
  return has_drafts(fields) ? fields[batch::kDone] - fields[batch::kLength] : 0;
}

/// Tokens of the other model's vocabulary may be none of this one's: then another token stands for them, and drafts are worse.
constexpr i32 token_within(i32 token, i64 vocabulary) { return token >= 0 && token < vocabulary ? token : 0; }

/// The body of `draft_rows`. draft_counts: rows of the first step; then of each step the requests that have a draft of it.
template <class Args>
inline void draft_rows(const Args& a) {
  using Checks = typename Args::Checks;
  for (i64 i = 0; i < a.C; ++i) a.draft_counts[i] = 0;
  i64 rows = 0;
  i32 most = 0;
  const auto begins = [&](i64 r) { return a.row_position[r] == a.row_start[r]; };
  for (i64 r = 0; r < a.T; ++r) {
    if (!begins(r)) continue;
    const i64 request = a.row_request[r];
    if (!is_inside(a.faults, request, a.N, Checks::row_request)) return;
    const i32* const fields = a.requests + request * batch::kRequestFields;
    const i32 start = a.row_start[r], known = min(fields[batch::kDone], fields[batch::kLength]),
              first = start > fields[batch::kPrompt] ? start - 1 : start;
    if (!is_inside(a.faults, known - 1, a.S, Checks::requests) ||
        !is_inside(a.faults, first, known, Checks::row_start) ||
        !is_inside(a.faults, rows + known - first - 1, a.D_largest, Checks::requests))
      return;
    for (i32 position = first; position < known; ++position, ++rows) {
      a.draft_token[rows] = token_within(a.history[request * a.S + position], static_cast<i64>(Args::draft_vocabulary));
      a.draft_request[rows] = static_cast<i32>(request);
      a.draft_position[rows] = position;
    }
    a.last_row[request] = static_cast<i32>(rows - 1);
    most = max(most, num_drafts(fields));
  }
  a.draft_counts[0] = static_cast<i32>(rows);
  // Those with more drafts first, so that the requests of each step are the first ones of the step before.
  i64 drafters = 0;
  for (i32 count = most; count > 0; --count)
    for (i64 r = 0; r < a.T; ++r) {
      const i64 request = a.row_request[r];
      if (!begins(r) || num_drafts(a.requests + request * batch::kRequestFields) != count) continue;
      if (!is_inside(a.faults, drafters, a.N, Checks::row_request) ||
          !is_inside(a.faults, count, a.C, Checks::requests))
        return;
      a.drafter[drafters] = static_cast<i32>(request);
      a.drafter_row[drafters++] = a.last_row[request];
      for (i32 step = 0; step < count; ++step) ++a.draft_counts[1 + step];
    }
}

/// The body of `draft_token`: draft number `step` of each request that has one goes behind its last token, into its row, and to the
/// next step.
template <class Args>
inline void draft_token(const Args& a) {
  using Checks = typename Args::Checks;
  for (i64 i = 0; i < a.B; ++i) {
    const i64 request = a.drafter[i];
    if (!is_inside(a.faults, request, a.N, Checks::drafter)) return;
    const i32* const fields = a.requests + request * batch::kRequestFields;
    const i64 position = fields[batch::kLength] + static_cast<i64>(Args::step);
    if (!is_inside(a.faults, position, a.S, Checks::requests)) return;
    const i32 token = token_within(a.best[i], static_cast<i64>(Args::vocabulary));
    a.history[request * a.S + position] = token;
    for (i64 r = 0; r < a.T; ++r)
      if (a.row_request[r] == request && a.row_position[r] == position) a.row_token[r] = token;
    a.next_token[i] = token_within(token, static_cast<i64>(Args::draft_vocabulary));
    a.next_request[i] = static_cast<i32>(request);
    a.next_position[i] = static_cast<i32>(position);
  }
}

}  // namespace megalith::kernels
