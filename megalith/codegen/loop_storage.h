// Where temporaries of a scheduled kernel stand in its code: in the function, as one element for each thread where a subscript
// says no more than which thread it is, in memory that others have as well, or with the caller. Internal to
// codegen/loop_source.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "megalith/loop/kernel.h"
#include "megalith/loop/parallel.h"

namespace megalith::codegen {

class LoopStorage {
 public:
  /// `kernel`, whose sizes are whole numbers where they are known, and `parallel` must outlive it.
  LoopStorage(const loop::Kernel& kernel, const loop::Parallel& parallel, bool is_gpu, bool is_emulated);

  /// Whether the function has the temporary; else its caller does.
  bool is_own(const std::string& name) const { return contracted_.contains(name); }
  /// Whether the function has of a tensor one element along the axis, for each thread or each block.
  bool is_contracted(const std::string& name, size_t axis) const { return axes_of_threads(name).contains(axis); }
  std::set<size_t> axes_of_threads(const std::string& name) const;
  /// UserError for a temporary of a thread or a block whose size is no number.
  void check_may_be_callers(const loop::TensorArgument& tensor) const;
  /// Declarations of what the function has. `packed`: tensors some of whose elements move at once. CapacityError if it is more
  /// than a thread or a block may have.
  std::string declarations(const std::set<std::string>& packed) const;

 private:
  const loop::TensorArgument& tensor(const std::string& name) const { return *kernel_.find_tensor(name); }
  std::set<size_t> own_axes(const std::string& name, loop::Space space) const;
  std::string own_index(size_t instruction, const loop::Expr& index, loop::Space space) const;
  bool name_axes(size_t instruction, loop::Expr& index, loop::Space space) const;
  std::string first_index(const std::string& name, size_t axis, loop::Space space) const;
  bool has_size(const std::string& name, const std::set<size_t>& without) const;
  int64_t bytes_of(const std::string& name, const std::set<size_t>& without) const;
  std::map<std::string, int64_t> pool_bytes() const;

  const loop::Kernel& kernel_;
  const loop::Parallel& parallel_;
  const bool is_gpu_, is_emulated_;
  std::map<std::string, std::set<size_t>> contracted_;  // axes that each thread has one element of
};

}  // namespace megalith::codegen
