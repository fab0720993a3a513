// A draft model's part of an iteration (ops/draft_model.cpp): which rows its first step works on, and what becomes of the token
// that a step has made. Bookkeeping of a few words, by one thread.
//
// The draft model sees each token that the other one sees, one step later at most. Of a request whose rows begin at `start` its
// first step works on the same known tokens; and on the one before, if that was made here: had all drafts been right, the last of
// them was made by the draft model and never looked at by it. (If there is no row for it: then these are tokens of a request that
// begins again, which looked at it in the iteration before.) Each further step works on the draft of the one before.
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

/// Lays out the rows of the first step, but for their tokens, and says how many there are; 0 if the tables do not fit. draft_counts:
/// rows of the first step; then of each step the requests that have a draft of it.
template <class Args>
inline i64 lay_out_draft_rows(const Args& a) {
  using Checks = typename Args::Checks;
  for (i64 i = 0; i < a.C; ++i) a.draft_counts[i] = 0;
  i64 rows = 0;
  i32 most = 0;
  const auto begins = [&](i64 r) { return a.row_position[r] == a.row_start[r]; };
  for (i64 r = 0; r < a.T; ++r) {
    if (!begins(r)) continue;
    const i64 request = a.row_request[r];
    if (!is_inside(a.faults, request, a.N, Checks::row_request)) return 0;
    const i32* const fields = a.requests + request * batch::kRequestFields;
    const i32 start = a.row_start[r], known = min(fields[batch::kDone], fields[batch::kLength]),
              first = start > fields[batch::kPrompt] && known - start < a.D_largest - rows ? start - 1 : start;
    if (!is_inside(a.faults, known - 1, a.S, Checks::requests) ||
        !is_inside(a.faults, first, known, Checks::row_start) ||
        !is_inside(a.faults, rows + known - first - 1, a.D_largest, Checks::requests))
      return 0;
    for (i32 position = first; position < known; ++position, ++rows) {
      a.draft_request[rows] = static_cast<i32>(request);
      a.draft_position[rows] = position;
      a.draft_start[rows] = first;
    }
    a.last_row[request] = static_cast<i32>(rows - 1);
    most = max(most, num_drafts(fields));
  }
  // Those with more drafts first, so that the requests of each step are the first ones of the step before.
  i64 drafters = 0;
  for (i32 count = most; count > 0; --count)
    for (i64 r = 0; r < a.T; ++r) {
      const i64 request = a.row_request[r];
      if (!begins(r) || num_drafts(a.requests + request * batch::kRequestFields) != count) continue;
      if (!is_inside(a.faults, drafters, a.N, Checks::row_request) ||
          !is_inside(a.faults, count, a.C, Checks::requests))
        return 0;
      a.drafter[drafters] = static_cast<i32>(request);
      a.drafter_row[drafters++] = a.last_row[request];
      for (i32 step = 0; step < count; ++step) ++a.draft_counts[1 + step];
    }
  a.draft_counts[0] = static_cast<i32>(rows);
  return rows;
}
/// The token of a row of the first step.
template <class Args>
inline i32 known_draft_token(const Args& a, i32 request, i32 position) {
  return token_within(a.history[request * a.S + position], static_cast<i64>(Args::draft_vocabulary));
}

/// The body of `draft_rows`.
template <class Args>
inline void draft_rows(const Args& a) {
  const i64 rows = lay_out_draft_rows(a);
  for (i64 r = 0; r < rows; ++r) a.draft_token[r] = known_draft_token(a, a.draft_request[r], a.draft_position[r]);
}

/// A token that a step has made, and where it stands.
struct MadeDraft {
  i32 request, position, token;  // request: -1 if the tables do not fit
};
/// Draft number `step` of drafter i: behind its last token, and to the next step.
template <class Args>
inline MadeDraft put_draft(const Args& a, i64 i) {
  using Checks = typename Args::Checks;
  const i32 best = a.best[i];
  const i64 request = a.drafter[i];
  if (!is_inside(a.faults, request, a.N, Checks::drafter)) return {-1, 0, 0};
  const i64 position = a.requests[request * batch::kRequestFields + batch::kLength] + static_cast<i64>(Args::step);
  if (!is_inside(a.faults, position, a.S, Checks::requests)) return {-1, 0, 0};
  const MadeDraft draft = {static_cast<i32>(request), static_cast<i32>(position),
                           token_within(best, static_cast<i64>(Args::vocabulary))};
  a.history[request * a.S + position] = draft.token;
  a.next_token[i] = token_within(draft.token, static_cast<i64>(Args::draft_vocabulary));
  a.next_request[i] = draft.request;
  a.next_position[i] = a.next_start[i] = draft.position;
  return draft;
}

/// The body of `draft_token`: draft number `step` of each request that has one goes behind its last token, into its row, and to the
/// next step.
template <class Args>
inline void draft_token(const Args& a) {
  for (i64 i = 0; i < a.B; ++i) {
    const MadeDraft draft = put_draft(a, i);
    for (i64 r = 0; r < a.T; ++r)
      if (a.row_request[r] == draft.request && a.row_position[r] == draft.position) a.row_token[r] = draft.token;
  }
}

}  // namespace megalith::kernels
