// The names of tags and of address spaces, and which tag is which axis of a grid.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// "loop", "task", "g.0", ..., "l.2", "unr", "vec", "ilp", "lane", "w".
std::string_view tag_name(InameTag tag);
/// The tag of that name, or of another one that is usual ("for", "blockIdx.x", "threadIdx.y", "unroll"); nothing if there
/// is none.
std::optional<InameTag> tag_of_name(std::string_view name);
/// All names, for messages.
std::string tag_names();

/// "private", "lanes", "shared", "global"; "" for none.
std::string_view space_name(Space space);
std::optional<Space> space_of_name(std::string_view name);

/// An axis of the grid: blocks along 0, 1, 2, then threads of a block along 0, 1, 2.
inline constexpr int kNumAxes = 6;
/// Threads that run in step: those whose numbers in their block, axis 0 the fastest, have the same quotient by this.
inline constexpr int64_t kWarpThreads = 32;
/// The axis along which the tag deals iterations out; nothing for loops of one thread.
std::optional<int> axis_of(InameTag tag);
inline bool is_block_axis(int axis) { return axis < 3; }
/// The axis that the lanes of a warp are along, in a block that has as many threads along it.
inline constexpr int kLaneAxis = 3;

/// The tag of an iname, `loop` if it has none.
InameTag tag_of(const Kernel& kernel, const std::string& iname);
/// The tag that it has in an instruction: the instruction's own, or the kernel's.
InameTag tag_of(const Kernel& kernel, const Instruction& instruction, const std::string& iname);
/// The axis of an iname; nothing if it is a loop.
std::optional<int> axis_of(const Kernel& kernel, const std::string& iname);

}  // namespace megalith::loop
