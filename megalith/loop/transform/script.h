// A list of transformations as text, a line each, which is executed as it is recorded and can be replayed:
//
//   fuse linear x=y                   (of another kernel, by its name; "keep y": y stays an output)
//   substitute y
//   hoist_factors insn1
//   split_iname k 256 k_slice k_in
//   split_reduction k_slice part      (several inames with colons between: a:b)
//   unify_inames t_0 t
//   rename k_in k
//   tag_iname n task                  (or loop)
//   permute_axes weight 1 0
//   split_axis weight 0 16
//
// `#` begins a comment.
#pragma once

#include <map>
#include <string>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Kernels that a script names, beside the one that it transforms.
using Kernels = std::map<std::string, Kernel>;

class Script {
 public:
  explicit Script(Kernel kernel, Kernels others = {}) : kernel_(std::move(kernel)), others_(std::move(others)) {}

  /// Executes a line and records it. UserError with the line if it does not read or does not apply; then nothing has
  /// changed.
  Script& apply(const std::string& line);

  const Kernel& kernel() const { return kernel_; }
  const std::string& text() const { return text_; }

 private:
  Kernel kernel_;
  Kernels others_;
  std::string text_;
};

/// Executes all lines. UserError with the number of the line.
Kernel replay(const Kernel& kernel, const std::string& script, const Kernels& others = {});

}  // namespace megalith::loop
