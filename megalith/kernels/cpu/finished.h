// An output that is not written as a body has it, but as an epilogue makes it: a function of the value, or of two that a gate
// brings together, of its row and its column, that was generated from what the operator was fused with. The body knows
// nothing of it.
#pragma once

#include "megalith/kernels/cpu/lanes.h"

namespace megalith::kernels {

/// `Epilogue` has kColumns, of a row of the output, and finish(value, row, column), or finish(gate, up, row, column); and
/// ask(row, column) if that reads tensors of the output's shape.
template <class Y, class Epilogue>
struct Finished {
  Y to;
  Epilogue epilogue;
  i64 at = 0;

  MEGALITH_INLINE Finished operator+(i64 elements) const { return {to, epilogue, at + elements}; }
};

// Loops over lanes are marked for vectors: g++ unrolls those that are merely independent before it looks for vectors, and
// then loads what an epilogue reads element by element.

/// Elements of one row.
template <class Y, class Epilogue>
MEGALITH_INLINE inline void put_lanes(const Finished<Y, Epilogue>& to, const Lanes& x, i64 count) {
  const i64 row = to.at / Epilogue::kColumns, column = to.at - row * Epilogue::kColumns;
  f32 each[kLanes];
  x.store(each);
  if (count == kLanes) {
#pragma omp simd
    for (i64 l = 0; l < kLanes; ++l) each[l] = to.epilogue.finish(each[l], row, column + l);
  } else {
    for (i64 l = 0; l < count; ++l) each[l] = to.epilogue.finish(each[l], row, column + l);
  }
  put_lanes(to.to + to.at, Lanes::load(each), count);
}
template <class Y, class Epilogue>
MEGALITH_INLINE inline void put_gated_lanes(const Finished<Y, Epilogue>& to, const f32* gate, const f32* up,
                                            i64 count) {
  const i64 row = to.at / Epilogue::kColumns, column = to.at - row * Epilogue::kColumns;
  f32 each[kLanes] = {};
  if (count == kLanes) {
#pragma omp simd
    for (i64 l = 0; l < kLanes; ++l) each[l] = to.epilogue.finish(gate[l], up[l], row, column + l);
  } else {
    for (i64 l = 0; l < count; ++l) each[l] = to.epilogue.finish(gate[l], up[l], row, column + l);
  }
  put_lanes(to.to + to.at, Lanes::load(each), count);
}

template <class Y, class Epilogue>
MEGALITH_INLINE inline void prefetch_output(const Finished<Y, Epilogue>& to) {
  prefetch_output(to.to + to.at);
  if constexpr (requires { to.epilogue.ask(to.at, to.at); }) {
    const i64 row = to.at / Epilogue::kColumns;
    to.epilogue.ask(row, to.at - row * Epilogue::kColumns);
  }
}

}  // namespace megalith::kernels
