// The line that says how fast a generation went.
#pragma once

#include <string>
#include <vector>

#include "megalith/engine/engine.h"

namespace megalith::tools {

/// "[ Prompt: 1755.2 t/s | Generation: 722.6 t/s ] first token 5.1 ms, ..."
std::string generation_line(const engine::Engine& engine, const std::vector<engine::Request>& requests,
                            const engine::Generation& generation);

}  // namespace megalith::tools
