// Threads, and what becomes of a run if the system gives none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
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

/// std::this_thread::sleep_for, but for the 50 us that the system may wake a thread later to save power.
void sleep_exactly(std::chrono::microseconds time);

/// Calls work(i, is_over) for i from 0 to count - 1, each once, on this thread and up to num_threads - 1 helpers. The first
/// exception, of `work` or of interruption_check(), which this thread asks every few tens of milliseconds, comes out when all
/// have ended: what has not begun then is left out, and what takes long looks at `is_over`.
void for_each_index(size_t count, int num_threads,
                    const std::function<void(size_t i, const std::atomic<bool>& is_over)>& work);

}  // namespace megalith
