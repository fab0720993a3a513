#include "megalith/engine/admission.h"

#include <algorithm>

namespace megalith::engine {

namespace {

// Room for so many tokens is given ahead, once half of it is used. The host is told of a token within a step or two, so 16
// are time enough; with fewer it would send pages more often, with more they would lie idle in front of many requests.
constexpr int64_t kTokensAhead = 32;

int64_t pages_of(int64_t page_size, int64_t tokens) { return (tokens + page_size - 1) / page_size; }

/// Pages for a request and `ahead` more tokens.
int64_t pages_ahead(int64_t page_size, int64_t length, int64_t limit, int64_t ahead) {
  return pages_of(page_size, std::min(length + ahead, limit - 1));
}

}  // namespace

bool is_short_of_pages(int64_t page_size, int64_t length, int64_t limit, int64_t pages) {
  return pages < pages_ahead(page_size, length, limit, kTokensAhead / 2);
}

int64_t length_with_pages(int64_t page_size, int64_t limit, int64_t pages) {
  return std::min(limit, pages * page_size + 1);
}

AdmissionStep next_step(const AdmissionState& state) {
  using Kind = AdmissionStep::Kind;
  std::vector<const PlacedRequest*> placed;  // that go on, by rank
  for (const PlacedRequest& one : state.placed)
    if (!one.is_ending) placed.push_back(&one);
  std::ranges::sort(placed, {}, &PlacedRequest::rank);

  for (const PlacedRequest* const one : placed) {
    if (!one->is_dry && !is_short_of_pages(state.page_size, one->length, one->limit, one->pages)) continue;
    const int64_t wanted =
        std::max<int64_t>(pages_ahead(state.page_size, one->length, one->limit, kTokensAhead) - one->pages, 0);
    const int64_t given = std::min(wanted, state.available);
    const bool has_room = one->is_dry ? one->pages + given >= pages_of(state.page_size, one->length) : given > 0;
    if (has_room) return {Kind::grow, one->place, given};
    if (!one->is_dry) continue;  // it still has some
    // Pages are on their way, or those of the last one come next. The last one itself waits until others end.
    const bool takes = placed.size() == state.placed.size() && placed.back() != one;
    if (takes) return {Kind::preempt, placed.back()->place, 0};
    if (state.next && state.next->rank < one->rank) break;
    return {};
  }
  if (!state.next) return {};
  // Each of those that have begun soon wants another page. Were it given away, one of them would be stopped for it.
  const auto may_grow = [&](const PlacedRequest* one) {
    return one->pages < pages_of(state.page_size, one->limit - 1);
  };
  const WaitingRequest& next = *state.next;
  const int64_t pages = pages_ahead(state.page_size, next.length, next.limit, kTokensAhead) - next.known_pages;
  if (pages + next.available_pages + std::ranges::count_if(placed, may_grow) > state.available) return {};
  return {Kind::begin, 0, pages};
}

}  // namespace megalith::engine
