// Where drafts come from (kernels/drafts.h), as slowly and plainly as can be: what the references of `advance` and `next_batch` share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "megalith/runtime/batch.h"

namespace megalith::ops {

/// Tokens before `begin` are those at the sequence's end, so many of them; 0 of both: there is no such place.
struct DraftPlace {
  int64_t begin = 0, same = 0;
};

/// The place behind the longest such match, of equals the last, in a sequence of `length` tokens; `token(s)`: number s of them.
template <class Token>
DraftPlace find_draft_place(Token token, int64_t length, int64_t least_match) {
  DraftPlace best;
  for (int64_t end = 0; end < length - 1; ++end) {
    int64_t same = 0;
    while (same <= end && same < batch::kLongestMatch && token(end - same) == token(length - 1 - same)) ++same;
    if (same >= std::max<int64_t>(best.same, 1)) best = {end + 1, same};
  }
  return best.same < std::max<int64_t>(least_match, 1) ? DraftPlace{} : best;
}

}  // namespace megalith::ops
