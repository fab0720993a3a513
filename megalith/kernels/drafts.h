// Drafts: tokens that may come next in a sequence, because they stood there before behind what it ends with now ("prompt lookup",
// https://github.com/apoorvumang/prompt-lookup-decoding). They are worked on beside its last token, all but for free,
// since weights are read once for all. What is sampled behind each is what would have been sampled anyway, by the same random
// number: so as many drafts hold as are what was sampled before them, and no sequence is another one for it.
//
// Of all places whose tokens are those at the end of the sequence the one counts where most are, of equals the last: what a suffix
// automaton of the sequence would find that also knew the last place of each of its states. All places are looked at each time instead,
// from the last to the first, which takes no memory and, on a GPU, a load for each 512 tokens of the sequence. An automaton would grow by a
// token at a time in tables some fifteen times as large as the sequence (two states and three edges for each token), prompts included, by
// trips to memory one behind the other. More than kLongestMatch equal tokens count as so many: that bounds what a sequence can cost that
// was made to cost much.
//
// Or a smaller model makes drafts (kernels/cpu/draft_model.h); `advance` only says how many then.
//
// How many drafts a request has follows from what came of its last ones. It may have all that there may be at first. After an
// iteration in which all of its drafts were right it may have twice as many and one; otherwise half of what it might have had and
// what was right together. So four wrong guesses one after the other leave none of 15, and then a draft is noted and not worked on:
// as soon as one of these was right there is a draft again. Rows that cost nothing (draft_free_rows) are used in any case.
//
// Freestanding: shared by the CPU's body of `advance` and the GPU's.
#pragma once

#include "megalith/runtime/batch.h"

namespace megalith::kernels {

/// A place in a sequence of at most 2^25 tokens: how many tokens up to there are those at its end, and the position of the last one.
/// Of two places the better one is the larger number; 0 is none.
using DraftMatch = unsigned;
constexpr int kMatchEndBits = 25;
static_assert(batch::kLongestMatch < 1 << (32 - kMatchEndBits));
constexpr int match_length(DraftMatch match) { return static_cast<int>(match >> kMatchEndBits); }
constexpr int match_end(DraftMatch match) { return static_cast<int>(match & ((1u << kMatchEndBits) - 1)); }

constexpr DraftMatch better_match(DraftMatch a, DraftMatch b) { return a > b ? a : b; }

constexpr DraftMatch match_of(int same, int end) {
  return static_cast<DraftMatch>(same) << kMatchEndBits | static_cast<DraftMatch>(end);
}

/// `token(s)`: number s of `length`. `end`: a position before the last one and before that of `best`, where the last token stands, too.
/// Whether it may be the better one: then it has more tokens, so the first of these that `best` has not is looked at.
template <class Token>
constexpr bool may_be_better(Token token, int length, int end, DraftMatch best) {
  const int least = match_length(best);
  return least < batch::kLongestMatch && least <= end && token(end - least) == token(length - 1 - least);
}
/// How many tokens up to there are those at the end, one after the other.
template <class Token>
constexpr int same_tokens(Token token, int length, int end) {
  int same = 1;
  while (same < batch::kLongestMatch && same <= end && token(end - same) == token(length - 1 - same)) ++same;
  return same;
}

/// The best place in a sequence of `length` tokens, by one thread: 0 if fewer than `least` tokens are those at its end.
template <class Token>
constexpr DraftMatch find_match(Token token, int length, int least) {
  DraftMatch best = 0;
  for (int end = length - 2; end >= match_length(best) && match_length(best) < batch::kLongestMatch; --end)
    if (token(end) == token(length - 1) && may_be_better(token, length, end, best))
      best = better_match(best, match_of(same_tokens(token, length, end), end));
  return match_length(best) >= least ? best : 0;
}

/// Draft number i behind a sequence of `length` tokens. What ends at its end repeats from there.
template <class Token>
constexpr auto draft_token(Token token, int length, DraftMatch match, int i) {
  const int begin = match_end(match) + 1;
  return token(begin + i % (length - begin));
}

/// What an `advance` knows of drafts: how many a request has at most, how many tokens must match, and how many rows the requests
/// that have them may take together.
template <class Args>
struct Drafting {
  static constexpr int kTokens = static_cast<int>(Args::draft_tokens), kMatch = static_cast<int>(Args::draft_match),
                       kRows = static_cast<int>(Args::draft_rows), kFreeRows = static_cast<int>(Args::draft_free_rows);
  /// Whether a model makes them (kernels/cpu/draft_model.h), so that there are some in any case.
  static constexpr bool kHasModel = Args::draft_model > 0;
  static constexpr bool kIsOn = kTokens > 0;
  static_assert(kTokens <= batch::kFewerDraftsMask);
  /// Of each of so many requests that make tokens; and how many of them each has whatever came of the last ones.
  static constexpr int most(int active) { return each_of(kRows, active); }
  static constexpr int free(int active) { return each_of(kFreeRows, active); }

  /// What came of a request's last drafts, as it stands in its fields. A model makes one at least: what it makes comes to nothing
  /// else.
  static constexpr int allowed(const int* fields) {
    const int drafts = kTokens - (fields[batch::kFlags] >> batch::kFewerDraftsShift & batch::kFewerDraftsMask);
    return kHasModel && drafts < 1 ? 1 : drafts;
  }
  /// Notes that of a request's drafts, or of one that was guessed, so many were right.
  static constexpr void note(int* fields, int drafts, int accepted) {
    const int before = allowed(fields), more = 2 * before + 1,
              now = accepted < drafts ? (before + accepted) / 2
                    : more < kTokens  ? more
                                      : kTokens;
    fields[batch::kFlags] = (fields[batch::kFlags] & ~(batch::kFewerDraftsMask << batch::kFewerDraftsShift)) |
                            (kTokens - now) << batch::kFewerDraftsShift;
  }

 private:
  static constexpr int each_of(int rows, int active) {
    const int each = (rows - active) / active;
    return each < 0 ? 0 : each < kTokens ? each : kTokens;
  }
};

/// Whether rows are laid out, or to be laid out, for drafts behind a request's last token.
constexpr bool has_drafts(const int* fields) { return fields[batch::kDone] > fields[batch::kLength]; }

}  // namespace megalith::kernels
