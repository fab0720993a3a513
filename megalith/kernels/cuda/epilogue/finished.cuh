// An output that is not written as a body has it, but as an epilogue makes it: a function of the value, its row and its
// column, that was generated from what the operator was fused with. The body knows nothing of it.
#pragma once

#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

/// `Epilogue` has kColumns, of a row of the output, and finish(value, row, column).
template <class Y, class Epilogue>
struct Finished {
  Y to;
  Epilogue epilogue;
};

/// Elements `index` and `index` + 1 of one row.
template <class Y, class Epilogue>
inline void put_pair(Finished<Y, Epilogue> to, i64 index, f32 low, f32 high, Epoch epoch) {
  const u32 at = static_cast<u32>(index), row = at / static_cast<u32>(Epilogue::kColumns),
            column = at % static_cast<u32>(Epilogue::kColumns);
  put_pair(to.to, index, to.epilogue.finish(low, row, column), to.epilogue.finish(high, row, column + 1), epoch);
}

}  // namespace megalith::kernels
