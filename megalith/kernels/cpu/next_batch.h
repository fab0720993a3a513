// The last task of every iteration of a token loop over tables as servers keep them (ops/scheduler.cpp): takes in the
// tokens that the iteration has made, ends and admits requests, and lays out the rows and pages of the next one.
// Every request that has begun gets a row before any gets a second, so that nobody starves; prompts get what is left.
// A slot's pages are its own, so that a request that has begun never waits for a page.
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"

namespace megalith::kernels {

/// What `config` holds; at kLastTokens the tokens that end a text, up to kMaxLastTokens and -1 behind them.
constexpr i64 kMaxLastTokens = 16;
enum NextBatchConfig { kLongest, kPageSize, kPagesPerSlot, kVocabulary, kLastTokens, kNextBatchConfig = 20 };
/// `slots` has for each slot its request or -1, then these.
enum NextBatchState { kNextRequest, kHasBegun, kNextBatchState };

template <class Args>
inline bool ends_text(const Args& a, i64 token) {
  for (i64 i = 0; i < kMaxLastTokens && a.config[kLastTokens + i] >= 0; ++i)
    if (token == a.config[kLastTokens + i]) return true;
  return token < 0 || token >= a.config[kVocabulary];
}

/// The request of slot `r` goes on by the rows that it had; false if it has ended, or its tables are wrong.
template <class Args>
inline bool goes_on(const Args& a, i64 r, i64 request) {
  using Checks = typename Args::Checks;
  if (!is_inside(a.faults, request, a.N, Checks::slots)) return false;
  const i64 rows = static_cast<i64>(a.first_row[r + 1]) - a.first_row[r], step = a.step[request] + rows;
  if (!is_inside(a.faults, step, a.W / a.N, Checks::step)) return false;
  a.step[request] = static_cast<i32>(step);
  if (rows == 0 || step < a.prompt_length[request]) return true;
  if (!is_inside(a.faults, a.first_row[r + 1] - i64(1), a.T_largest, Checks::first_row)) return false;
  const i64 token = a.output[a.first_row[r + 1] - 1];
  a.tokens[request * (a.W / a.N) + step] = static_cast<i32>(token);
  return !ends_text(a, token) && step + 1 < a.config[kLongest];
}

/// The body of the operator `next_batch`.
template <class Args>
inline void next_batch(const Args& a) {
  using Checks = typename Args::Checks;
  const i64 num_slots = a.R, text = a.W / a.N;
  // A slot each and kNextBatchState, and where each begins and ends.
  if (!is_inside(a.faults, num_slots + kNextBatchState - 1, a.V, Checks::slots) ||
      !is_inside(a.faults, num_slots, a.I, Checks::first_row) ||
      !is_inside(a.faults, a.config[kPageSize] - i64(1), 0x7fffffff, Checks::config))
    return;
  i32* const slots = a.slots;
  i32* const state = slots + num_slots;
  if (state[kHasBegun] != 0)
    for (i64 r = 0; r < num_slots; ++r)
      if (slots[r] >= 0 && !goes_on(a, r, slots[r])) slots[r] = -1;
  state[kHasBegun] = 1;
  i64 num_live = 0;
  for (i64 r = 0; r < num_slots; ++r) {
    if (slots[r] < 0 && state[kNextRequest] < a.N) slots[r] = state[kNextRequest]++;
    if (slots[r] >= 0 && !is_inside(a.faults, slots[r], a.N, Checks::slots)) return;
    num_live += slots[r] >= 0;
  }

  i64 spare = max(a.T_largest - num_live, i64(0)), rows = 0, pages = 0;
  const i64 page_size = a.config[kPageSize], pages_per_slot = a.config[kPagesPerSlot];
  a.first_row[0] = 0;
  a.first_page[0] = 0;
  for (i64 r = 0; r < num_slots; ++r) {
    const i64 request = slots[r];
    i64 count = 0, num_pages = 0;
    if (request >= 0 && rows < a.T_largest) {
      const i64 step = a.step[request], extra = min(max(a.prompt_length[request] - step - 1, i64(0)), spare);
      spare -= extra;
      count = 1 + extra;
      if (!is_inside(a.faults, step, text, Checks::step) ||
          !is_inside(a.faults, step + extra, text, Checks::prompt_length) ||
          !is_inside(a.faults, rows + extra, a.T_largest, Checks::first_row))
        return;
      for (i64 i = 0; i < count; ++i) a.input[rows + i] = a.tokens[request * text + step + i];
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

}  // namespace megalith::kernels
