// The cases of all built-in operators (engine/operator_cases.h), as one graph: one compilation serves them all.
#pragma once

#include "megalith/engine/operator_cases.h"
#include "megalith/ops/registry.h"
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

}  // namespace megalith::testing
