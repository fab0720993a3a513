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
  }
  return "?";
}

std::string VerifyResult::text() const {
  std::string text;
  for (const Finding& finding : findings)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", finding_kind_name(finding.kind), finding.message);
  return text;
}

VerifyResult verify(const TaskGraph& graph) {
  VerifyResult result;
  verifier::Findings findings;
  verifier::check_structure(graph, findings);
  if (findings.none()) {
    const std::launch aside = verifier::aside(graph);
    auto accesses = std::async(aside, [&] { return verifier::Accesses(graph); });
    const std::vector<int> order = verifier::simulate(graph, findings);
    if (findings.none()) {
      const verifier::Clocks clocks(graph, order);
      verifier::Findings of_shared;
      auto shared = std::async(aside, [&] { return verifier::check_shared_bytes(graph, clocks, of_shared); });
      verifier::check_overrun(graph, clocks, findings);
      const verifier::Accesses ready = accesses.get();
      result.num_orders_checked = verifier::check_hazards(graph, ready, clocks, findings);
      result.num_orders_checked += shared.get();
      findings.add(of_shared);
    }
  }
  result.findings = findings.take();
  return result;
}

namespace verifier {

std::string box_text(const loop::Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.lo.size(); ++d) text += fmt::format("{}{}:{}", d ? ", " : "", box.lo[d], box.hi[d]);
  return text + "]";
}

std::string order_text(const Clocks& clocks, int first, int iteration, int second) {
  // Only within an iteration can a graph run the later one first for certain; across two, list order forbids it.
  const bool reversed = iteration == 1 && clocks.precedes(second, 1, first);
  return reversed ? "but the graph runs the second before the first" : "and nothing orders them";
}

}  // namespace verifier
}  // namespace megalith::task
