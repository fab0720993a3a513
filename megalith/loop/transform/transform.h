// Transformations: from a loop kernel to one that means the same, written otherwise. Each is a function that leaves its
// argument alone. What rules and schedules are made of; a list of them is a value of its own (loop/transform/schedule.h).
//
// Types must be known (loop/infer.h). "The same" is up to the order of additions and up to where values are rounded: a
// temporary that is done away with rounds no more, unless it was narrower than f32, when a cast takes its place. Every
// function gives UserError, beginning with the kernel's name, where it would change more than that, or where a name is not
// there or is taken.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

// ---- names --------------------------------------------------------------------------------------------------------------

/// An iname, a tensor, a parameter or an attribute gets another name.
Kernel rename(const Kernel& kernel, const std::string& from, const std::string& to);
/// Without inames that no instruction uses. No loop comes of them, and all other transformations drop them, too.
Kernel remove_unused(const Kernel& kernel);

/// `iname` becomes `onto`, which takes the same values; what is within both shares loops then.
Kernel unify_inames(const Kernel& kernel, const std::string& iname, const std::string& onto);

Kernel tag_iname(const Kernel& kernel, const std::string& iname, InameTag tag);

// ---- loops --------------------------------------------------------------------------------------------------------------

/// `iname` becomes factor * outer + inner, 0 <= inner < factor, `inner` inside of `outer`. An argmax over it is refused.
Kernel split_iname(const Kernel& kernel, const std::string& iname, int64_t factor, const std::string& outer,
                   const std::string& inner);

/// Several at once: as split_iname() one after the other, but what is left is looked at once.
struct Split {
  std::string iname;
  int64_t factor = 1;
  std::string outer, inner;
};
Kernel split_inames(const Kernel& kernel, const std::vector<Split>& splits);

/// split_iname() with the least factor such that there are at most `count` values of `outer`; as many as that are only
/// where they divide well.
Kernel chunk_iname(const Kernel& kernel, const std::string& iname, int64_t count, const std::string& outer,
                   const std::string& inner);

/// The one reduction over all of `outer` and more becomes one over `outer`, of what a new temporary `part` has:
///   y[t] = sum((o, i), e)   ->   part[t, o] = sum(i, e);  y[t] = sum(o, part[t, o])
Kernel split_reduction(const Kernel& kernel, const std::vector<std::string>& outer, const std::string& part);

/// Loops in the order of `inames`, outermost first, at the places that those had among all.
Kernel prioritise(const Kernel& kernel, const std::vector<std::string>& inames);

/// The instruction `id` stands directly before the instruction `before` in the text.
Kernel move_instruction(const Kernel& kernel, const std::string& id, const std::string& before);

/// unify_inames() for neighbours that touch the same elements: every dependence between instances must keep its order.
Kernel fuse_loops(const Kernel& kernel, const std::string& iname, const std::string& onto);

/// In the instructions `ids`, inames (first) become others with the same values (second): loops of their own.
Kernel duplicate_inames(const Kernel& kernel, const std::map<std::string, std::string>& copies,
                        const std::set<std::string>& ids);

/// `outer` and `inner`, whose length is a number, become one: joined = length * outer + inner.
Kernel join_inames(const Kernel& kernel, const std::string& outer, const std::string& inner, const std::string& joined);

/// The inames `before` become those of `after`, whose values are affine in them: [i, j] -> [i + j, j]. A bijection.
Kernel map_domain(const Kernel& kernel, const std::vector<std::string>& before, const std::vector<std::string>& after,
                  const std::vector<Expr>& values);

/// The points where `condition` (a constraint on inames and parameters) holds have an iname of their own, `peeled`; they
/// are the last (first) values of `iname`, and run after (before) the others.
Kernel peel(const Kernel& kernel, const std::string& iname, const std::string& peeled, const std::string& condition);

/// sum((o, i), e) -> sum(o, sum(i, e)), where `inames` are the outer ones, or (outward = false) the inner ones.
Kernel nest_reduction(const Kernel& kernel, const std::vector<std::string>& inames, bool outward);

/// The one reduction over all of `inames`, and maybe more, becomes a loop over them that adds to `sum`:
///   y[t] = sum((o, i), e)   ->   s[0] = 0;  s[0] = s[0] + sum(i, e) {inames=o};  y[t] = s[0]
/// with an axis of `sum` for each iname whose loop is inside of theirs.
Kernel accumulate(const Kernel& kernel, const std::vector<std::string>& inames, const std::string& sum);

/// The one reduction over `iname` (and maybe more) becomes a tree over `count` values of `lane`, with iname = count * its
/// outer part + lane, or (count = 0) over all values of it, which is called `lane` then:
///   y[t] = sum((o, k), e)   ->   part[k] = sum(o, e);  part[p] = part[p] + part[p + 4] (p < 4);  .. + 2; .. + 1;  y[t] = part[0]
/// with an axis of `part` more for each iname whose loop is inside. An argmax keeps the places of its maxima, too. `tag` is
/// for the loops of all levels.
Kernel reduce_by_tree(const Kernel& kernel, const std::string& iname, int64_t count, const std::string& part,
                      const std::string& lane, InameTag tag = InameTag::loop);

/// duplicate_inames() of one iname.
struct Duplication {
  std::string iname;
  std::set<std::string> ids;
};

/// Where the instructions of two inames cross, so that no order of loops has one loop for each: what would make it so. Such
/// a kernel runs, with an iname in several loops; these are the ways to give each loop its own.
std::vector<Duplication> duplication_options(const Kernel& kernel);

// ---- sizes --------------------------------------------------------------------------------------------------------------

Kernel assume(const Kernel& kernel, const std::string& constraints);

/// The parameter has this value and is none any more.
Kernel fix_parameter(const Kernel& kernel, const std::string& parameter, int64_t value);

/// No barrier is put in for what these two instructions do to one element: the caller vouches that threads need none.
Kernel leave_unordered(const Kernel& kernel, const std::string& a, const std::string& b);

// ---- barriers over everything (loop/stages.h) -------------------------------------------------------------------------

/// All before the instruction `id` is done, everywhere, before it begins: loops end there.
Kernel add_barrier(const Kernel& kernel, const std::string& id);
Kernel remove_barrier(const Kernel& kernel, const std::string& id);

// ---- expressions --------------------------------------------------------------------------------------------------------

/// What is assigned to a temporary, by one instruction and without a condition, takes the place of its reads.
Kernel substitute(const Kernel& kernel, const std::string& temporary);

/// `rule name(arguments) = pattern`, and a call of it for everything in the kernel that is of that form.
Kernel extract_rule(const Kernel& kernel, const std::string& name, const std::vector<std::string>& arguments,
                    const Expr& pattern);

/// What is assigned to a temporary becomes a rule of its name, and its reads become calls: substitute() with a name.
Kernel rule_of_temporary(const Kernel& kernel, const std::string& temporary);

/// Calls of the rule are replaced by what they stand for.
Kernel expand_rules(const Kernel& kernel, const std::string& rule);

/// A rule becomes a temporary again: its arguments are subscripts, which are affine and not below 0.
Kernel temporary_of_rule(const Kernel& kernel, const std::string& rule);

/// Calls of numbers become numbers, what is added to 0 or multiplied by 1 is itself, choices and conditions that numbers decide
/// are decided: what changes no result, not that of -0 or of NaN.
Kernel fold_constants(const Kernel& kernel);

/// What is computed twice in an instruction, or in some that run one after the other at the same points, is computed once, into
/// a temporary before them, unless what it reads is written in between. Of the instructions `ids`; of all if there are none.
Kernel common_subexpressions(const Kernel& kernel, const std::vector<std::string>& ids = {});

/// Reductions become loops, as the tags of their inames say, wherever they may leave their instruction: realise_dealt_out(),
/// and then those that are formed in sequence, as accumulate() makes them.
Kernel realise_reductions(const Kernel& kernel);

/// Those over inames that are tagged as an axis: each thread has a part of them, which a tree joins (reduce_by_tree(), in
/// lanes' registers if the tag is `lane` and all lanes come along), each block one that is added up behind a barrier over all
/// blocks (split_reduction(), add_barrier()). Without such tags the kernel itself. UserError, with the reason, if one cannot be.
Kernel realise_dealt_out(const Kernel& kernel);

/// Factors and divisors that do not depend on what a sum runs over leave it: sum(k, a * b[k]) -> a * sum(k, b[k]). Of the
/// instruction `id`. Where such a factor is infinite and the sum is empty or 0, the result was 0 and is no number now.
Kernel hoist_factors(const Kernel& kernel, const std::string& id);

// ---- several kernels ----------------------------------------------------------------------------------------------------

/// Both in one: `joined` inputs of the consumer (first) are outputs of the producer (second). Those become temporaries,
/// but for the names in `kept`, which stay outputs. Parameters and inputs of one name are one; attributes too, if their
/// values agree; inames and temporaries are renamed where names meet. The consumer's tags hold, the producer's do not.
Kernel fuse(const Kernel& producer, const Kernel& consumer, const std::map<std::string, std::string>& joined,
            const std::set<std::string>& kept = {});

/// The kernel `size` times (a number, or a parameter, which is new if need be), for each value of the new outermost loop
/// `iname`: tensors have one more axis in front, but for the inputs `shared`, which are the same for all.
Kernel batch(const Kernel& kernel, const std::string& iname, const std::string& size,
             const std::set<std::string>& shared = {});

// ---- temporaries --------------------------------------------------------------------------------------------------------

Kernel set_space(const Kernel& kernel, const std::string& temporary, Space space);

/// The temporary has an axis more for each of `inames`, which all that use it are within.
Kernel privatise(const Kernel& kernel, const std::string& temporary, const std::vector<std::string>& inames);

/// The temporaries share memory, which is called `storage`: none is written while another one's values are needed.
Kernel share(const Kernel& kernel, const std::vector<std::string>& temporaries, const std::string& storage);

/// The axis of a temporary is longer by as many elements, which nobody uses: other banks of memory.
Kernel pad_axis(const Kernel& kernel, const std::string& temporary, int axis, int64_t by);

/// What is read of `tensor` while the inames of `sweep` take all of their values is copied to `buffer` first, inside of the
/// loops that say where that is; reads are of the copy. `inames`: of the copy, one for each of its axes; names are made up
/// if there are none.
Kernel prefetch(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep,
                const std::string& buffer, const std::vector<std::string>& inames = {});

/// The same for a temporary or a rule, which is computed there instead of being copied, and is gone.
Kernel precompute(const Kernel& kernel, const std::string& temporary, const std::vector<std::string>& sweep,
                  const std::string& buffer, const std::vector<std::string>& inames = {});

/// All that touches `tensor` while the inames of `sweep` take their values touches a copy, which is read before, if values from
/// outside of the tile are needed, and written back behind. Of an output, what is written, and nothing else, is written back.
Kernel buffer(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& sweep,
              const std::string& buffer, const std::vector<std::string>& inames = {});

// ---- how tensors lie ----------------------------------------------------------------------------------------------------

/// A CPU stores vectors of an output or inout past its caches: it neither reads what it overwrites, nor drops for it what
/// others read next. They begin at a multiple of their size in memory, or are stored as others are.
Kernel stream(const Kernel& kernel, const std::string& tensor);

/// Axis i of the tensor becomes what axis order[i] was.
Kernel permute_axes(const Kernel& kernel, const std::string& tensor, const std::vector<int>& order);

/// The axis becomes two: x[.., e, ..] -> x[.., e // factor, e mod factor, ..].
Kernel split_axis(const Kernel& kernel, const std::string& tensor, int axis, int64_t factor);

/// The axis, of 2, 4, 8 or 16 elements, becomes the last one: they lie side by side, and begin at a multiple of their size
/// where the tensor does, so an iname tagged `vec` along it moves them at once.
Kernel vector_axis(const Kernel& kernel, const std::string& tensor, int axis);

/// A tensor for each element of the axis, called tensor_0, tensor_1, ...: subscripts along it have one value each.
Kernel separate_axis(const Kernel& kernel, const std::string& tensor, int axis);

/// All axes at once, by a tag for each: N0 has its elements side by side, N1 lies around that, ...; `c` and `f` are the levels
/// of row-major and column-major order; vec and sep are the two steps above.
Kernel tag_axes(const Kernel& kernel, const std::string& tensor, const std::vector<std::string>& tags);

}  // namespace megalith::loop
