// Writes one function of a scheduled kernel: its nest, from the outside in, with the loops and conditions that its domains
// need. Each part of it is a file of its own. Internal to codegen/loop_source.cpp.
#pragma once

#include <isl/cpp.h>

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "megalith/codegen/dialect.h"
#include "megalith/codegen/expression.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/codegen/loop_pack.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/codegen/loop_storage.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/parallel.h"

namespace megalith::codegen {

/// Along axis 0, 1, ... of loop/tag.h.
inline constexpr const char* kLoopAxes[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                            "threadIdx.x", "threadIdx.y", "threadIdx.z"};

class LoopEmitter {
 public:
  LoopEmitter(const loop::Kernel& kernel, LoopTarget target, const std::string& name,
              const std::set<std::string>& aligned);

  LoopSource run();

 private:
  const std::set<std::string>& aligned_;
  const bool is_gpu_, is_emulated_;
  const Dialect dialect_;
  ExpressionContext context_;
  const loop::Kernel& kernel_;
  const loop::Domains& domains_;
  loop::Parallel parallel_;
  LoopStorage storage_;
  ExpressionWriter writer_;
  LoopSource result_;
  std::string prefix_, comment_, body_, declarations_;
  int depth_ = 1;
  std::set<std::string> packed_tensors_;  // some of whose elements move at once
  std::string target_pack_;  // what the statement that is being written writes instead of its target; "" for that
  int num_packs_ = 0;

  void line(const std::string& text);
  void open(const std::string& text);
  void close();

  // ---- names and tensors: loop_source.cpp -----------------------------------------------------------------------------

  std::vector<std::string> all_names() const;
  void check_names() const;
  static bool is_kept(const std::string& name);
  void check_subscripts() const;

  const loop::TensorArgument& tensor(const std::string& name) const { return *kernel_.find_tensor(name); }
  void find_places();

  std::string header();

  bool is_kernel() const { return is_gpu_ && !is_emulated_; }

  // The grid, around everything.
  std::string emulation() const;

  // ---- the nest -----------------------------------------------------------------------------------------------------

  // Who waits for each other inside of the node: the threads of a block, those of a warp, or none.
  enum Scope { kBlock, kWarp, kThread };
  static Scope scope_of(const loop::NestNode& node);

  // In an emulation what stands between barriers is run by one thread after the other, and what stands between barriers of
  // the block by one warp after the other.
  void emit(std::span<const loop::NestNode> nodes, const std::vector<std::string>& outer, const isl::set& implemented);
  Scope scope_ = kBlock;  // around what is being written, in an emulation

  void emit(const loop::NestNode& node, std::vector<std::string> outer, const isl::set& implemented);

  // An unrolled loop over what a thread keeps has all iterations, with conditions inside: in registers every index is a number.
  bool keeps_elements(const loop::NestNode& node) const;
  bool keeps_elements(const loop::Instruction& instruction, const std::string& iname) const;
  bool is_unrolled(const std::string& iname) const;

  // A loop tagged vec whose elements move at once, if some do. On a GPU: loads before it, a store behind; on a CPU the vectors
  // of the compiler take its place, which it keeps in registers as it does not what a loop makes.
  bool emit_packs(const loop::NestNode& node, const loop::LoopBounds& bounds, const std::vector<std::string>& outer,
                  const isl::set& inside);

  void emit_whole_packs(const loop::NestNode& node, const std::vector<PackAccess>& accesses,
                        const loop::LoopBounds& bounds, const std::vector<std::string>& outer, const isl::set& inside,
                        int64_t count);

  // On a CPU: two loops tagged vec, the second all that is in the first, over what lies side by side along the first. Rows are
  // read along the first, change places with columns in registers, and are computed with and stored along the second.
  bool emit_square(const loop::NestNode& node, const loop::LoopBounds& bounds, const std::vector<std::string>& outer,
                   const isl::set& inside);

  // How many iterations a loop from 0 has where it is whole, if that is a number; where it ends earlier is added to `ends`.
  std::optional<int64_t> whole_count(const std::string& iname, const loop::LoopBounds& bounds,
                                     std::vector<std::string>& ends) const;

  // `vectors`: what takes the place of what is read, by its text, beside `accesses`.
  void emit_whole_vector(const loop::Instruction& instruction, const std::vector<PackAccess>& accesses, int64_t count,
                         std::map<std::string, std::string> vectors);
  bool are_streamed_ = false;  // some vectors are stored past the caches

  // At a multiple of how many bytes the tensor begins, if its elements may move at once.
  int64_t bytes_aligned(const std::string& name) const;

  std::optional<int> axis_of(const loop::NestNode& node) const;

  void open_loop(const std::string& iname, const loop::LoopBounds& bounds);

  // Inames that are the index along an axis, as long as one has nothing but the next one inside; an if where some index
  // has no iteration.
  void emit_axes(const loop::NestNode& first, std::vector<std::string> outer, isl::set implemented);

  // What the instruction reads of other lanes, before any condition: all of a warp take part.
  void exchange_lanes(size_t index);
  int exchanged_ = -1;  // the instruction whose elements of other lanes are there

  // 0 up to the largest index along the axis, as far as that is one iname's. A grid has a block 0 even where the iname has
  // no value, and a block for each value that is left out below the largest.
  isl::set indices(const std::string& iname, int axis, const isl::set& like) const;

  void emit_instruction(size_t index, const isl::set& implemented);

  // Axes that the instruction is not within, and runs at the beginning of.
  std::vector<std::string> tests_of_axes(size_t index) const;

  // ---- the grid -----------------------------------------------------------------------------------------------------

  void find_blocks();
};

}  // namespace megalith::codegen
