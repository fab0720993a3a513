// megalith loops --bench: how long it takes to schedule kernels and to write their code.
#pragma once

#include <cstdint>

namespace megalith::tools {

/// A kernel of `nests` loop nests that have nothing to do with each other: each is split and tagged, all are checked, and the
/// source is written for a CPU and for a GPU. Prints the time of each part.
int bench_loops(int64_t nests);

}  // namespace megalith::tools
