// Which points of a kernel touch the same element: what the checks of write races and of access order ask, and whether
// a kernel may work in place.
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// points -> the values of forms on their space.
isl::map values_at(const isl::set& points, const std::vector<isl::aff>& forms);

/// points -> the element they touch, over the subscripts that are affine; false for the rest.
struct ElementMap {
  isl::map map;
  std::vector<bool> is_affine;
};
ElementMap element_map(const isl::set& points, const std::vector<Expr>& args);

/// A subscript of a tensor, with the points at which it is evaluated.
struct TensorAccess {
  size_t instruction;
  const Expr* expr;
  bool is_write;
  std::vector<std::string> inames;  // within first, in nest order
  isl::set points;
  ElementMap elements;

  bool is_affine() const;
  /// Where an iname stands among `inames`; nothing if the access does not depend on it.
  std::optional<unsigned> position(const std::string& iname) const;
};

/// All accesses to the tensors that `wanted` names, in text order. `kernel` must outlive them.
std::vector<TensorAccess> tensor_accesses(const Kernel& kernel, const Domains& domains,
                                          const std::function<bool(const std::string&)>& wanted);

/// Pairs of points of `a` and `b` that touch the same element; nothing if data have a say in it.
std::optional<isl::map> meetings(const TensorAccess& a, const TensorAccess& b);

/// x -> y with x[a] < y[b], or == if `equal`, over the spaces of `like`.
isl::map compared(const isl::map& like, unsigned a, unsigned b, bool equal);

/// How many loops the nest lets two instructions share.
size_t shared_loops(const Kernel& kernel, size_t first, size_t last);

/// The inames along which tasks are cut that have more than one value.
std::vector<std::string> cut_inames(const Kernel& kernel, const Domains& domains);

}  // namespace megalith::loop
