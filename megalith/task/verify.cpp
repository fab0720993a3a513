#include "megalith/task/verify.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "megalith/task/verify_parts.h"

namespace megalith::task {

std::string_view finding_kind_name(FindingKind kind) {
  switch (kind) {
    case FindingKind::structure: return "structure";
    case FindingKind::constant_written: return "constant written";
    case FindingKind::deadlock: return "deadlock";
    case FindingKind::overrun: return "overrun";
    case FindingKind::unordered: return "unordered";
    case FindingKind::overwritten: return "overwritten";
    case FindingKind::in_place: return "in place";
    case FindingKind::stream: return "stream";
    case FindingKind::change: return "change";
  }
  return "?";
}

std::string VerifyResult::text() const {
  std::string text;
  for (const Finding& finding : findings)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", finding_kind_name(finding.kind), finding.message);
  return text;
}

namespace {

// Of a graph whose structure is right. Returns the number of orders looked at.
int64_t prove(const TaskGraph& graph, verifier::Budget& budget, verifier::Findings& findings) {
  const std::launch aside = verifier::aside(graph);
  const verifier::ArenaCells cells(graph, budget);
  // Beside the simulation and the clocks, which take as long as all of this.
  verifier::Findings of_nodes;
  auto accesses = std::async(aside, [&] {
    verifier::Accesses all(graph, cells, budget);
    verifier::check_in_place(graph, budget, of_nodes);
    verifier::check_streams(graph, of_nodes);
    return all;
  });
  const std::vector<int> order = verifier::simulate(graph, budget, findings);
  if (!findings.none() || budget.is_spent()) return 0;
  const verifier::Clocks clocks(graph, order);
  verifier::Findings of_shared;
  auto shared =
      std::async(aside, [&] { return verifier::check_shared_bytes(graph, cells, clocks, budget, of_shared); });
  verifier::check_overrun(graph, clocks, findings);
  const verifier::Accesses ready = accesses.get();
  int64_t num_orders = verifier::check_hazards(graph, ready, clocks, budget, findings);
  num_orders += shared.get();
  findings.add(of_shared);
  findings.add(of_nodes);
  return num_orders;
}

}  // namespace

VerifyResult verify(const TaskGraph& graph) {
  VerifyResult result;
  verifier::Findings findings;
  verifier::check_structure(graph, findings);
  if (findings.none()) {
    verifier::Budget budget;
    result.num_orders_checked = prove(graph, budget, findings);
    if (budget.is_spent()) {
      findings = {};
      findings.add(FindingKind::structure, {}, -1, -1,
                   "the graph is too intricate to be proved: its regions or shared bytes meet in too many ways; cut "
                   "buffers where tasks do, or give them bytes of their own");
    }
  }
  result.findings = findings.take();
  return result;
}

namespace verifier {

std::string order_text(const Clocks& clocks, int first, int iteration, int second) {
  // Only within an iteration can a graph run the later one first for certain; across two, list order forbids it.
  const bool reversed = iteration == 1 && clocks.precedes(second, 1, first);
  return reversed ? "but the graph runs the second before the first" : "and nothing orders them";
}

}  // namespace verifier
}  // namespace megalith::task
