// An output that is not written as a body has it, but as an epilogue makes it: a function of the value, or of two that a gate
// brings together, of its row and its column, that was generated from what the operator was fused with. The body knows
// nothing of it.
#pragma once

#include "megalith/kernels/cuda/mainloop/fragment_layout.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"

namespace megalith::kernels {

/// `Epilogue` has finish(value, row, column), or finish(gate, up, row, column).
template <class Y, class Epilogue>
struct Finished {
  Y to;
  Epilogue epilogue;
};
template <class Y, class Epilogue>
struct IsGated<Finished<Y, Epilogue>> {
  static constexpr bool kIs = requires(Epilogue epilogue) { epilogue.finish(0.0f, 0.0f, i64(0), i64(0)); };
};

template <class Y, class Epilogue>
inline auto as_written(Finished<Y, Epilogue> y) {
  return Finished<decltype(as_written(y.to)), Epilogue>{as_written(y.to), y.epilogue};
}

/// Where it is written, and what is written there in the place of sums of columns `column` and `column` + 1 of a row, of each
/// matrix.
template <class Y>
inline Y written_to(Y y) {
  return y;
}
template <class Y, class Epilogue>
inline Y written_to(Finished<Y, Epilogue> y) {
  return y.to;
}
template <class Y, int kMatrices>
inline float2 finished_pair(Y, int, int, const float2 (&sums)[kMatrices]) {
  static_assert(kMatrices == 1);
  return sums[0];
}
template <class Y, class Epilogue, int kMatrices>
inline float2 finished_pair(Finished<Y, Epilogue> y, int row, int column, const float2 (&sums)[kMatrices]) {
  if constexpr (kMatrices == 2)
    return {y.epilogue.finish(sums[0].x, sums[1].x, row, column),
            y.epilogue.finish(sums[0].y, sums[1].y, row, column + 1)};
  else
    return {y.epilogue.finish(sums[0].x, row, column), y.epilogue.finish(sums[0].y, row, column + 1)};
}

/// Columns `column` and `column` + 1 of a row; `index`: of the first one, as put_pair() counts them.
template <class Y, class Epilogue>
inline void put_pair_of(Finished<Y, Epilogue> to, int row, int column, int index, f32 low, f32 high, Epoch epoch) {
  put_pair_of(to.to, row, column, index, to.epilogue.finish(low, row, column),
              to.epilogue.finish(high, row, column + 1), epoch);
}
template <class Y, class Epilogue>
inline void put_gated_pair(Finished<Y, Epilogue> to, int row, int column, int index, float2 gate, float2 up,
                           Epoch epoch) {
  put_pair_of(to.to, row, column, index, to.epilogue.finish(gate.x, up.x, row, column),
              to.epilogue.finish(gate.y, up.y, row, column + 1), epoch);
}

}  // namespace megalith::kernels
