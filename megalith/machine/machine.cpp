#include "megalith/machine/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "megalith/base/error.h"

namespace megalith::machine {
namespace {

constexpr int64_t kKiB = 1024;

// Multiprocessors and shared memory: CUDA C++ Programming Guide, technical specifications, and NVIDIA's data sheets. Bytes
// of sm_90a are measured (docs/performance); of the others the data sheets' bandwidth over the multiprocessors, and the
// same time for what a task costs besides. Operations are the data sheets' of dense bf16, and of f32 for generated bodies,
// over the multiprocessors.
constexpr double kTaskNs = 500;
constexpr std::array kGpus = {
    Gpu{"sm_80", "A100", 108, 163 * kKiB, false, false, {18.9, 2890, 180, kTaskNs}},
    Gpu{"sm_86", "A10, RTX 30", 84, 99 * kKiB, false, false, {11.1, 850, 425, kTaskNs}},
    Gpu{"sm_89", "L4, L40S, RTX 40", 142, 99 * kKiB, false, false, {6.1, 2550, 645, kTaskNs}},
    Gpu{"sm_90a", "H100, H200", 132, 227 * kKiB, true, true, {35, 7490, 507, kTaskNs}},
    Gpu{"sm_100a", "B200", 148, 227 * kKiB, true, true, {54, 15200, 540, kTaskNs}},
    Gpu{"sm_120a", "RTX 50, RTX PRO 6000", 188, 99 * kKiB, true, true, {9.5, 2680, 665, kTaskNs}},
};
constexpr std::string_view kTuned = "sm_90a";

// A core of a desktop or server CPU: two multiply-adds of eight floats in each of three cycles a nanosecond, whoever wrote
// the body.
constexpr WorkerRates kCpuRates = {10, 96, 96, 50};

int number_of(std::string_view architecture) {
  int number = 0;
  MEGALITH_ASSERT(architecture.starts_with("sm_"), "\"{}\" is no architecture", architecture);
  std::from_chars(architecture.data() + 3, architecture.data() + architecture.size(), number);
  return number;
}

}  // namespace

std::span<const Gpu> gpus() { return kGpus; }

const Gpu& gpu(std::string_view architecture) {
  const int wanted = number_of(architecture);
  const auto newer = std::ranges::find_if(kGpus, [&](const Gpu& one) { return number_of(one.architecture) > wanted; });
  return newer == kGpus.begin() ? kGpus.front() : *(newer - 1);
}

const Gpu& gpu_of_target(std::string_view target) {
  const size_t colon = target.find(':');
  return gpu(colon == std::string_view::npos ? kTuned : target.substr(colon + 1));
}

WorkerRates worker_rates(std::string_view target) {
  return target.starts_with("cuda") ? gpu_of_target(target).rates : kCpuRates;
}

double task_ns(const WorkerRates& rates, double bytes, double flops, bool is_tuned) {
  const double flops_per_ns = is_tuned ? rates.tuned_flops_per_ns : rates.generated_flops_per_ns;
  return rates.task_ns + std::max(bytes / rates.bytes_per_ns, flops / flops_per_ns);
}

int64_t halving_workers(const Gpu& gpu) { return std::bit_floor(static_cast<uint64_t>(gpu.multiprocessors)); }

}  // namespace megalith::machine
