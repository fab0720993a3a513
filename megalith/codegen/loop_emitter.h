// Writes one function of a scheduled kernel: what its nest (nest_writer.h) becomes of blocks, threads and vectors. Each part of
// it is a file of its own. Internal to codegen/loop_source.cpp.
#pragma once

#include <isl/cpp.h>

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "megalith/codegen/loop_pack.h"
#include "megalith/codegen/loop_source.h"
#include "megalith/codegen/loop_storage.h"
#include "megalith/codegen/nest_writer.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/parallel.h"

namespace megalith::codegen {

/// Along axis 0, 1, ... of loop/tag.h.
inline constexpr const char* kLoopAxes[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                            "threadIdx.x", "threadIdx.y", "threadIdx.z"};

class LoopEmitter : public NestWriter {
 public:
  /// `context`: of the kernel as prepare_loops() makes it, with `checks` in it.
  LoopEmitter(ExpressionContext& context, const loop::Parallel& parallel, LoopTarget target, const std::string& name,
              const std::set<std::string>& aligned, std::vector<CheckText> checks);

  LoopSource run();

 private:
  const loop::Kernel& kernel_;
  const loop::Domains& domains_;
  const loop::Parallel& parallel_;
  const std::set<std::string>& aligned_;
  const bool is_gpu_, is_emulated_;
  LoopStorage storage_;
  LoopSource result_;
  std::string prefix_;
  std::vector<std::string> unrolled_;     // inames
  std::set<std::string> packed_tensors_;  // some of whose elements move at once
  std::string target_pack_;  // what the statement that is being written writes instead of its target; "" for that
  int num_packs_ = 0;

  // ---- names and tensors: loop_source.cpp -----------------------------------------------------------------------------

  std::vector<std::string> all_names() const;
  void check_names() const;
  static bool is_kept(const std::string& name);

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
  void emit(std::span<const loop::NestNode> nodes, const Inames& outer, const isl::set& implemented) override;
  Scope scope_ = kBlock;  // around what is being written, in an emulation

  void emit_loop(const loop::NestNode& node, const Inames& outer, const isl::set& implemented) override;
  LoopForm form_of(const loop::NestNode& node) const override;
  bool emit_at_once(const loop::NestNode& node, const LoopHeader& header, const Bounds& bounds,
                    const Inames& inames) override;
  std::string pragma_of(const loop::NestNode& node) const override;
  void write_barrier(bool of_warp) override;
  void begin_statement(int index) override;
  std::vector<std::string> more_tests(int index) const override { return tests_of_axes(static_cast<size_t>(index)); }
  void store(const loop::Instruction& instruction) override;
  void end_statement(int index) override;

  // An unrolled loop over what a thread keeps has all iterations, with conditions inside: in registers every index is a number.
  bool keeps_elements(const loop::NestNode& node) const;
  bool keeps_elements(const loop::Instruction& instruction, const std::string& iname) const;
  bool is_unrolled(const std::string& iname) const;

  // A loop tagged vec whose elements move at once, if some do. On a GPU: loads before it, a store behind; on a CPU the vectors
  // of the compiler take its place, which it keeps in registers as it does not what a loop makes.
  bool emit_packs(const loop::NestNode& node, const LoopHeader& header, const Bounds& bounds, const Inames& inames);
  void emit_whole_packs(const loop::NestNode& node, const std::vector<PackAccess>& accesses, const Inames& inames,
                        const isl::set& inside, int64_t count);

  // On a CPU: two loops tagged vec, the second all that is in the first, over what lies side by side along the first. Rows are
  // read along the first, change places with columns in registers, and are computed with and stored along the second.
  bool emit_square(const loop::NestNode& node, const LoopHeader& header, const Bounds& bounds, const Inames& inames);

  // How many iterations a loop from 0 has where it is whole, if that is a number; where it ends earlier is added to `ends`.
  std::optional<int64_t> whole_count(const std::string& iname, const LoopHeader& header,
                                     std::vector<std::string>& ends) const;

  // `vectors`: what takes the place of what is read, by its text, beside `accesses`.
  void emit_whole_vector(const loop::Instruction& instruction, const std::vector<PackAccess>& accesses, int64_t count,
                         std::map<std::string, std::string> vectors);
  bool are_streamed_ = false;  // some vectors are stored past the caches

  // At a multiple of how many bytes the tensor begins, if its elements may move at once.
  int64_t bytes_aligned(const std::string& name) const;

  std::optional<int> axis_of(const loop::NestNode& node) const;

  // Inames that are the index along an axis, as long as one has nothing but the next one inside; an if where some index
  // has no iteration.
  void emit_axes(const loop::NestNode& first, Inames outer, isl::set implemented);

  // What the instruction reads of other lanes, before any condition: all of a warp take part.
  void exchange_lanes(size_t index);
  int exchanged_ = -1;  // the instruction whose elements of other lanes are there

  // 0 up to the largest index along the axis, as far as that is one iname's. A grid has a block 0 even where the iname has
  // no value, and a block for each value that is left out below the largest.
  isl::set indices(const std::string& iname, int axis, const isl::set& like) const;

  // Axes that the instruction is not within, and runs at the beginning of.
  std::vector<std::string> tests_of_axes(size_t index) const;

  // ---- the grid -----------------------------------------------------------------------------------------------------

  void find_blocks();
};

/// The kernel as it is written: what its text says, plainly.
loop::Kernel prepare_loops(loop::Kernel kernel);

}  // namespace megalith::codegen
