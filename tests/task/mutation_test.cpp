// The mutation campaign over random graphs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "support/campaign.h"
#include "support/configurations.h"
#include "support/random_task_graph.h"

namespace megalith::test {
namespace {

// Three in a row are of three kinds, and 200 have thousands of mutants of nearly every kind.
const uint64_t kGraphs = test::all_configurations() ? 1000 : 200;
constexpr size_t kMaxPerKind = 12;
constexpr double kBudgetSeconds = 60;

TEST(MutationCampaign, EveryHarmfulMutantIsRejected) {
  const auto start = std::chrono::steady_clock::now();
  Campaign campaign;
  for (uint64_t seed = 0; seed < kGraphs && !HasFailure(); ++seed) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > kBudgetSeconds) break;
    // Every third graph hands results on through exchanges, too, every third scatters rows, and every third has partners.
    const RandomTaskGraphOptions limits{.exchange_probability = seed % 3 == 2 ? 0.6 : 0,
                                        .scatter_probability = seed % 3 == 1 ? 0.7 : 0,
                                        .partner_probability = seed % 3 == 0 ? 0.7 : 0};
    campaign.run(random_task_graph(seed, limits), fmt::format("seed {}", seed),
                 {.most_per_kind = kMaxPerKind, .seed = seed});
  }
  campaign.print();
  EXPECT_GT(campaign.num_graphs(), 20);
}

}  // namespace
}  // namespace megalith::test
