// The mutation campaign over the task graph of a real model: the bundled one, planned for one to five workers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megalith/jit/compile.h"
#include "megalith/model/decoder.h"
#include "support/campaign.h"
#include "support/configurations.h"

namespace megalith::test {
namespace {

TEST(StorytellerMutations, EveryHarmfulMutantIsRejected) {
  const graph::Graph graph = build_decoder(config_read(MEGALITH_SOURCE_DIR "/models/storyteller"), {});
  Campaign campaign;
  // Mutants are drawn at random: fewer of them are of each kind all the same, and tests/task/mutation_test.cpp has tens of
  // thousands of smaller graphs.
  const unsigned share = test::all_configurations() ? 1 : 3;
  for (int workers : {2, 5}) {
    const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = workers, .plan_only = true});
    campaign.run(kernel.tasks, fmt::format("{} workers", workers),
                 {.most_per_kind = (workers == 2 ? 150u : 40u) / share});
  }
  campaign.print();
}

}  // namespace
}  // namespace megalith::test
