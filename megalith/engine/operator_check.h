// The check of one operator: all that its declaration says it is to be tested on, through the whole pipeline on a
// target, against the interpreter of its loop kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/operator.h"

namespace megalith::engine {

struct OperatorCheck {
  std::string op, target;
  std::vector<std::string> cases;  // "gelu.0.bf16", one for each sizes and dtype
  bool has_body = false;           // one that came with the operator, on this target
  bool ran = true;                 // false: it was compiled for a GPU, and there is none
};

/// On "cpu", "cuda" or "cuda:sm_90a"; without a GPU the last one only compiles. UserError naming operator and target if
/// a body does not compile (with the compiler's words), touches what its task may not, or is wrong: which element, what
/// was found, what was wanted. InternalError if generated code is wrong. An opaque operator has no check: UserError.
OperatorCheck check_operator(const graph::Operator& op, const std::string& target = "cpu");

}  // namespace megalith::engine
