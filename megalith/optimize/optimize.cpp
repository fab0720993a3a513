#include "megalith/optimize/optimize.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/optimize/fuse_epilogue.h"

namespace megalith::optimize {

namespace {

constexpr Rule kRules[] = {
    {"fuse_epilogue", "f(g(x), c) = (f . g)(x, c), f element by element; c constant where weights are streamed",
     fuse_epilogue},
};

std::set<std::string> disabled_rules() {
  std::set<std::string> names;
  std::istringstream from(option_value("MEGALITH_DISABLE"));
  for (std::string name; std::getline(from, name, ',');) {
    const bool is_known = std::ranges::any_of(kRules, [&](const Rule& rule) { return rule.name == name; });
    std::vector<std::string> known;
    for (const Rule& rule : kRules) known.emplace_back(rule.name);
    MEGALITH_CHECK(is_known, "MEGALITH_DISABLE names \"{}\", and there is no such rule: want {}", name,
                   fmt::join(known, ", "));
    names.insert(name);
  }
  return names;
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

graph::Graph optimize(graph::Graph graph, const std::string& target) {
  const std::set<std::string> disabled = disabled_rules();
  for (const Rule& rule : kRules) {
    if (disabled.contains(rule.name)) continue;
    if (const int times = rule.apply(graph, target))
      log_debug("[optimize] {}: {} {} times", graph.name(), rule.name, times);
  }
  return graph;
}

}  // namespace megalith::optimize
