#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// embedding with a table as linear_int8 has its weight.
graph::Operator embedding_int8() {
  return operator_("embedding_int8", "y[t] = weight[ids[t]] * scale[ids[t]]")
      .index("ids", {"T"}, "V")
      .input("weight", {"V", "H"}, DType::i8)
      .input("scale", {"V", "G"}, DType::bf16)
      .output("y", {"T", "H"})
      .size("L")
      .loops(R"(
        { [t, h] : 0 <= t < T and 0 <= h < H }
        y[t, h] = f32(weight[ids[t], h]) * f32(scale[ids[t], h // L])
      )")
      .tasks({{"h", 16}, {"t", 1}})
      .test({{"T", 1}, {"V", 7}, {"H", 64}, {"G", 2}, {"L", 32}})
      .test({{"T", 5}, {"V", 501}, {"H", 33}, {"G", 2}, {"L", 32}});
}

}  // namespace megalith::ops
