// The machines that code is made for: what an architecture has and how fast a worker of it is, in one table. Everything
// that decides by such a number asks here; what the driver says of the very card is asked where a card is used
// (jit/cuda/driver.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megalith::machine {

/// Rough rates of one worker, a multiprocessor or a core, to weigh tasks against each other: only ratios matter.
struct WorkerRates {
  double bytes_per_ns = 0;            // that memory gives it while all workers read
  double tuned_flops_per_ns = 0;      // of hand-tuned bodies: a GPU's by its tensor cores, of bf16
  double generated_flops_per_ns = 0;  // of bodies that are generated
  double task_ns = 0;                 // what a task costs besides: a wait, first loads, a store, a signal
};

/// A generation of GPUs.
struct Gpu {
  std::string_view architecture;  // as NVRTC takes it: "sm_90a"
  std::string_view cards;         // that people know it by
  int multiprocessors;            // of the largest of them
  int64_t shared_bytes;           // that a block may have, opted in
  bool copies_by_map;             // bulk copies that a tensor map describes (cp.async.bulk.tensor, PTX ISA 8.0)
  bool has_clusters;              // blocks that write to each other's shared memory (PTX ISA 7.8)
  WorkerRates rates;
};

/// All that kernels are compiled for by the tests, the oldest first.
std::span<const Gpu> gpus();

/// The one of an architecture. Of one that the table does not have ("sm_87", "sm_103a") the newest that is not newer:
/// what that one may use, the other has. `architecture` begins with "sm_" and a number.
const Gpu& gpu(std::string_view architecture);

/// The one of a target: "cuda:sm_86"; of "cuda" alone, before a card is known, the one that decisions were tuned on.
const Gpu& gpu_of_target(std::string_view target);

/// Of a worker of a target, "cpu" or one for CUDA.
WorkerRates worker_rates(std::string_view target);

/// What a task takes that moves so many bytes and does so many operations: both go on together, so as long as the
/// longer of them, and what every task costs.
double task_ns(const WorkerRates& rates, double bytes, double flops, bool is_tuned);

/// The most workers of a GPU, all on one multiprocessor each, that halve evenly: a power of two.
int64_t halving_workers(const Gpu& gpu);

}  // namespace megalith::machine
