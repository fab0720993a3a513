// How fast memory can be read on the machine at hand: what a decoder's own rate is held against. Measured beside what
// it is compared with, in the same minute and by as many threads, because a machine's speed drifts with its neighbours
// and its clock.
#pragma once

#include <cstdint>

namespace megalith::runtime {

struct BandwidthOptions {
  int num_threads = 1;
  double seconds = 0.25;         // spent reading; making the buffer comes on top
  int64_t bytes_per_thread = 0;  // 0: so many that the caches of the machine do not matter
};

/// GB/s (10^9 bytes) at which `num_threads` pinned threads read a buffer far larger than every cache, on huge pages
/// where the system has them: plain streams, nothing computed. The fastest pass over the buffer counts.
double cpu_read_bandwidth_gbs(const BandwidthOptions& options);

}  // namespace megalith::runtime
