// All operators that come with Megalith. Adding one is adding a file to this folder that defines
// `graph::Operator NAME()` in namespace megalith::ops. What rules put in the place of several of them is in fused/, made of them.
#pragma once

#include <memory>

#include "megalith/graph/operator.h"

namespace megalith::ops {

/// The registry of all built-in operators, made once.
std::shared_ptr<const graph::Registry> builtin();

/// Without the fused ones: what those are made of.
const graph::Registry& single();

}  // namespace megalith::ops
