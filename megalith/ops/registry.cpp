#include "megalith/ops/registry.h"

namespace megalith::ops {

#define MEGALITH_OPERATOR(name) graph::Operator name();
#include "megalith/ops/operators.inc"
#undef MEGALITH_OPERATOR

#define MEGALITH_OPERATOR(name) std::vector<graph::Operator> name();
#include "megalith/ops/fused.inc"
#undef MEGALITH_OPERATOR

const graph::Registry& single() {
  static const graph::Registry registry = [] {
    graph::Registry result;
#define MEGALITH_OPERATOR(name) result.add(name());
#include "megalith/ops/operators.inc"
#undef MEGALITH_OPERATOR
    return result;
  }();
  return registry;
}

std::shared_ptr<const graph::Registry> builtin() {
  static const std::shared_ptr<const graph::Registry> registry = [] {
    auto result = std::make_shared<graph::Registry>(single());
#define MEGALITH_OPERATOR(name) \
  for (graph::Operator & op : name()) result->add(std::move(op));
#include "megalith/ops/fused.inc"
#undef MEGALITH_OPERATOR
    return result;
  }();
  return registry;
}

}  // namespace megalith::ops
