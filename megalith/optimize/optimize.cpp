#include "megalith/optimize/optimize.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/optimize/rules.h"

namespace megalith::optimize {

namespace {

// In the order in which they are applied: each is tried wherever it may fit, once.
constexpr Rule kRules[] = {
    {"gather_first", "f(x)[rows] = f(x[rows]), f row by row", gather_first},
    {"cast_intermediate", "x W^T = bf16(x) W^T where all that read x round it", cast_intermediate},
    {"split_scales", "x W^T = x (w * scale)^T where W is quantised", split_scales},
    {"fuse_attention", "attention(rope(x Q^T), cache after append) = attention(x [Q K V]^T, cache before it)",
     fuse_attention},
    {"defer_norm", "rmsnorm(x) W^T = rsqrt(sum x^2 / K + eps) * ((x norm) W^T)", defer_norm},
    {"split_k", "x W^T = the sum over slices of K", split_k},
    {"fuse_residual", "add(r, linear(x)) in one, and bf16 of it for who multiplies it", fuse_residual},
    {"fuse_argmax", "argmax(x W^T) = argmax over chunks of (argmax of each chunk)", fuse_argmax},
    {"fuse_prologue", "linear(rmsnorm(x)) in one", fuse_prologue},
    {"pair", "f(x G^T, x U^T) in one, f element by element", pair},
    {"split_kv", "attention = merge(attention over chunks of positions)", split_kv},
    {"split_reduce", "argmax = argmax over chunks of (argmax of each chunk)", split_reduce},
    {"fuse_epilogue", "f(g(x), c) = (f . g)(x, c), f element by element", fuse_epilogue},
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
  const Goal goal = Goal::of(graph, target);
  const std::set<std::string> disabled = disabled_rules();
  for (const Rule& rule : kRules) {
    if (disabled.contains(rule.name)) continue;
    if (const int times = rule.apply(graph, goal))
      log_debug("[optimize] {}: {} {} times", graph.name(), rule.name, times);
  }
  graph.tidy();
  return graph;
}

}  // namespace megalith::optimize
