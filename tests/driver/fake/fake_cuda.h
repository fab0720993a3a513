// A driver without a GPU, to be loaded in libcuda's place (MEGALITH_CUDA_DRIVER): memory of the card is memory of the
// host, and a test says which call fails with which code. Work on a stream is done as late as a real card may do it:
// not before somebody waits for it. So a buffer that is reused too early shows every time, and not once in a thousand
// runs.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace megalith::test {

struct FakeCuda {
  int version = 13000;
  int num_devices = 1;
  int reserved_bytes = 1024;  // of a block's shared memory
  bool launches_cooperatively = true;
  size_t total_bytes = size_t{1} << 30, used_bytes = 0;

  std::mutex mutex;
  std::map<std::string, int> failures;     // function -> code that it returns
  std::map<std::string, int> fails_after;  // ... once it was called this often; 0 if not named
  std::map<std::string, int> calls;
  int sticky = 0;            // once a call has failed with a code of 700 and more, all further ones do: a dead context
  int retained = 0;          // the context is there while somebody holds it
  int num_owned = 0;         // streams, events, modules and page-locked memory that were not freed yet
  int freed_while_used = 0;  // page-locked memory that was freed while copies from it had not been made
  bool has_sides = false;    // its L2, as an H200's: odd multiprocessors are on the other one
  int unclear_probes = 0;    // of those that look for sides, the first so many find nothing
  bool worker_never_ends = false;        // once launched
  bool worker_begins = true;             // else it waits for the card
  int waits_for_ever = 0;                // calls that wait for it, made after that
  int max_threads = 0;                   // of a block of any kernel; 0: the driver does not say
  unsigned grid[3] = {}, block[3] = {};  // of the newest launch
  const void* launch = nullptr;          // megalith::runtime::Launch of the worker that never ends

  void reset() {
    const std::lock_guard guard(mutex);
    failures.clear();
    fails_after.clear();
    calls.clear();
    version = 13000, num_devices = 1, reserved_bytes = 1024, sticky = 0, freed_while_used = 0;
    launches_cooperatively = true, has_sides = false, unclear_probes = 0, max_threads = 0;
    worker_never_ends = false, worker_begins = true, waits_for_ever = 0, launch = nullptr;
    total_bytes = size_t{1} << 30;
  }
};

}  // namespace megalith::test

/// The library's state; found with dlsym().
extern "C" megalith::test::FakeCuda* fake_cuda();
