// Random kernels and random schedules, the same for the same seed: what generated code is tested with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::loop {

struct RandomCase {
  Schedule schedule;                 // of steps that were accepted
  Kernel consumer;                   // "post", which a step may fuse with it: z of p = y
  Binding binding;                   // small sizes
  std::vector<std::string> refused;  // what the others said
};

/// A kernel, and up to `num_steps` steps tried on it. Anything but a UserError that a step throws is passed on.
RandomCase random_case(uint64_t seed, int num_steps);

}  // namespace megalith::loop
