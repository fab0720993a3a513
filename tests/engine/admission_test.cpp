// Who gets pages, in cases made by hand and in random ones against what must always hold: pages are never given twice, all
// that begin end, and nobody waits for one behind it.
#include "megalith/engine/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace megalith::engine {
namespace {

using Kind = AdmissionStep::Kind;

constexpr int64_t kPage = 16;

PlacedRequest placed(int64_t place, int64_t length, int64_t pages, bool is_dry = false, bool is_ending = false) {
  return {place, {.arrival = static_cast<uint64_t>(place)}, length, 1000, pages, is_dry, is_ending};
}
WaitingRequest waiting(int64_t length, int64_t limit = 1000) { return {{.arrival = 99}, length, limit}; }

struct Wanted {
  Kind kind;
  int64_t place = 0, pages = 0;
};
void expect_step(const AdmissionState& state, const Wanted& wanted) {
  const AdmissionStep step = next_step(state);
  EXPECT_EQ(step.kind, wanted.kind);
  EXPECT_EQ(step.place, wanted.place);
  EXPECT_EQ(step.pages, wanted.pages);
}

TEST(Admission, BeginsWithSomePagesAhead) {
  expect_step({kPage, 10, {}, waiting(20)}, {Kind::begin, 0, 4});      // 20 tokens and 32 more
  expect_step({kPage, 10, {}, waiting(20, 33)}, {Kind::begin, 0, 2});  // the last one's keys are nobody's
  expect_step({kPage, 3, {}, waiting(20)}, {Kind::none});              // too few
  expect_step({kPage, 10, {}, {}}, {Kind::none});                      // nobody, or no place
  expect_step({kPage, 10, {placed(0, 20, 4)}, waiting(20)}, {Kind::begin, 0, 4});
  expect_step({kPage, 4, {placed(0, 20, 4)}, waiting(20)}, {Kind::none});  // the first one soon wants another
}

TEST(Admission, CountsKnownPagesOnce) {
  WaitingRequest next = waiting(40);  // 5 pages
  next.known_pages = 2;
  expect_step({kPage, 3, {}, next}, {Kind::begin, 0, 3});  // somebody has those
  next.available_pages = 2;
  expect_step({kPage, 4, {}, next}, {Kind::none});
  expect_step({kPage, 5, {}, next}, {Kind::begin, 0, 3});
}

TEST(Admission, GivesPagesBeforeTheyAreWanted) {
  EXPECT_FALSE(is_short_of_pages(kPage, 48, 1000, 4));
  EXPECT_TRUE(is_short_of_pages(kPage, 49, 1000, 4));
  EXPECT_FALSE(is_short_of_pages(kPage, 49, 65, 4));
  expect_step({kPage, 9, {placed(0, 48, 4)}, {}}, {Kind::none});
  expect_step({kPage, 9, {placed(0, 49, 4)}, {}}, {Kind::grow, 0, 2});
  expect_step({kPage, 1, {placed(0, 49, 4), placed(1, 49, 4)}, waiting(1)}, {Kind::grow, 0, 1});
  expect_step({kPage, 0, {placed(0, 49, 4), placed(1, 49, 4)}, waiting(1)}, {Kind::none});
  EXPECT_EQ(length_with_pages(kPage, 1000, 4), 65);
  EXPECT_EQ(length_with_pages(kPage, 50, 4), 50);
}

TEST(Admission, TakesPagesFromTheLastOne) {
  expect_step({kPage, 0, {placed(0, 65, 4, true), placed(2, 20, 3), placed(1, 20, 3)}, {}}, {Kind::preempt, 2});
  // Somebody's pages are on their way, who may be as good.
  expect_step({kPage, 0, {placed(0, 65, 4, true), placed(1, 20, 3), placed(2, 20, 3, false, true)}, {}}, {Kind::none});
  // The last one itself waits, and nobody begins meanwhile.
  expect_step({kPage, 0, {placed(0, 20, 3), placed(1, 65, 4, true)}, waiting(1)}, {Kind::none});
  expect_step({kPage, 1, {placed(0, 20, 3), placed(1, 65, 4, true)}, waiting(1)}, {Kind::grow, 1, 1});
  // It was given more while it stopped.
  expect_step({kPage, 0, {placed(0, 65, 7, true), placed(1, 20, 4)}, {}}, {Kind::grow, 0, 0});
}

TEST(Admission, GoesByPriorityThenArrival) {
  AdmissionState state{kPage, 0, {placed(0, 65, 4, true), placed(1, 20, 3), placed(2, 20, 3)}, {}};
  state.placed[1].rank.priority = 5;
  expect_step(state, {Kind::preempt, 1});
  state.placed[0].rank.priority = 9;
  expect_step(state, {Kind::none});
  state.next = waiting(1, 3);
  state.next->known_pages = 1;  // which costs nothing
  expect_step(state, {Kind::none});
  state.available = 3;  // for the pages that two others soon want, too
  state.placed[0].length = 200;
  expect_step(state, {Kind::begin, 0, 0});
}

/// A service without a kernel: each request that may makes a token a step, and a cancel takes some steps.
class Simulation {
 public:
  Simulation(uint64_t seed, bool has_priorities) : random_(seed), has_priorities_(has_priorities) {
    page_ = 1 + below(20);
    num_places_ = static_cast<size_t>(1 + below(8));
    longest_ = 20 + below(200);
    num_pages_ = available_ = (longest_ + page_ - 1) / page_ + below(10);
  }

  void run(int requests) {
    for (int steps = 0; requests > 0 || !waiting_.empty() || !placed_.empty(); ++steps) {
      ASSERT_LT(steps, 200'000) << "somebody waits for ever";
      for (; requests > 0 && below(2) == 0; --requests) arrive();
      settle();
      if (::testing::Test::HasFailure()) return;
      work();
    }
    EXPECT_EQ(available_, num_pages_);
  }
  int num_preempted() const { return num_preempted_; }
  int num_dry() const { return num_dry_; }

 private:
  struct One {
    Rank rank;
    int64_t length, limit, end;  // `end`: of its own accord
    int64_t pages = 0, told = 0;
    bool is_dry = false;
    int ending_steps = 0;
    bool is_preempted = false;
  };
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void arrive() {
    // Short prompts, of which most are longer in the end than they looked.
    const int64_t prompt = 1 + below(below(3) == 0 ? longest_ - 1 : 10);
    const int64_t limit = prompt + 1 + below(longest_ - prompt);
    One one{{has_priorities_ ? below(3) : 0, ++arrivals_}, prompt, limit, limit};
    if (below(3) == 0) one.end = prompt + 1 + below(limit - prompt);
    wait(one);
  }
  void wait(const One& one) { waiting_.insert(std::ranges::upper_bound(waiting_, one.rank, {}, &One::rank), one); }
  /// Takes all steps that there are.
  void settle() {
    for (int count = 0;; ++count) {
      ASSERT_LT(count, 10'000) << "no end of decisions";
      AdmissionState state{page_, available_, {}, {}};
      for (size_t i = 0; i < placed_.size(); ++i) {
        const One& one = placed_[i];
        state.placed.push_back(
            {static_cast<int64_t>(i), one.rank, one.length, one.limit, one.pages, one.is_dry, one.ending_steps > 0});
      }
      if (!waiting_.empty() && placed_.size() < num_places_)
        state.next = {waiting_.front().rank, waiting_.front().length, waiting_.front().limit};
      const AdmissionStep step = next_step(state);
      available_ -= step.pages;
      ASSERT_GE(available_, 0);
      if (step.kind == Kind::none) return;
      if (step.kind == Kind::begin) {
        ASSERT_TRUE(state.next);
        placed_.push_back(waiting_.front());
        waiting_.pop_front();
        placed_.back().pages = step.pages;
        tell(placed_.back());
        ASSERT_GE(placed_.back().told, std::min(placed_.back().length + 1, placed_.back().limit));
      } else if (step.kind == Kind::grow) {
        One& one = placed_.at(static_cast<size_t>(step.place));
        one.pages += step.pages;
        one.is_dry = false;
        tell(one);
        ASSERT_GT(one.told, one.length);
      } else {
        One& one = placed_.at(static_cast<size_t>(step.place));
        ASSERT_EQ(one.ending_steps, 0);
        ASSERT_TRUE(std::ranges::any_of(placed_, [&](const One& other) { return other.rank < one.rank; }));
        one.is_preempted = true;
        one.ending_steps = one.is_dry ? 1 : 1 + static_cast<int>(below(3));
        ++num_preempted_;
      }
    }
  }
  void tell(One& one) const { one.told = length_with_pages(page_, one.limit, one.pages); }
  void work() {
    for (size_t i = 0; i < placed_.size();) {
      One& one = placed_[i];
      if (one.ending_steps > 0 && --one.ending_steps == 0) {
        One gone = one;
        available_ += gone.pages;
        placed_.erase(placed_.begin() + static_cast<ptrdiff_t>(i));
        gone.pages = 0, gone.is_dry = gone.is_preempted = false;
        wait(gone);
        continue;
      }
      if (!one.is_dry && one.ending_steps == 0) {
        ++one.length;
        ASSERT_LE((one.length - 1 + page_ - 1) / page_, one.pages) << "keys without a page";
        if (one.length == one.end) {
          available_ += one.pages;
          placed_.erase(placed_.begin() + static_cast<ptrdiff_t>(i));
          continue;
        }
        one.is_dry = one.length >= one.told;
        num_dry_ += one.is_dry;
      }
      ++i;
    }
  }

  std::mt19937_64 random_;
  const bool has_priorities_;
  int64_t page_, longest_, num_pages_, available_;
  size_t num_places_;
  uint64_t arrivals_ = 0;
  std::deque<One> waiting_;
  std::vector<One> placed_;
  int num_preempted_ = 0, num_dry_ = 0;
};

TEST(Admission, EndsWhatItBegins) {
  int num_preempted = 0, num_dry = 0;
  for (uint64_t seed = 0; seed < 200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, seed % 2 == 1);
    simulation.run(60);
    num_preempted += simulation.num_preempted(), num_dry += simulation.num_dry();
  }
  EXPECT_GT(num_preempted, 500);
  EXPECT_GT(num_dry, num_preempted);
}

}  // namespace
}  // namespace megalith::engine
