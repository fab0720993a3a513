// A schedule: a loop kernel, and steps that make another one of it that means the same. A value: a step gives another
// schedule. Its text prints, reads, hashes and replays. A line is a step, `#` begins a comment:
//
//   split i 16 -> i_o:g.0 i_i:l.0              i = 16 * i_o + i_i; tags as `tag i_o g.0` would give them
//   chunk i 4 -> c r                           at most 4 values of c
//   tile i j 16 8 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0
//   join i j -> ij                             ij = length of j * i + j
//   map [i, j] -> u = i + j, v = j             any affine bijection
//   order i_o j_o k_o i_i j_i                  interchange: loops in this order
//   duplicate i -> i2 in insn1                 fission: a loop of its own
//   fuse_loops i2 i                            fusion: i2 becomes i
//   move insn1 before insn0
//   peel i_o -> last where i_o >= n // 16      the last or first values in a loop of their own (floor(n/16) as isl has it)
//   tag s lane in insn2                        in that instruction alone, of a generated body (codegen/body_schedule.h)
//   tag i g.0 j g.0   untag i   unroll i   vectorise i   ilp i
//   reduction_outward k_o                      sum((k_o, k_i), e) -> sum(k_o, sum(k_i, e)); reduction_inward
//   accumulate k_o -> acc                      the sum over k_o becomes a loop that adds to acc
//   split_reduction k_o part                   a partial sum for each k_o
//   tree k 128 -> part p:l.0                  128 partial sums, which are added two by two: see reduce_by_tree()
//   prefetch a[i_i, :] -> a_s p:l.1 q:l.0      what is read while i_i and all inames of axis 1 run, copied first
//   precompute t[i_i] -> t_s p:l.0             the same for a temporary, which is computed there
//   buffer c[i_i, j_i] -> c_s p q              what is read and written while i_i and j_i run is a copy's, written back behind
//   substitute t                               a temporary's definition in place of its reads
//   extract_subst sq(a) = a * b[i] * b[i]      a rule, called for all that is of that form; expand sq
//   assignment_to_subst t                      a temporary's definition as a rule; precompute takes rules as temporaries
//   common_subexpressions   fold_constants     what is computed twice, or of numbers; of some instructions, of all
//   realise_reductions                         as the tags of what they run over say; accumulate all else that can be
//   hoist_factors insn1                        factors that a sum does not need inside
//   space acc private   privatise t i   pad a_s 1 1
//   alias a_s t_s -> pool                      temporaries that share memory: their values are not needed at the same time
//   permute_axes t 1 0   split_axis t 0 16   vector_axis t 0   separate_axis t 1   axes t N1 vec N0 sep
//   stream y                                   a CPU stores vectors of y past its caches
//   barrier before insn1                       all before it is done first: on a GPU the kernel ends; no_barrier before insn1
//   remove_unused                              inames that nothing uses go; after every other step they do by themselves
//   no_sync insn0 insn1                        no barrier between threads for these two: you vouch for it
//   assume n mod 16 = 0   fix n 1024   rename k j
//   fuse linear x=y keep y                     with another kernel
//   batch r B shared w                         for each r below B, with one more axis of all tensors but w
//
// Steps have the names that loopy has for them, too (tag_inames, add_prefetch, privatize_array, ...). Rules stay while loops
// are split, ordered and tagged, and parameters fixed; every other step sees the kernel without them.
//
// After each step the kernel is checked: bounds, dependences, spaces of temporaries, barriers (loop/parallel.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Kernels that a schedule names, beside the one that it transforms.
using Kernels = std::map<std::string, Kernel>;

/// Bounds, reads before writes, and what the tags ask for: UserError at the first that is wrong. Of the kernel in which
/// reductions are as tags say (realise_dealt_out()).
void check_scheduled(const Kernel& kernel);

class Schedule {
 public:
  /// What a kernel must be after each step; it throws UserError.
  using Check = std::function<void(const Kernel&)>;

  /// Types and shapes of `origin` are known (loop/infer.h).
  explicit Schedule(Kernel origin, Kernels others = {}, Check check = check_scheduled);
  /// All lines. UserError with the number of the line.
  static Schedule parse(Kernel origin, const std::string& text, Kernels others = {}, Check check = check_scheduled);

  /// One more step, or this one if the line is empty. UserError with the line if it does not read, does not apply, or
  /// leaves something that is wrong.
  Schedule then(const std::string& line) const;

  const Kernel& origin() const { return origin_; }
  /// After all steps.
  const Kernel& kernel() const { return kernel_; }
  const std::vector<std::string>& steps() const { return steps_; }
  /// The steps, a line each: what parse() reads.
  std::string text() const;
  /// Of the origin, the other kernels and the text.
  std::string hash() const;

 private:
  Kernel origin_, kernel_;
  Kernels others_;
  Check check_;
  std::vector<std::string> steps_;
};

}  // namespace megalith::loop
