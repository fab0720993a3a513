// An operator of one's own whose proposed schedule is slow, for tests that look for a better one.
#pragma once

namespace megalith::testing {

// A recurrence along j of what lies side by side along i: as it is written, the inner loop waits for itself and jumps.
inline constexpr const char* kRunningOperator = R"(operator running
  tasks t 1
  test J=33 I=20 T=2
  input x: f32[T, J, I]
  output y: f32[T, J, I]
  { [t, i, j] : 0 <= t < T and 0 <= i < I and 0 <= j < J }
  y[t, 0, i] = x[t, 0, i] {id=first}
  y[t, j, i] = 0.5 * y[t, j - 1, i] + x[t, j, i] {id=next, if=(j >= 1)}
end
)";

}  // namespace megalith::testing
