// The cases of all built-in operators (engine/operator_cases.h), as one graph: one compilation serves them all.
#pragma once

#include <array>

#include "megalith/engine/operator_cases.h"
#include "megalith/ops/registry.h"
#include "support/configurations.h"
#include "support/graph_run.h"

namespace megalith::testing {

using engine::cpu_slack;
using engine::fill_operator_cases;
using engine::gpu_slack;
using engine::OperatorCases;
using engine::wrong_operators;

/// The operators that have cases: all but those that no loop kernel can say (batch_operators_test.cpp).
inline std::vector<std::string> operators_with_cases() {
  std::vector<std::string> names = ops::builtin()->names();
  std::erase_if(names, [](const std::string& name) { return static_cast<bool>(ops::builtin()->get(name).reference); });
  return names;
}

inline OperatorCases operator_cases(const std::vector<std::string>& names = operators_with_cases()) {
  return OperatorCases(ops::builtin(), names);
}

/// Of one operator those that stand for the rest, or all of them with all configurations. A body reads and writes elements
/// of a dtype in one place, and walks sizes in another: so the first sizes come in every dtype, each of the others in one,
/// by turns, and a dynamic size is what it is in the first case that has one, and in the last, whose sizes are odd.
inline OperatorCases some_operator_cases(const std::string& name) {
  OperatorCases all = operator_cases({name});
  if (test::all_configurations()) return all;
  constexpr std::array kDtypes = {DType::f32, DType::bf16, DType::f16};
  const auto is_dynamic = [](const engine::OperatorCase& one) { return one.node.ends_with(".dynamic"); };
  const auto first_dynamic = std::ranges::find_if(all.cases, is_dynamic);
  OperatorCases some(ops::builtin(), {});
  std::array<size_t, kDtypes.size()> seen = {};
  for (auto one = all.cases.begin(); one != all.cases.end(); ++one) {
    if (is_dynamic(*one)) {
      if (one != first_dynamic && one + 1 != all.cases.end()) continue;
    } else {
      const auto dtype = static_cast<size_t>(std::ranges::find(kDtypes, one->dtype) - kDtypes.begin());
      const size_t size = seen.at(dtype)++;
      if (size > 0 && size % kDtypes.size() != dtype) continue;
    }
    some.cases.push_back(*one);
    some.cases.back().tensors = engine::add_operator(
        some.graph, *one->op, one->node, one->dtype, one->sizes,
        is_dynamic(*one) ? std::map<std::string, std::string>{{"T", "rows"}} : std::map<std::string, std::string>{});
  }
  return some;
}

}  // namespace megalith::testing
