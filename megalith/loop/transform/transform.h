// Transformations: from a loop kernel to one that means the same, written otherwise. Each is a function that leaves its
// argument alone. What rules and schedules are made of; a list of them is a value of its own (loop/transform/script.h).
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

/// `iname` becomes `onto`, which takes the same values; what is within both shares loops then.
Kernel unify_inames(const Kernel& kernel, const std::string& iname, const std::string& onto);

Kernel tag_iname(const Kernel& kernel, const std::string& iname, InameTag tag);

// ---- loops --------------------------------------------------------------------------------------------------------------

/// `iname` becomes factor * outer + inner, 0 <= inner < factor, `inner` inside of `outer`. An argmax over it is refused.
Kernel split_iname(const Kernel& kernel, const std::string& iname, int64_t factor, const std::string& outer,
                   const std::string& inner);

/// The one reduction over all of `outer` and more becomes one over `outer`, of what a new temporary `part` has:
///   y[t] = sum((o, i), e)   ->   part[t, o] = sum(i, e);  y[t] = sum(o, part[t, o])
Kernel split_reduction(const Kernel& kernel, const std::vector<std::string>& outer, const std::string& part);

// ---- expressions --------------------------------------------------------------------------------------------------------

/// What is assigned to a temporary, by one instruction and without a condition, takes the place of its reads.
Kernel substitute(const Kernel& kernel, const std::string& temporary);

/// Factors and divisors that do not depend on what a sum runs over leave it: sum(k, a * b[k]) -> a * sum(k, b[k]). Of the
/// instruction `id`. Where such a factor is infinite and the sum is empty or 0, the result was 0 and is no number now.
Kernel hoist_factors(const Kernel& kernel, const std::string& id);

// ---- several kernels ----------------------------------------------------------------------------------------------------

/// Both in one: `joined` inputs of the consumer (first) are outputs of the producer (second). Those become temporaries,
/// but for the names in `kept`, which stay outputs. Parameters and inputs of one name are one; attributes too, if their
/// values agree; inames and temporaries are renamed where names meet. The consumer's tags hold, the producer's do not.
Kernel fuse(const Kernel& producer, const Kernel& consumer, const std::map<std::string, std::string>& joined,
            const std::set<std::string>& kept = {});

// ---- how tensors lie ----------------------------------------------------------------------------------------------------

/// Axis i of the tensor becomes what axis order[i] was.
Kernel permute_axes(const Kernel& kernel, const std::string& tensor, const std::vector<int>& order);

/// The axis becomes two: x[.., e, ..] -> x[.., e // factor, e mod factor, ..].
Kernel split_axis(const Kernel& kernel, const std::string& tensor, int axis, int64_t factor);

}  // namespace megalith::loop
