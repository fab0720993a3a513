#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Counts iterations, for whoever needs another number in each.
graph::Operator count_up() {
  return operator_("count_up", "n = n + 1")
      .inout("n", {"W"}, DType::i32)
      .loops(R"(
        { [w] : 0 <= w < W }
        n[w] = n[w] + 1
      )")
      .test({{"W", 1}})
      .test({{"W", 3}});
}

}  // namespace megalith::ops
