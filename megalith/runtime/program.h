// A program: a compiled kernel together with the memory it runs on. Places activations in one arena, gets pointers to
// constants and states from its caller, and makes the launch image that a Launcher runs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/packed_weights.h"
#include "megalith/runtime/profile_rings.h"
#include "megalith/runtime/weights_ahead.h"

namespace megalith::runtime {

/// What the launch image needs beside the task graph. `addresses`: per tensor, where the kernel finds it.
ImageParts image_parts(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                       const std::vector<void*>& addresses);

class Program {
 public:
  /// `memory`: for every constant and state of the graph its address, by tensor name; the memory must outlive the
  /// program, as must `kernel`. Weights that bodies read in panels are packed into memory of the program's own.
  /// UserError naming a tensor that is not there.
  Program(const graph::Graph& graph, const jit::CompiledKernel& kernel, const std::map<std::string, void*>& memory,
          const PackOptions& pack = {});

  /// Asks for records of the tasks of the newest `iterations`, 0: for none; profile_begin() goes right before a run;
  /// then, after it, what was recorded.
  void profile(u64 iterations);
  void profile_begin();
  Profile profile_take() const;

  LaunchImage& image() { return image_; }
  WorkerEntry entry() const { return entry_; }
  /// Address of any tensor: bound ones as bound, activations in the arena.
  void* address(graph::TensorId tensor) const { return addresses_.at(static_cast<size_t>(tensor)); }
  int64_t arena_bytes() const { return arena_.bytes(); }
  int64_t packed_bytes() const { return packed_.bytes(); }
  int64_t scratch_bytes() const { return image_.scratch_bytes(); }

 private:
  PackedWeights packed_;
  Mapping arena_;
  std::vector<void*> addresses_;  // per tensor
  WorkerEntry entry_ = nullptr;
  std::vector<WeightsAhead> weights_ahead_;  // per task
  LaunchImage image_;
  std::optional<ProfileRings> rings_;
};

}  // namespace megalith::runtime
