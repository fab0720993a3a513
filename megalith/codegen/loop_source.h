// A scheduled loop kernel as source: one function for a CPU, or one kernel for a GPU. What its tags say becomes loops,
// blocks and threads here (loop/parallel.h); bounds and guards come from isl, and stand only where the domain needs them.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/kernel.h"

namespace megalith::codegen {

/// `emulated` is what a GPU would run, on one thread of a CPU: from barrier to barrier each thread of a block in turn, the
/// last first, with what is its own and what the block shares. A barrier that is missing shows.
enum class LoopTarget { cpu, cuda, emulated };

/// As kernels/cpu/loops.h has it: what a call of a function with checks found wrong first.
struct LoopFault {
  uint32_t found = 0, check = 0;
  int64_t value = 0, extent = 0;
};

struct LoopSource {
  std::string name;                     // of the function
  std::string prelude;                  // what it needs before it: types and functions
  std::string text;                     // the function, to be read
  std::string ending;                   // what it needs behind it
  std::vector<std::string> tensors;     // arguments in their order: tensors, temporaries that are everyone's,
  std::vector<std::string> sizes;       // parameters,
  std::vector<std::string> attributes;  // attributes
  std::vector<std::string> scratch;     // those of `tensors` that are temporaries: the caller's to allocate
  std::vector<CheckText>
      checks;  // that it makes, by number: if there are any, a LoopFault is one more tensor, the last
  int num_barriers = 0;
  std::array<int64_t, 3> threads = {1, 1, 1};                    // of a block, on a GPU
  std::array<std::vector<loop::PiecewiseAffine>, 3> last_block;  // the largest indices along each axis, by `sizes`

  std::string whole() const { return prelude + text + ending; }
  /// UserError, with the check in words, if one was found. `prefix` of the kernel's messages.
  void check_fault(const LoopFault& fault, const std::string& prefix) const;
  /// How many blocks there are along each axis, for these sizes.
  std::array<int64_t, 3> blocks(const std::vector<int64_t>& sizes) const;
};

/// On a CPU
///   extern "C" void NAME(void* const* tensors, const long long* sizes, const float* attributes);
/// (emulated, `sizes` ends with the number of blocks along each axis) and on a GPU a __global__ function with an argument
/// for each. What depends on data is checked as it runs: a subscript outside of its tensor, a divisor that is 0. UserError if a
/// tag asks for what cannot be, and where a subscript is not affine although no data are in it: nobody would check it.
/// `aligned`: tensors that begin at a multiple of 16 bytes.
LoopSource emit_loops(const loop::Kernel& kernel, LoopTarget target, const std::string& name,
                      const std::set<std::string>& aligned = {});

/// A function for each part of the kernel between barriers over everything (loop/stages.h), NAME_0, NAME_1, ..., to be
/// called one after the other; NAME if it has none. What they hand each other are arguments.
std::vector<LoopSource> emit_stages(const loop::Kernel& kernel, LoopTarget target, const std::string& name,
                                    const std::set<std::string>& aligned = {});

/// All of them in one text.
std::string whole(const std::vector<LoopSource>& sources);

}  // namespace megalith::codegen
