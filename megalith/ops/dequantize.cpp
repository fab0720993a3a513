#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// A weight of whole numbers with a scale for each row and L columns of it; the last group may be shorter.
graph::Operator dequantize() {
  return operator_("dequantize", "y = weight * scale")
      .input("weight", {"T", "K"}, DType::i8)
      .input("scale", {"T", "G"}, DType::bf16)
      .output("y", {"T", "K"})
      .size("L")
      .loops(R"(
        { [t, k] : 0 <= t < T and 0 <= k < K }
        y[t, k] = f32(weight[t, k]) * f32(scale[t, k // L])
      )")
      .tasks({{"t", 16}})
      .test({{"T", 64}, {"K", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 37}, {"K", 129}, {"G", 5}, {"L", 32}});
}

}  // namespace megalith::ops
