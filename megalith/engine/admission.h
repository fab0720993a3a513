// Who gets pages of the KV cache: which request begins, which one may go on, and which one gives its pages to an older one.
// Decisions alone, one at a time, from what a service knows (async_engine.h): no threads, no kernels, no pages by name.
//
// A request begins with pages for its tokens and some more, and is given further ones while it makes tokens. Requests come
// first by rank: by their priority, then by their arrival. One that has run dry, which is to say that the kernel has stopped
// it because its pages are full, takes pages from the last one in rank, which waits again and later goes on where it was. The
// first one in rank thus always goes on, and nobody waits for one behind it: all that begin end.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace megalith::engine {

/// Lower comes first.
struct Rank {
  int64_t priority = 0;
  uint64_t arrival = 0;
  auto operator<=>(const Rank&) const = default;
};

/// A request that has a place in the batch. The keys of the token that it makes last are nobody's, so it needs room for
/// limit - 1 tokens.
struct PlacedRequest {
  int64_t place = 0;
  Rank rank;
  int64_t length = 0;      // tokens known
  int64_t limit = 0;       // length at which it ends
  int64_t pages = 0;       // that it has
  bool is_dry = false;     // the kernel has stopped it
  bool is_ending = false;  // it will give up its pages: whether it goes or waits again is all the same here
};

/// The one of those that wait that comes first.
struct WaitingRequest {
  Rank rank;
  int64_t length = 0, limit = 0;
  int64_t known_pages = 0;      // of its first tokens, that the prefix cache has
  int64_t available_pages = 0;  // of those, the ones that count as available
};

struct AdmissionState {
  int64_t page_size = 1;
  int64_t available = 0;  // pages that nobody has
  std::vector<PlacedRequest> placed;
  std::optional<WaitingRequest> next;  // if there is one, and a place for it
};

struct AdmissionStep {
  enum class Kind {
    none,     // until something changes
    begin,    // the next one, with `pages` beside those that are known
    grow,     // the one in `place`, by `pages`; 0 if it has run dry and has had more meanwhile
    preempt,  // the one in `place`
  };
  Kind kind = Kind::none;
  int64_t place = 0;
  int64_t pages = 0;
};

/// What to do now; to be asked again once it is done.
AdmissionStep next_step(const AdmissionState& state);

/// Whether a request of `length` tokens should be given pages, so that it does not run dry before the host looks again.
bool is_short_of_pages(int64_t page_size, int64_t length, int64_t limit, int64_t pages);

/// The length at which a request that has so many pages ends, or stands still.
int64_t length_with_pages(int64_t page_size, int64_t limit, int64_t pages);

}  // namespace megalith::engine
