// Threads, and what becomes of a run if the system gives none.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace megalith {

/// Up to `count` threads that run `work`. Where the system gives no more (a limit of processes, memory for stacks),
/// fewer or none: the work takes longer then, and a warning says so. They are joined when the vector goes.
std::vector<std::jthread> start_helpers(int count, const std::function<void()>& work);

/// The thread without which there is no `what` ("the progress line"). Where the system gives none: SystemError with the
/// limit that was met.
std::thread start_thread(const std::string& what, std::function<void()> work);

/// Runs `work(t)` for t of 0 to `count` - 1 at the same time, each on a thread of its own, and waits for all. They may
/// wait for one another: if not all can be started, none begins, and that is a SystemError as above.
void run_together(const std::string& what, int count, const std::function<void(int)>& work);

}  // namespace megalith
