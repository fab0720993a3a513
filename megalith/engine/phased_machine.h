// A machine of two kernels of one model that share its states: one made for prompts, with many tokens at a time, and one
// for the tokens behind them, with few. A run begins with the first where that is worth it; its `advance` ends the run
// before an iteration that the other kernel has room for (batch::kLeast), and that one goes on with the rows that lie
// there.
#pragma once

#include <memory>

#include "megalith/engine/machine.h"
#include "megalith/engine/memory_map.h"

namespace megalith::engine {

/// Both were made from the same `memory`.
std::unique_ptr<Machine> make_phased_machine(std::unique_ptr<Machine> prompts, std::unique_ptr<Machine> decode,
                                             const MemoryMap& memory);

/// Why two decoders' kernels cannot share states, "" if they can: those of `prompts` are there for both, and what
/// `decode` has must lie in them in the same way, the first of as many rows or more.
std::string why_not_shared(const graph::Graph& decode, const graph::Schedule& of_decode, const graph::Graph& prompts,
                           const graph::Schedule& of_prompts);

}  // namespace megalith::engine
