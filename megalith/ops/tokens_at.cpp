#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// The T tokens of a text from where it has got to: what comes next of a prompt, or what was made last.
graph::Operator tokens_at() {
  return operator_("tokens_at", "ids[t] = tokens[begin[0] + t]")
      .input("tokens", {"S"}, DType::i32)
      .index("begin", {"R"}, "B")
      .output("ids", {"T"}, DType::i32)
      .size("B")
      .loops(R"(
        { [t] : 0 <= t < T }
        ids[t] = tokens[begin[0] + t]
      )")
      .test({{"S", 1}, {"R", 1}, {"B", 1}, {"T", 1}})
      .test({{"S", 40}, {"R", 3}, {"B", 36}, {"T", 5}});
}

}  // namespace megalith::ops
