// Caches whose heads lie in pairs, even ones on one side of the L2 and odd ones on the other (kernels/head_pairs.h): all of them in
// one piece of the GPU's memory, each from one of its pages on, with its table behind it. Without sides the tables are zeros.
#pragma once

#include <array>
#include <map>
#include <string>

#include "megalith/kernels/head_pairs.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/cuda/sides.h"

namespace megalith::runtime {

class PairedCaches {
 public:
  /// Before allocate(), which makes room for all, filled with zeros.
  void add(const std::string& name, int64_t bytes, head_pairs::PageShape shape);
  void allocate();
  bool contains(const std::string& name) const { return caches_.contains(name); }
  void* address(const std::string& name) const;
  int64_t bytes() const { return memory_.bytes(); }

  /// Puts heads on sides, as long as nothing is in them. By the kernels of `module`, as find_sides().
  void find(const jit::CudaDeviceInfo& device, jit::CudaModule module);
  /// The whole cache, from or to the host, where it lies row by row.
  void upload(const std::string& name, const void* from);
  void download(const std::string& name, void* to) const;

 private:
  using Table = std::array<u32, head_pairs::kTableWords>;
  struct Cache {
    int64_t bytes, offset;
    head_pairs::PageShape shape;
    Table table = {};
  };
  template <class Visit>
  static void each_row(const Cache& cache, Visit visit);

  std::map<std::string, Cache> caches_;
  int64_t bytes_ = 0;
  DeviceMemory memory_;
};

/// The table of a cache of `bytes` bytes that begins at byte `begin` of memory on those sides; of nothing but zeros
/// where two pieces side by side are on one.
std::array<u32, head_pairs::kTableWords> table_of_pairs(const SideMap& sides, int64_t begin, int64_t bytes);

}  // namespace megalith::runtime
