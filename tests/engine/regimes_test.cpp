// Which kernel works on a load: random loads through the choice and through what it stands for, said another way.
#include "megalith/engine/regimes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace megalith::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Requests that come, work off their prompts, make tokens and end, in a kernel of so many rows.
struct Load {
  struct Request {
    int64_t prompt, tokens;  // to be worked through; to be made
  };
  std::vector<Request> requests;

  int64_t waiting() const {
    int64_t sum = 0;
    for (const Request& request : requests) sum += std::max<int64_t>(request.prompt, 1);
    return sum;
  }
  int64_t active() const { return static_cast<int64_t>(requests.size()); }
  /// A row each, then prompts what is left.
  void iterate(int64_t rows) {
    int64_t left = rows - active();
    for (Request& request : requests) {
      const int64_t more = std::min(left, std::max<int64_t>(request.prompt, 1) - 1);
      left -= more;
      if (request.prompt > 0) request.prompt -= 1 + more;
      if (request.prompt == 0) --request.tokens;
    }
    std::erase_if(requests, [](const Request& request) { return request.tokens <= 0; });
  }
};

std::vector<int64_t> random_rows(std::mt19937_64& random, int64_t max_requests) {
  std::vector<int64_t> rows = {max_requests + static_cast<int64_t>(random() % 200)};
  while (random() % 4 != 0) rows.push_back(1 + static_cast<int64_t>(random() % 200));
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

TEST(Regimes, HoldAnyLoadAndDoNotBounce) {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int64_t changes_up = 0, changes_down = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t max_requests = 1 + below(100), arrivals = below(3) == 0 ? 0 : 1 + below(40);
    const Regimes regimes(random_rows(random, max_requests));
    Load load;
    for (int64_t r = 0; r <= below(max_requests); ++r) load.requests.push_back({1 + below(300), 1 + below(50)});
    size_t now = regimes.choose(load.waiting());
    int64_t iterations = 0, changes = 0, came = 0;
    while (!load.requests.empty() && ++iterations < 5000) {
      // As the kernel sees it, and as it is meant: the fewest rows that hold the load.
      const int64_t waiting = load.waiting();
      const LoadRange range = regimes.range(now);
      if (waiting <= range.least || waiting > range.most) {
        const size_t next = regimes.choose(waiting);
        ASSERT_NE(next, now) << "a kernel that ends leaves the load to another";
        next > now ? ++changes_up : ++changes_down;
        ASSERT_TRUE(next < now || came > 0) << "without requests that come the load only falls";
        now = next;
        ++changes;
      }
      size_t wanted = 0;
      while (wanted + 1 < regimes.size() && regimes.rows(wanted) < waiting) ++wanted;
      ASSERT_EQ(now, wanted) << waiting << " wait";
      ASSERT_GE(regimes.rows(now), load.active());
      load.iterate(regimes.rows(now));
      if (arrivals > 0 && came < 20 && below(arrivals) == 0 && load.active() < max_requests && !load.requests.empty()) {
        load.requests.push_back({1 + below(300), 1 + below(50)});
        ++came;
      }
    }
    ASSERT_TRUE(load.requests.empty());
    // Up for each request that comes, then down through them all at most.
    ASSERT_LT(changes, came + static_cast<int64_t>(regimes.size()) * (came + 1));
  }
  EXPECT_GT(changes_up, 100);
  EXPECT_GT(changes_down, 100);
}

TEST(Regimes, OfOneKernelHaveNoBounds) {
  const Regimes one({4});
  EXPECT_EQ(one.choose(1), 0u);
  EXPECT_EQ(one.choose(1000), 0u);
  EXPECT_EQ(one.range(0).least, 0);
  EXPECT_EQ(one.range(0).most, std::numeric_limits<int32_t>::max());
}

TEST(Regimes, BesideALargeKernelAreThoseThatAreFaster) {
  EXPECT_THAT(smaller_regimes(1, 1, kSmallModel), IsEmpty());
  EXPECT_THAT(smaller_regimes(4, 1, kSmallModel), ElementsAre(1)) << "of one sequence no step has two tokens";
  EXPECT_THAT(smaller_regimes(4, 2, kSmallModel), ElementsAre(1, 2));
  EXPECT_THAT(smaller_regimes(80, 80, kSmallModel), ElementsAre(1, 2, 8, 64));
  EXPECT_THAT(smaller_regimes(80, 8, kSmallModel), ElementsAre(1, 2, 8));
  EXPECT_THAT(smaller_regimes(4, 4, kSmallModel + 1), ElementsAre(1));
  EXPECT_THAT(smaller_regimes(8, 8, kSmallModel + 1), ElementsAre(1));
  EXPECT_THAT(smaller_regimes(16, 16, kSmallModel + 1), ElementsAre(1, 8));
  EXPECT_THAT(smaller_regimes(64, 64, kSmallModel + 1), ElementsAre(1, 8));
  EXPECT_THAT(smaller_regimes(80, 80, kSmallModel + 1), ElementsAre(1, 8, 64));
}

TEST(Regimes, ForPromptsAreThoseOfMoreRows) {
  EXPECT_THAT(prompt_regimes(4, 512), ElementsAre(256, 512));
  EXPECT_THAT(prompt_regimes(4, 2048), ElementsAre(256, 512, 1024, 2048));
  EXPECT_THAT(prompt_regimes(256, 512), ElementsAre(512));
  EXPECT_THAT(prompt_regimes(600, 2048), ElementsAre(1024, 2048));
  EXPECT_THAT(prompt_regimes(48, 512, 8), ElementsAre(240, 496));  // beside which a draft model has 8 rows more
  EXPECT_THAT(prompt_regimes(256, 512, 17), ElementsAre(480));
  EXPECT_THAT(prompt_regimes(512, 512), IsEmpty());
  EXPECT_THAT(prompt_regimes(4, 128), ElementsAre(128));
  EXPECT_THAT(prompt_regimes(128, 128), IsEmpty());
}

TEST(Regimes, ForLongPromptsAreThoseOfSmallModels) {
  for (const int64_t rows : {256, 512}) EXPECT_TRUE(suits_prompts(rows, kSmallModel + 1)) << rows;
  EXPECT_FALSE(suits_prompts(1024, kSmallModel + 1));
  EXPECT_TRUE(suits_prompts(1024, kSmallModel));
  EXPECT_FALSE(suits_prompts(2048, kTinyModel + 1));
  EXPECT_TRUE(suits_prompts(2048, kTinyModel));
}

// The kernels of `rows`, in the order in which they are left out; of those `named` none.
std::vector<int64_t> left_out(std::vector<int64_t> rows, int64_t base, const std::vector<int64_t>& named = {}) {
  std::vector<int64_t> order;
  for (;;) {
    std::vector<bool> flags;
    for (const int64_t r : rows) flags.push_back(std::ranges::find(named, r) != named.end());
    const auto least =
        regime_to_leave_out(rows, flags, static_cast<size_t>(std::ranges::find(rows, base) - rows.begin()));
    if (!least) return order;
    order.push_back(rows[*least]);
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(*least));
  }
}

TEST(Regimes, AreLeftOutForFewerSequencesFirstAndForPromptsLast) {
  EXPECT_THAT(left_out({1, 2, 8, 64, 128, 256, 512}, 128), ElementsAre(64, 2, 1, 256, 8, 512));
  EXPECT_THAT(left_out({1, 8, 64, 256, 512}, 64), ElementsAre(1, 256, 8, 512));
  EXPECT_THAT(left_out({1, 2, 8, 256, 512}, 8), ElementsAre(2, 256, 1, 512))
      << "the smallest stays, where 8 is the base";
  EXPECT_THAT(left_out({1, 4, 512}, 4), ElementsAre(1, 512));
  EXPECT_THAT(left_out({1, 2, 8, 64, 256, 512, 1024, 2048}, 64), ElementsAre(2048, 1024, 2, 1, 256, 8, 512));
  EXPECT_THAT(left_out({1, 8, 512, 1024, 2048}, 8, {2048}), ElementsAre(1024, 512, 1));
  EXPECT_THAT(left_out({1, 1024, 2048}, 1024), ElementsAre(2048, 1)) << "the base stays";
  EXPECT_THAT(left_out({4, 512}, 4), ElementsAre(512));
  EXPECT_THAT(left_out({4}, 4), IsEmpty());
  EXPECT_THAT(left_out({1, 8, 64, 256, 512}, 64, {1, 256}), ElementsAre(8, 512)) << "those that were named stay";
  EXPECT_THAT(left_out({1, 64, 512}, 64, {1, 512}), IsEmpty());
}

}  // namespace
}  // namespace megalith::engine
