// The mutation campaign: random graphs are broken in every way that tests/support/mutate.h knows. An oracle that works
// differently from the verifier says which mutants are harmful; the verifier must reject every one of those.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <string>

#include "megalith/task/json.h"
#include "megalith/task/verify.h"
#include "support/mutate.h"
#include "support/mutate_oracle.h"
#include "support/random_task_graph.h"

namespace megalith::test {
namespace {

constexpr uint64_t kGraphs = 1000;
constexpr size_t kMostPerKind = 12;
constexpr double kBudgetSeconds = 60;

struct Counts {
  int64_t mutants = 0, rejected = 0, harmless_rejected = 0, survivors = 0;
};

// Where the header of task/verify.h says that the verifier is stricter than need be; "" if nothing there explains why
// it refused a mutant that the oracle finds harmless.
std::string known_strictness(const task::TaskGraph& graph, const task::VerifyResult& result) {
  for (const task::Finding& finding : result.findings) {
    if (finding.kind == task::FindingKind::structure) return "structure";
    if (finding.kind == task::FindingKind::overrun) return "overrun";
  }
  for (const task::Task& task : graph.tasks)
    for (const task::Wait& wait : task.waits)
      if (wait.count < graph.events[static_cast<size_t>(wait.event)].arrivals) return "partial wait";
  for (const task::Finding& finding : result.findings) {
    if (finding.kind == task::FindingKind::overwritten) return "shared bytes";
    if (finding.message.find("share") != std::string::npos || finding.message.find("arena") != std::string::npos)
      return "shared bytes";
  }
  return "";
}

TEST(MutationCampaign, EveryHarmfulMutantIsRejected) {
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, Counts> by_kind;
  std::map<std::string, int64_t> strictness;
  int64_t graphs = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > kBudgetSeconds) break;
    ++graphs;
    const task::TaskGraph graph = random_task_graph(seed);
    const OracleMemory memory(graph);
    ASSERT_TRUE(task::verify(graph).ok()) << "seed " << seed << "\n" << task::verify(graph).text();
    ASSERT_EQ(Oracle(graph, memory).harm(), "") << "seed " << seed;

    auto judge = [&](const task::TaskGraph& mutant, const Mutation& mutation) {
      Counts& counts = by_kind[mutation.kind];
      ++counts.mutants;
      const task::VerifyResult result = task::verify(mutant);
      const std::string harm = mutation.kind == "alias buffers" ? Oracle(mutant, OracleMemory(mutant)).harm()
                                                                : Oracle(mutant, memory).harm();
      if (result.ok()) {
        ++counts.survivors;
        EXPECT_EQ(harm, "") << "seed " << seed << ", " << mutation.kind << ": " << mutation.text
                            << ": the verifier accepts a harmful mutant\n"
                            << task::to_json(mutant);
        return;
      }
      ++counts.rejected;
      if (!harm.empty()) return;
      ++counts.harmless_rejected;
      const std::string why = known_strictness(mutant, result);
      ++strictness[why];
      EXPECT_NE(why, "") << "seed " << seed << ", " << mutation.kind << ": " << mutation.text
                         << ": the verifier rejects a harmless mutant: " << result.text() << "\n"
                         << task::to_json(mutant);
    };
    mutate_all(graph, judge, {.most_per_kind = kMostPerKind, .seed = seed});
    if (HasFailure()) break;
  }

  Counts all;
  std::printf("%-26s %9s %9s %18s %21s\n", "mutation", "mutants", "rejected", "of them harmless",
              "survivors (harmless)");
  for (const auto& [kind, counts] : by_kind) {
    std::printf("%-26s %9ld %9ld %18ld %21ld\n", kind.c_str(), counts.mutants, counts.rejected,
                counts.harmless_rejected, counts.survivors);
    all.mutants += counts.mutants;
    all.rejected += counts.rejected;
    all.harmless_rejected += counts.harmless_rejected;
    all.survivors += counts.survivors;
  }
  std::printf("%-26s %9ld %9ld %18ld %21ld\n", "all", all.mutants, all.rejected, all.harmless_rejected, all.survivors);
  std::printf("%ld graphs; harmless mutants rejected because of:", graphs);
  for (const auto& [why, number] : strictness) std::printf(" %s %ld;", why.empty() ? "?" : why.c_str(), number);
  std::printf("\n");
  EXPECT_GT(graphs, 20);
}

}  // namespace
}  // namespace megalith::test
