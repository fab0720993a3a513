#include "megalith/ops/registry.h"

namespace megalith::ops {

#define MEGALITH_OPERATOR(name) graph::Operator name();
#include "megalith/ops/operators.inc"
#undef MEGALITH_OPERATOR

std::shared_ptr<const graph::Registry> builtin() {
  static const std::shared_ptr<const graph::Registry> registry = [] {
    auto result = std::make_shared<graph::Registry>();
#define MEGALITH_OPERATOR(name) result->add(name());
#include "megalith/ops/operators.inc"
#undef MEGALITH_OPERATOR
    return result;
  }();
  return registry;
}

}  // namespace megalith::ops
