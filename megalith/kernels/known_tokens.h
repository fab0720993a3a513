// How likely the tokens of a prompt are: a request that wants to know (batch::kPromptLogprobs) has a sample behind each of its
// rows, and not only behind its last token. Where the next token is known nothing is drawn: `sampling` says how likely that
// token was, and `advance` tells the host. Such a request has no more rows in an iteration than there are samples for it, beside
// the one that every other sequence may need.
//
// Freestanding: shared by the CPU's bodies and the GPU's.
#pragma once

#include "megalith/kernels/cpu/prelude.h"
#include "megalith/runtime/batch.h"

namespace megalith::kernels {

constexpr bool is_sampled_each_row(const i32* fields) { return (fields[batch::kFlags] & batch::kPromptLogprobs) != 0; }

/// Behind the last sample of the request that sample r is of.
template <class Args>
inline i64 end_of_samples(const Args& a, i64 r, i64 samples) {
  i64 end = r + 1;
  while (end < samples && a.sample_request[end] == a.sample_request[r]) ++end;
  return end;
}

/// Tokens that sample r of a request that is sampled behind each row stands behind: its rows end with kDone tokens.
template <class Args>
inline i32 length_behind_row(const Args& a, i64 r, i64 samples, const i32* fields) {
  return fields[batch::kDone] - static_cast<i32>(end_of_samples(a, r, samples) - r - 1);
}

/// Whether the token of a sample that stands behind so many tokens is known.
constexpr bool is_known(const i32* fields, i32 length) {
  return is_sampled_each_row(fields) && length < fields[batch::kLength];
}

/// Rows of a request of whose tokens `waiting` wait, as far as one iteration takes them: a kernel for many rows is none for
/// prompts that are sampled in each row, `max_samples` at a time. Two at least if it is more than its last token.
constexpr i64 waiting_rows(const i32* fields, i64 waiting, i64 max_samples) {
  const i64 most = max_samples > 2 ? max_samples : 2;
  return is_sampled_each_row(fields) && waiting > most ? most : waiting;
}

/// Rows, and samples behind rows, that are free beside one for each request.
struct FreeRows {
  i64 rows, samples;

  /// How many of `more` rows a request has.
  i64 take(const i32* fields, i64 more) {
    if (is_sampled_each_row(fields)) {
      more = more < samples ? more : samples;
      samples -= more;
    }
    const i64 taken = more < rows ? more : rows;
    rows -= taken;
    return taken;
  }
};

}  // namespace megalith::kernels
