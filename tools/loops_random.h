// megalith loops --random: random kernels under random schedules, whose code must compute what the interpreter does, and
// schedules that are wrong, which must be refused.
#pragma once

#include <cstdint>

namespace megalith::tools {

/// `count` of each, of the seeds from `seed` on; a progress bar, what went wrong with its seed, and a summary.
int check_random_loops(int64_t count, uint64_t seed);

}  // namespace megalith::tools
