// Threads that help with work which one thread could do alone.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace megalith {

/// Up to `count` threads that run `work`. Where the system gives no more (a limit of processes, memory for stacks),
/// fewer or none: the work takes longer then, and a warning says so. They are joined when the vector goes.
std::vector<std::jthread> start_helpers(int count, const std::function<void()>& work);

}  // namespace megalith
