// What a kernel is before a schedule, made plain in four passes that one can look at: its types and shapes, what it computes
// twice, which instances depend on each other, and its reductions as loops, in sequence or dealt out as tags say. No pass is
// needed before a step: steps ask for what they need.
#pragma once

#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

struct Pass {
  std::string name;  // "types", "common_subexpressions", "dependences", "domains"
  std::string text;  // the kernel after it; of "dependences" a line for each, with the relation between instances
  Kernel kernel;     // after it
};

/// All four, each after the one before it. `kernel`: as it was read; inputs have types. UserError if it is wrong.
std::vector<Pass> preprocess(const Kernel& kernel);

/// "insn1 reads t[i] that insn0 wrote as t[j]: { insn0[j] -> insn1[i] : i = j ... }", a line for each pair of accesses to one
/// element, one of them writing, in the order of the nest.
std::string dependences_text(const Kernel& kernel);

}  // namespace megalith::loop
