// A mutation campaign: a sound graph is broken in every way that support/mutate.h knows. An oracle that works
// differently from the verifier says which mutants are harmful; the verifier must reject every one of those, and
// whatever it rejects beyond them must be explained by a strictness that its header admits.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "megalith/task/json.h"
#include "megalith/task/verify.h"
#include "support/mutate.h"
#include "support/mutate_oracle.h"

namespace megalith::test {

// Where the header of task/verify.h says that the verifier is stricter than need be; "" if nothing there explains why
// it refused a mutant that the oracle finds harmless.
inline std::string known_strictness(const task::TaskGraph& graph, const task::VerifyResult& result) {
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

class Campaign {
 public:
  /// Judges `graph` itself, which must be sound, and its mutants; failures are GoogleTest's and name `label`.
  void run(const task::TaskGraph& graph, const std::string& label, const MutateOptions& options) {
    ++graphs_;
    const OracleMemory memory(graph);
    ASSERT_TRUE(task::verify(graph).ok()) << label << "\n" << task::verify(graph).text();
    ASSERT_EQ(Oracle(graph, memory).harm(), "") << label;
    mutate_all(
        graph, [&](const task::TaskGraph& mutant, const Mutation& mutation) { judge(mutant, mutation, memory, label); },
        options);
  }

  int64_t num_graphs() const { return graphs_; }

  void print() const {
    Counts all;
    std::printf("%-26s %9s %9s %18s %21s\n", "mutation", "mutants", "rejected", "of them harmless",
                "survivors (harmless)");
    for (const auto& [kind, counts] : by_kind_) {
      print_row(kind.c_str(), counts);
      all.mutants += counts.mutants;
      all.rejected += counts.rejected;
      all.harmless_rejected += counts.harmless_rejected;
      all.survivors += counts.survivors;
    }
    print_row("all", all);
    std::printf("%ld graphs; harmless mutants rejected because of:", graphs_);
    for (const auto& [why, number] : strictness_) std::printf(" %s %ld;", why.empty() ? "?" : why.c_str(), number);
    std::printf("\n");
  }

 private:
  struct Counts {
    int64_t mutants = 0, rejected = 0, harmless_rejected = 0, survivors = 0;
  };

  static void print_row(const char* kind, const Counts& counts) {
    std::printf("%-26s %9ld %9ld %18ld %21ld\n", kind, counts.mutants, counts.rejected, counts.harmless_rejected,
                counts.survivors);
  }

  void judge(const task::TaskGraph& mutant, const Mutation& mutation, const OracleMemory& memory,
             const std::string& label) {
    Counts& counts = by_kind_[mutation.kind];
    ++counts.mutants;
    const task::VerifyResult result = task::verify(mutant);
    const std::string harm =
        mutation.kind == "alias buffers" ? Oracle(mutant, OracleMemory(mutant)).harm() : Oracle(mutant, memory).harm();
    if (result.ok()) {
      ++counts.survivors;
      EXPECT_EQ(harm, "") << label << ", " << mutation.kind << ": " << mutation.text
                          << ": the verifier accepts a harmful mutant\n"
                          << task::to_json(mutant);
      return;
    }
    ++counts.rejected;
    if (!harm.empty()) return;
    ++counts.harmless_rejected;
    const std::string why = known_strictness(mutant, result);
    ++strictness_[why];
    EXPECT_NE(why, "") << label << ", " << mutation.kind << ": " << mutation.text
                       << ": the verifier rejects a harmless mutant: " << result.text() << "\n"
                       << task::to_json(mutant);
  }

  int64_t graphs_ = 0;
  std::map<std::string, Counts> by_kind_;
  std::map<std::string, int64_t> strictness_;
};

}  // namespace megalith::test
