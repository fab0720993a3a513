// Scheduled loop kernels, compiled for this machine and called with arrays: what codegen/loop_source.h writes, loaded.
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/loop_source.h"
#include "megalith/jit/build.h"
#include "megalith/loop/interpret.h"
#include "megalith/loop/kernel.h"

namespace megalith::jit {

class CompiledLoops {
 public:
  /// All sources (for a CPU, or emulated) in one library; their names differ.
  static CompiledLoops compile(const std::vector<codegen::LoopSource>& sources,
                               std::vector<std::string> flags = default_flags());

  /// Runs the function that came of `source`, which came of `kernel`. Arrays as loop::interpret() takes them: in float64,
  /// here rounded to the tensors' types and back.
  void run(const codegen::LoopSource& source, const loop::Kernel& kernel, const loop::Binding& binding,
           loop::Arrays& arrays) const;

 private:
  Build build_;
};

}  // namespace megalith::jit
