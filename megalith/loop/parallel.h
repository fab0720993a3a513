// What the tags of a scheduled kernel ask of it. A loop whose iname is tagged `l.N` is dealt out to the threads of a
// block at its place in the nest, one iteration each; `g.N` to blocks. Loops around it run in every thread, in step. So
//
//   order i_o, k_o, p, i_i, k_i          g.0 = i_o, l.0 = p, i_i
//   for k_o: { for p: a_s[p] = ...;  barrier;  for i_i, k_i: acc[i_i] = acc[i_i] + a_s[...];  barrier }
//
// The order of the nest says what a kernel means. Tags must keep every dependence of it: within a thread the order is
// kept as it is, between threads of a block by barriers, which are put in here (over a warp only where both threads are of
// one), between blocks by nothing.
//
// A temporary in `lanes` has an element a lane, which that lane writes; what another lane reads it exchanges with it, without
// memory. So all lanes have to come along where that is: no loop and no condition of theirs is around it.
//
// What an instruction does that is not within an axis: it runs in thread (block) 0 of the axis, unless it writes what each
// thread (block) has its own of; then in all.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/tag.h"

namespace megalith::loop {

struct Parallel {
  std::map<std::string, Space> spaces;      // of each temporary; never automatic
  std::map<std::string, size_t> lane_axes;  // of each temporary in lanes: the axis that they are along
  std::vector<NestNode> nest;               // with barriers: neither iname nor instruction
  int num_barriers = 0;                     // over the threads of a block, or of a warp
  int num_warp_barriers = 0;                // those over a warp only
  std::array<bool, kNumAxes> has_axis{};
  std::array<int64_t, kNumAxes> num_threads{};  // along l.0, l.1, l.2; 1 without such an axis

  /// Inames that some instruction has along an axis, in no order; an iname that only domains mention has no index.
  std::array<std::set<std::string>, kNumAxes> inames_along;
  /// The iname of an instruction along an axis; "" if it is within none.
  const std::string& iname(size_t instruction, int axis) const {
    return inames[instruction][static_cast<size_t>(axis)];
  }
  /// Whether each thread (block) along the axis runs the instruction, which is not within the axis.
  bool is_in_all(const Kernel& kernel, size_t instruction, int axis) const;

  /// Whether the instruction, in a lane that runs it, finds the element `index` of the lanes' axis in that lane itself.
  bool is_own_lane(const Kernel& kernel, size_t instruction, const Expr& index) const;

  std::vector<std::array<std::string, kNumAxes>> inames;  // by instruction
};

/// Spaces and barriers, or UserError: an axis twice, a length that is no number, a dependence that no barrier can order.
Parallel make_parallel(const Kernel& kernel);

}  // namespace megalith::loop
