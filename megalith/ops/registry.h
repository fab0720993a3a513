// All operators that come with Megalith. Adding one is adding a file to this folder: NAME.cpp, which defines
// `Operator NAME()` in namespace megalith::ops.
#pragma once

#include <memory>

#include "megalith/graph/operator.h"

namespace megalith::ops {

/// The registry of all built-in operators, made once.
std::shared_ptr<const graph::Registry> builtin();

}  // namespace megalith::ops
