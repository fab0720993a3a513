// The last task of every iteration of a token loop over tables as servers keep them (ops/next_batch.cpp): takes in the
// tokens that the iteration has made, ends and admits requests, and lays out the rows and pages of the next one.
// Every request that has begun gets a row before any gets a second, so that nobody starves; prompts get what is left,
// and drafts (kernels/drafts.h) what prompts leave. A slot's pages are its own, so that a request that has begun never
// waits for a page. Where there are as many slots as requests each request has the slot of its number, in every run: what
// is in its pages may be gone on with.
//
// In four steps, of which a GPU takes the third one by all threads of a block: take_in_batch(), admit_batch(), find_match() for
// each slot, lay_out_batch(). A loop that takes requests while it runs has another second step (serve_batch.h).
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/drafts.h"
#include "megalith/runtime/mailbox.h"

namespace megalith::kernels {

/// What `config` holds; at kLastTokens the tokens that end a text, up to kMaxLastTokens and -1 behind them.
constexpr i64 kMaxLastTokens = 16;
enum NextBatchConfig { kLongest, kPageSize, kPagesPerSlot, kVocabulary, kLastTokens, kNextBatchConfig = 20 };
/// `slots` has these for each slot, one table of all slots behind the other, ...
enum NextBatchSlot {
  kSlotRequest,  // or -1
  kSlotPrompt,   // tokens of its prompt
  kSlotLimit,    // the length at which it ends
  kSlotMatch,    // a DraftMatch, of the next iteration
  kNextBatchSlot
};
/// ... and then these.
enum NextBatchState {
  kNextRequest,
  kHasBegun,
  kIterations,      // until now
  kDrafts,          // of a request that had some, likewise
  kDrafted,         // drafts, likewise
  kAcceptedDrafts,  // that were right
  kIsEnding,        // of a loop that serves: no requests come any more
  kNextBatchState
};

/// Drafts as a `next_batch` knows them: how many a request has at most, and how many tokens must match.
template <class Args>
struct NextDrafts {
  static constexpr i64 kTokens = static_cast<i64>(Args::draft_tokens);
  static constexpr int kMatch = static_cast<int>(Args::draft_match);
  static constexpr bool kIsOn = kTokens > 0;
};

template <class Args>
inline i32& of_slot(const Args& a, NextBatchSlot field, i64 r) {
  return a.slots[field * a.R + r];
}
template <class Args>
inline i32* batch_state(const Args& a) {
  return a.slots + kNextBatchSlot * a.R;
}

template <class Args>
inline bool ends_text(const Args& a, i64 token) {
  for (i64 i = 0; i < kMaxLastTokens && a.config[kLastTokens + i] >= 0; ++i)
    if (token == a.config[kLastTokens + i]) return true;
  return token < 0 || token >= a.config[kVocabulary];
}

/// Who wants to know what is made, and what ends, in the rows of a request: nobody.
struct Untold {
  void made(i64, i64, u32) const {}
  void ended(i64, i64, batch::FinishReason) const {}
};

/// The request of slot `r` goes on by the rows that it had: its next token and, as long as a draft is what was made before it,
/// the one behind that. False if it has ended, or its tables are wrong.
template <class Args, class Told>
inline bool goes_on(const Args& a, i64 r, Told told) {
  using Checks = typename Args::Checks;
  const i64 request = of_slot(a, kSlotRequest, r), prompt = of_slot(a, kSlotPrompt, r), text = a.W / a.N;
  if (!is_inside(a.faults, request, a.N, Checks::slots)) return false;
  const i64 first = a.first_row[r], rows = a.first_row[r + 1] - first;
  // Rows of tokens that were known. Drafts stand behind the last one alone.
  const i64 known = NextDrafts<Args>::kIsOn && a.step[request] >= prompt - 1 ? min(rows, i64(1)) : rows;
  i64 step = a.step[request] + known;
  if (!is_inside(a.faults, step, text, Checks::step)) return false;
  a.step[request] = static_cast<i32>(step);
  if (rows == 0 || step < prompt) return true;
  if (!is_inside(a.faults, first + known - 1, a.T_largest, Checks::first_row) ||
      !is_inside(a.faults, first + rows - 1, a.T_largest, Checks::first_row))
    return false;
  i32* const state = batch_state(a);
  if (rows > known) ++state[kDrafts], state[kDrafted] += static_cast<i32>(rows - known);
  u32 drafts = static_cast<u32>(rows - known);
  for (i64 row = first + known - 1;; ++row) {
    const i64 token = a.output[row];
    a.tokens[request * text + step] = static_cast<i32>(token);
    told.made(request, token, drafts);
    const bool is_last = ends_text(a, token);
    if (is_last || step + 1 >= of_slot(a, kSlotLimit, r)) {
      told.ended(request, token, is_last ? batch::kStopToken : batch::kLengthLimit);
      return false;
    }
    if (row + 1 >= first + rows || a.input[row + 1] != token) return true;
    if (!is_inside(a.faults, ++step, text, Checks::step)) return false;
    a.step[request] = static_cast<i32>(step);
    ++state[kAcceptedDrafts];
    drafts = runtime::kAccepted;
  }
}

/// A slot that is free gets the next request of which something is left to do.
template <class Args>
inline bool admit_next(const Args& a, i64 r) {
  using Checks = typename Args::Checks;
  i32* const state = batch_state(a);
  while (state[kNextRequest] < a.N) {
    const i64 request = state[kNextRequest];
    if (!is_inside(a.faults, request, a.N, Checks::slots)) return false;
    ++state[kNextRequest];
    if (a.step[request] < a.prompt_length[request]) {
      of_slot(a, kSlotRequest, r) = static_cast<i32>(request);
      of_slot(a, kSlotPrompt, r) = a.prompt_length[request];
      of_slot(a, kSlotLimit, r) = a.config[kLongest];
      return true;
    }
    if (a.N <= a.R) return true;  // the next one has another slot
  }
  return true;
}

/// Takes in what was made, and ends requests. False if tables are wrong.
template <class Args, class Told>
inline bool take_in_batch(const Args& a, Told told) {
  using Checks = typename Args::Checks;
  // The tables of `slots`, and where each slot's rows begin and end.
  if (!is_inside(a.faults, kNextBatchSlot * a.R + kNextBatchState - 1, a.V, Checks::slots) ||
      !is_inside(a.faults, a.R, a.I, Checks::first_row) ||
      !is_inside(a.faults, a.config[kPageSize] - i64(1), 0x7fffffff, Checks::config))
    return false;
  i32* const state = batch_state(a);
  if (state[kHasBegun] != 0) ++state[kIterations];
  for (i64 r = 0; r < a.R; ++r) {
    of_slot(a, kSlotMatch, r) = 0;
    if (state[kHasBegun] != 0 && of_slot(a, kSlotRequest, r) >= 0 && !goes_on(a, r, told))
      of_slot(a, kSlotRequest, r) = -1;
  }
  state[kHasBegun] = 1;
  return true;
}

/// Gives slots that are free to requests that have yet to begin. False if tables are wrong.
template <class Args>
inline bool admit_batch(const Args& a) {
  for (i64 r = 0; r < a.R; ++r) {
    if (of_slot(a, kSlotRequest, r) < 0 && !admit_next(a, r)) return false;
    if (of_slot(a, kSlotRequest, r) >= 0 && !is_inside(a.faults, of_slot(a, kSlotRequest, r), a.N, Args::Checks::slots))
      return false;
  }
  return true;
}

template <class Args>
inline i64 num_live(const Args& a) {
  i64 live = 0;
  for (i64 r = 0; r < a.R; ++r) live += of_slot(a, kSlotRequest, r) >= 0;
  return live;
}

/// How many drafts the request of slot `r` can have: they stand behind its last token, and all but the last may be taken in.
template <class Args>
inline i64 room_for_drafts(const Args& a, i64 r) {
  const i64 request = of_slot(a, kSlotRequest, r);
  if (request < 0) return 0;
  const i64 step = a.step[request], last = min(i64(of_slot(a, kSlotLimit, r)), a.W / a.N) - 2;
  return step < 0 || step < of_slot(a, kSlotPrompt, r) - 1 ? 0
                                                           : max(min(NextDrafts<Args>::kTokens, last - step), i64(0));
}

/// find_match() for each slot that can have drafts, by one thread.
template <class Args>
inline void find_matches(const Args& a) {
  if constexpr (NextDrafts<Args>::kIsOn)
    for (i64 r = 0; r < a.R; ++r) {
      if (room_for_drafts(a, r) == 0) continue;
      const i64 request = of_slot(a, kSlotRequest, r);
      const auto* const tokens = a.tokens + request * (a.W / a.N);
      of_slot(a, kSlotMatch, r) = static_cast<i32>(find_match([&](int s) { return static_cast<i32>(tokens[s]); },
                                                              a.step[request] + 1, NextDrafts<Args>::kMatch));
    }
}

/// Lays out rows and pages: slots have their requests, and matches are found.
template <class Args>
inline void lay_out_batch(const Args& a) {
  using Checks = typename Args::Checks;
  i64 spare = max(a.T_largest - num_live(a), i64(0)), num_matches = 0;
  // Of prompts, what is left behind the row that each has in any case. In kSlotMatch of these slots nothing stands.
  const auto left_of_prompt = [&](i64 r) {
    const i64 request = of_slot(a, kSlotRequest, r);
    return request < 0 ? i64(0) : max(of_slot(a, kSlotPrompt, r) - i64(a.step[request]) - 1, i64(0));
  };
  i64 for_drafts = spare;
  for (i64 r = 0; r < a.R; ++r) {
    for_drafts -= min(left_of_prompt(r), for_drafts);
    num_matches += of_slot(a, kSlotMatch, r) != 0;
  }
  i64 rows = 0, pages = 0;
  const i64 text = a.W / a.N, page_size = a.config[kPageSize], pages_per_slot = a.config[kPagesPerSlot];
  a.first_row[0] = 0;
  a.first_page[0] = 0;
  for (i64 r = 0; r < a.R; ++r) {
    const i64 request = of_slot(a, kSlotRequest, r);
    const DraftMatch match = static_cast<DraftMatch>(of_slot(a, kSlotMatch, r));
    i64 count = 0, num_pages = 0;
    if (request >= 0 && rows < a.T_largest) {
      const i64 step = a.step[request], extra = match != 0 ? 0 : min(left_of_prompt(r), spare);
      i64 drafts = 0;
      if constexpr (NextDrafts<Args>::kIsOn)
        if (match != 0) drafts = min(room_for_drafts(a, r), for_drafts / num_matches--), for_drafts -= drafts;
      spare -= extra + drafts;
      count = 1 + extra + drafts;
      if (!is_inside(a.faults, step, text, Checks::step) ||
          !is_inside(a.faults, step + extra, text, Checks::prompt_length) ||
          !is_inside(a.faults, rows + count - 1, a.T_largest, Checks::first_row) ||
          !is_inside(a.faults, match_end(match), step + 1, Checks::slots))
        return;
      const auto token = [&](i64 s) { return static_cast<i32>(a.tokens[request * text + s]); };
      for (i64 i = 0; i <= extra; ++i) a.input[rows + i] = token(step + i);
      for (i64 i = 0; i < drafts; ++i)
        a.input[rows + 1 + i] = draft_token(token, static_cast<int>(step + 1), match, static_cast<int>(i));
      num_pages = (step + count + page_size - 1) / page_size;
      if (!is_inside(a.faults, pages + num_pages - 1, a.P, Checks::pages)) return;
      for (i64 i = 0; i < num_pages; ++i) a.pages[pages + i] = static_cast<i32>(r * pages_per_slot + i);
      a.last_length[r] = static_cast<i32>(step + count - (num_pages - 1) * page_size);
    }
    rows += count;
    pages += num_pages;
    a.num_new[r] = static_cast<i32>(count);
    a.first_row[r + 1] = static_cast<i32>(rows);
    a.first_page[r + 1] = static_cast<i32>(pages);
  }
  a.stop[0] = rows == 0;
}

/// The body of the operator `next_batch`.
template <class Args>
inline void next_batch(const Args& a) {
  if (!take_in_batch(a, Untold{}) || !admit_batch(a)) return;
  find_matches(a);
  lay_out_batch(a);
}

}  // namespace megalith::kernels
