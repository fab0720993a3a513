// megalith loops --bench: how much time of the processor it takes to schedule kernels and to write their code.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::tools {

/// A kernel of `nests` loop nests that have nothing to do with each other: each is split and tagged, all are checked, and the
/// source is written for a CPU and for a GPU. Prints the time of each part.
int bench_loops(int64_t nests);

/// The loop kernels of a decoder layer of the model in `folder`: each is bound, inferred and checked, and its body written
/// for a CPU and for a GPU, though there are tuned ones. Prints the time of each part.
int bench_loops_of_model(const std::string& folder);

}  // namespace megalith::tools
