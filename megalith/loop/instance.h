// Instances: one run of an instruction, at one point of the inames that it is within. Which of them touch the same
// element, which of those runs first, and whether a transformation keeps that: dependences per instance, as isl maps.
// Where data have a say in a subscript, it may be any.
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/domain.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// All that one subscript of an instruction touches.
struct InstanceAccess {
  size_t instruction = 0;
  const Expr* expr = nullptr;
  bool is_write = false;
  bool is_exact = true;  // false: may touch less, since data have a say
  isl::map elements;     // point of the instruction -> elements
  std::string question;  // what `elements` follows from
};

/// Accesses to the tensors that `wanted` names, in text order. `kernel` must outlive them.
std::vector<InstanceAccess> instance_accesses(const Kernel& kernel, const Domains& domains,
                                              const std::function<bool(const std::string&)>& wanted);

/// The pairs x -> y of points of the two instructions such that x runs before y in the kernel's nest; `like` has the
/// spaces.
isl::map runs_before(const Kernel& kernel, size_t first, size_t second, const isl::map& like);

/// Two accesses to one tensor, one of them writing, that meet in an element.
struct Dependence {
  const InstanceAccess* from = nullptr;
  const InstanceAccess* to = nullptr;
  isl::map pairs;  // x -> y, x before y
};

/// All dependences among `accesses`, by the order of the nest. Some follow from others.
std::vector<Dependence> dependences(const Kernel& kernel, const std::vector<InstanceAccess>& accesses);

/// How the points of one instruction were called before a step and are called after it.
using PointMaps = std::map<std::string, isl::map>;  // by the instruction's id

/// Points keep the values of their inames, which have got the names in `renamed`.
isl::map points_by_name(const std::vector<std::string>& before, const std::vector<std::string>& after,
                        const std::map<std::string, std::string>& renamed = {});

/// UserError if two instances that touch the same element, one writing, would run in another order in `after` than in
/// `before`; `maps` says what became of an instruction's points (by name, if it is not in there), `hint` what to do.
void check_order_kept(const Kernel& before, const Kernel& after, const PointMaps& maps, const std::string& hint);

/// What reads of one temporary find: for each pair of instructions the instance that last wrote what the other reads.
struct Flow {
  size_t from = 0, to = 0;
  isl::map pairs;
};
std::vector<Flow> flow_of(const Kernel& kernel, const Domains& domains, const std::string& tensor);
/// The same of all temporaries.
std::map<std::string, std::vector<Flow>> flows_of_temporaries(const Kernel& kernel, const Domains& domains);

/// UserError if some read of a temporary finds no value in it that was written before, as far as that is affine.
void check_written_first(const Kernel& kernel, const Domains& domains);

/// "i = 0, j = 2 and i = 1, j = 2": a pair out of `pairs`, by the inames of the two instructions.
std::string example_of(const Kernel& kernel, size_t from, size_t to, const isl::map& pairs);

}  // namespace megalith::loop
