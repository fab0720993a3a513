// Typed views: how a body that came with an operator, as a text, sees its operands. A view is indexed as the tensor is,
// knows which slice of it the task may touch, and converts: a body calculates in f32 (or in whole numbers), whatever
// the elements are stored as.
//
//   for (i64 t = task.t_begin; t < task.t_end; ++t)
//     for (i64 n = task.y.begin[1]; n < task.y.end[1]; ++n) task.y(t, n) = max(task.x(t, n), 0.0f);
//
// A subscript that data decides is looked at (kernels/cpu/check.h): one that is outside reads as 0 and writes nothing,
// and ends the run. With MEGALITH_WATCH_VIEWS every access is looked at, and the first one outside of its slice is written down: what the
// task graph does not know of, nobody orders.
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/runtime/view_error.h"

namespace megalith::kernels {

// ---- elements and values -----------------------------------------------------------------------

inline f32 value_of(f32 x) { return x; }
inline f32 value_of(bf16 x) { return to_f32(x); }
inline f32 value_of(f16 x) { return to_f32(x); }
inline i8 value_of(i8 x) { return x; }
inline i32 value_of(i32 x) { return x; }
inline i64 value_of(i64 x) { return x; }
template <class T>
using ValueOf = decltype(value_of(T{}));

inline void put(f32& to, f32 value) { to = value; }
inline void put(bf16& to, f32 value) { to = to_bf16(value); }
inline void put(f16& to, f32 value) { to = to_f16(value); }
inline void put(i8& to, i8 value) { to = value; }
inline void put(i32& to, i32 value) { to = value; }
inline void put(i64& to, i64 value) { to = value; }

/// An element that may be written: it takes and gives values.
template <class T>
struct Element {
  T& at;

  operator ValueOf<T>() const { return value_of(at); }
  const Element& operator=(ValueOf<T> value) const {
    put(at, value);
    return *this;
  }
  const Element& operator=(const Element& other) const { return *this = ValueOf<T>(other); }
};

/// The same that is not there if its subscript was outside.
template <class T>
struct CheckedElement {
  T* at;

  operator ValueOf<T>() const { return at != nullptr ? value_of(*at) : ValueOf<T>{}; }
  const CheckedElement& operator=(ValueOf<T> value) const {
    if (at != nullptr) put(*at, value);
    return *this;
  }
  const CheckedElement& operator=(const CheckedElement& other) const { return *this = ValueOf<T>(other); }
};

template <class T, bool kIsChecked>
struct Accessed {
  using Type = Element<T>;
  static Type of(T* at) { return {*at}; }
};
template <class T>
struct Accessed<T, true> {
  using Type = CheckedElement<T>;
  static Type of(T* at) { return {at}; }
};
template <class T>
struct Accessed<const T, false> {
  using Type = ValueOf<T>;
  static Type of(const T* at) { return value_of(*at); }
};
template <class T>
struct Accessed<const T, true> {
  using Type = ValueOf<T>;
  static Type of(const T* at) { return at != nullptr ? value_of(*at) : Type{}; }
};

// ---- watching ----------------------------------------------------------------------------------

#if defined(MEGALITH_WATCH_VIEWS)
extern "C" {
[[gnu::visibility("default")]] runtime::ViewError megalith_view_error = {};
}
#endif

// ---- views -------------------------------------------------------------------------------------

/// Where a view notes what is outside: its first dimension's check.
struct ViewChecks {
  FaultNote faults;
  u32 first;
};
struct NoViewChecks {};
template <unsigned kChecked>
struct ViewChecksOf {
  using Type = ViewChecks;
};
template <>
struct ViewChecksOf<0> {
  using Type = NoViewChecks;
};

/// A row-major tensor of the given extents; a dynamic one counts as what it may become. `kChecked`: a bit for each
/// dimension whose subscript data decides.
template <class T, unsigned kChecked, i64... kExtents>
struct View {
  static constexpr int kRank = static_cast<int>(sizeof...(kExtents));
  static constexpr int kPlaces = kRank > 0 ? kRank : 1;
  using Index = i64[kPlaces];

  T* data;
  Index begin, end;  // of the slice
  typename ViewChecksOf<kChecked>::Type checks;
#if defined(MEGALITH_WATCH_VIEWS)
  const char* name;
#endif

  static constexpr i64 extent(int dimension) {
    constexpr Index extents = {kExtents...};
    return extents[dimension];
  }
  /// Elements from one index of a dimension to the next.
  static constexpr i64 stride(int dimension) {
    i64 result = 1;
    for (int d = kRank - 1; d > dimension; --d) result *= extent(d);
    return result;
  }

  template <class... Indices>
  typename Accessed<T, kChecked != 0>::Type operator()(Indices... indices) const {
    using Access = Accessed<T, kChecked != 0>;
    static_assert(static_cast<int>(sizeof...(Indices)) == kRank, "as many indices as the tensor has dimensions");
    const Index index = {static_cast<i64>(indices)...};
    i64 offset = 0;
    for (int d = 0; d < kRank; ++d) offset = offset * extent(d) + index[d];
#if defined(MEGALITH_WATCH_VIEWS)
    for (int d = 0; d < kRank; ++d) {
      if (index[d] >= begin[d] && index[d] < end[d]) continue;
      if (megalith_view_error.view == nullptr) megalith_view_error = {name, d, index[d], begin[d], end[d]};
      static thread_local T nobodys{};
      return Access::of(&nobodys);
    }
#else
    if constexpr (kChecked != 0)
      for (int d = 0; d < kRank; ++d)
        if ((kChecked >> d & 1) != 0 && !is_inside(checks.faults, index[d], end[d], checks.first + static_cast<u32>(d)))
          return Access::of(nullptr);
#endif
    return Access::of(data + offset);
  }
};

}  // namespace megalith::kernels
