// Random kernels under random schedules (loop/transform/random_schedule.h): what generated code computes, once as a CPU
// runs it and once as a GPU would, is held against the interpreter's result for the kernel without a schedule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith::jit {

struct RandomLoops {
  int num_kernels = 0;
  int num_steps = 0;                    // accepted
  int num_refused = 0;                  // steps that were refused
  int num_barriers = 0;                 // in all sources
  int num_cut = 0;                      // kernels that became several, at a barrier over all blocks
  int num_without = 0;                  // sources that the emitter refused, of two for each kernel
  std::map<std::string, int> accepted;  // by the step's name
  std::map<std::string, int>
      sources_with;                // sources that have this in them, "stream_vector<"; "lanes": temporaries in lanes
  std::vector<std::string> wrong;  // seed, schedule and first difference of those that compute something else
};

/// Seeds first, first + 1, ... Whatever a step or the emitter throws that is no UserError is passed on.
RandomLoops check_random_loops(uint64_t first, int count, int num_steps, const std::vector<std::string>& flags);

}  // namespace megalith::jit
