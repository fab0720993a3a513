// Operations and bytes of a bound kernel or of one tile of it, counted by isl, for roofline shares, placement and
// tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/footprint.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

struct OpCounts {
  // (dtype, function) -> how often it is evaluated: ("f32", "add"), ("f32", "mul"), ("i32", "add"), ("f32", "exp"), ...
  // Index arithmetic inside subscripts is not counted. A sum over k counts one add a point.
  std::map<std::pair<DType, std::string>, int64_t> ops;
  int64_t flops() const;  // add, sub, mul, div of float dtypes count 1 each, functions 1 each
};

/// Counts over the whole domain (conditions that depend on data count as true), restricted to the tile if given.
OpCounts count_ops(const Kernel& kernel, const Binding& binding, const std::vector<Range>& tile = {});

struct AccessCount {
  int64_t loads = 0, stores = 0;                          // evaluations of the access
  int64_t load_bytes = 0, store_bytes = 0;                // times the dtype's size
  int64_t unique_read_bytes = 0, unique_write_bytes = 0;  // of the footprint: what must move at least once

  /// To and from memory, where what is used again stays in a cache. A table that is looked up by a data-dependent index
  /// has all of that dimension as its footprint; no more of it moves than is loaded.
  int64_t moved_bytes() const;
};
/// Per tensor (temporaries left out).
std::map<std::string, AccessCount> count_accesses(const Kernel& kernel, const Binding& binding,
                                                  const std::vector<Range>& tile = {});

}  // namespace megalith::loop
