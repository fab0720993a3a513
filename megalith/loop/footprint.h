// What one tile of a kernel touches: for each access the isl image of the tile, as a box in the tensor's index space.
// Nobody writes partition maps by hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/corner.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// A half-open box lo <= index < hi per dimension; empty if any hi <= lo. A scalar's box has no dimensions.
struct Box {
  Corner lo, hi;

  bool empty() const;
  bool intersects(const Box& other) const;
  bool contains(const Box& other) const;
  int64_t num_elements() const;
  bool operator==(const Box&) const = default;
};

/// Range of an iname that a tile covers, half-open.
struct Range {
  std::string iname;
  int64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

struct TensorFootprint {
  std::vector<Box> reads, writes;  // per tensor; boxes contained in another are left out
};

/// The footprints of many tiles of one bound kernel: isl works out, once, each access's image as affine bounds in the
/// tile's ranges; a tile is then a few integer evaluations. An image that is not a box is widened to the box around it,
/// which is safe: it can only add ordering. A data-dependent subscript covers its dimension.
class Footprints {
 public:
  /// `tiled`: the inames that tiles restrict, in order. Temporaries are private to a task and have no footprint. All
  /// sizes must be bound, dynamic ones to their largest value. UserError if a tensor that data indexes has no declared
  /// shape.
  Footprints(const Kernel& kernel, const Binding& binding, std::vector<std::string> tiled);
  ~Footprints();
  Footprints(Footprints&&) noexcept;

  /// ranges: one per tiled iname, in that order. Result: tensor name -> boxes.
  std::map<std::string, TensorFootprint> of_tile(const std::vector<Range>& ranges) const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace megalith::loop
