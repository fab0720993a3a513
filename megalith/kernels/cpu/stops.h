// Which tokens end a request: those of all, unless it ignores them, and its own. `advance` ends it with one of them, and
// `sampling` draws none of them before it has as many tokens as it wants at least (runtime/batch.h).
#pragma once

#include "megalith/kernels/cpu/prelude.h"
#include "megalith/runtime/batch.h"

namespace megalith::kernels {

/// Places of stop tokens that count for a request: those in `stop_tokens`, then those in its line of `own_stops`.
struct StopPlaces {
  i64 begin, end;
};
template <class Args>
inline StopPlaces stop_places(const Args& a, const i32* fields) {
  const i32 flags = fields[batch::kFlags];
  return {(flags & batch::kIgnoreStop) != 0 ? a.E : 0,
          a.E + ((flags & batch::kOwnStops) != 0 ? batch::kMaxOwnStops : 0)};
}
/// The token in one of them; below 0: none.
template <class Args>
inline i32 stop_token_at(const Args& a, i64 request, i64 place) {
  return place < a.E ? a.stop_tokens[place] : a.own_stops[request * batch::kMaxOwnStops + place - a.E];
}

}  // namespace megalith::kernels
