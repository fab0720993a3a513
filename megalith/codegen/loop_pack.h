// What a loop tagged `vec` moves at once: elements side by side, where that is proved. Internal to codegen/loop_source.cpp.
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// An access of one instruction whose elements of all iterations are one pack.
struct PackAccess {
  loop::Expr subscript;  // as it stands in the instruction
  loop::Expr first;      // the same in the first iteration
  bool is_write = false;
};

/// Those of an instruction in a loop of `count` iterations over `iname`, which has nothing else inside, at the points
/// `points` of the instruction. Each lies along the last axis, is no larger than `most_bytes`, has a power of two of bytes, and
/// begins at a multiple of its own size: `bytes_aligned` says where a tensor as a whole begins, 0 for those that never move so.
/// Without that function packs begin anywhere, and are of any size.
std::vector<PackAccess> find_packs(const loop::Kernel& kernel, const loop::Instruction& instruction,
                                   const std::string& iname, int64_t count, int64_t most_bytes, const isl::set& points,
                                   const std::function<int64_t(const std::string& tensor)>& bytes_aligned,
                                   const std::function<bool(const std::string& tensor, size_t axis)>& has_one_element);

/// Whether a CPU computes the instruction in vectors: f32 throughout, operators of each element, and all that moves with
/// `iname` among `packs`.
bool is_of_vectors(const loop::Kernel& kernel, const loop::Instruction& instruction, const std::string& iname,
                   const std::vector<PackAccess>& packs);

}  // namespace megalith::codegen
