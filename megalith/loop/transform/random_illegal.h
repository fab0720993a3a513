// Loop kernels under schedules that end with something wrong, the same for the same seed: what the checks are tested with.
// A case is wrong by how it is made, whatever the numbers, names and harmless steps in it: a race, a dependence that turns
// round, a subscript outside, a name that is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megalith::loop {

struct IllegalCase {
  std::string recipe;              // how it was made
  std::string kernel;              // text
  std::vector<std::string> steps;  // that are right
  std::string wrong;               // the step that is not; "" if the kernel itself is wrong
  std::string reason;              // stands in the message that refuses it
  bool is_kernel_wrong = false;
};

IllegalCase random_illegal(uint64_t seed);
/// How many ways there are to make one: seeds take them in turn.
int num_illegal_recipes();

/// "" if the case is refused as it should be; else what happened. Never throws.
std::string check_refused(const IllegalCase& illegal);

}  // namespace megalith::loop
