#include "tools/loops_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/compiler.h"
#include "megalith/jit/process.h"
#include "megalith/loop/count.h"
#include "megalith/runtime/loop_clock.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/multiply_rate.h"
#include "tools/command.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using runtime::DeviceMemory;
using runtime::LoopCall;
using runtime::LoopKernel;
using runtime::LoopSignature;

constexpr int kLeastRuns = 5, kMostRuns = 1000;
constexpr double kSeconds = 0.5;            // of measuring
constexpr int64_t kLeastCopied = 64 << 20;  // so that a copy is one of memory, and not of a cache
constexpr int64_t kFlushBytes = 256 << 20;
constexpr double kTolerance = 1e-3;  // relative and absolute: sums are formed in other orders

// As large arrays of numpy lie: in huge pages where the system gives some to whoever asks, and at the beginning of a line of a
// cache, since stores of whole lines go past the caches only then. What a copy moves lies so, too.
runtime::Mapping make_array(int64_t bytes) { return {std::max<int64_t>(bytes, 1), "an array of the kernel"}; }

// Arrays of random numbers for a call; on a GPU with copies there.
class LoopArrays {
 public:
  LoopArrays(const LoopKernel& kernel, const LoopSizes& sizes, const std::string& target)
      : kernel_(kernel), call_(kernel.call()), on_gpu_(jit::is_cuda_target(target)) {
    const LoopSignature& signature = kernel.signature();
    for (const auto& [name, value] : sizes) {
      const auto found = std::ranges::find(signature.sizes(), name);
      MEGALITH_CHECK(found != signature.sizes().end(), "{} --sizes: there is no size \"{}\"", signature.prefix(), name);
      call_.sizes[static_cast<size_t>(found - signature.sizes().begin())] = value;
    }
    kernel.find_sizes(call_);
    memory_.resize(signature.tensors().size());
    for (size_t i = 0; i < memory_.size(); ++i) make(i);
  }

  LoopCall& call() { return call_; }
  const std::vector<runtime::Mapping>& memory() const { return memory_; }
  int64_t count(size_t tensor) const { return counts_[tensor]; }

  void upload() {
    for (size_t i = 0; on_gpu_ && i < memory_.size(); ++i) device_[i].upload(memory_[i].data(), bytes(i));
  }
  void download() {
    for (size_t i = 0; on_gpu_ && i < memory_.size(); ++i) device_[i].download(memory_[i].data(), bytes(i));
  }

 private:
  int64_t bytes(size_t tensor) const { return counts_[tensor] * dtype_bytes(call_.tensors[tensor].dtype); }

  void make(size_t i) {
    runtime::LoopTensor& tensor = call_.tensors[i];
    const int64_t count =
        kernel_.signature().shape_of(i, {call_.sizes.data(), kernel_.signature().sizes().size()}, tensor.shape);
    counts_.push_back(count);
    tensor.num_dims = static_cast<int>(kernel_.signature().tensors()[i].shape.size());
    const int64_t bytes = count * dtype_bytes(tensor.dtype);
    memory_[i] = make_array(bytes);
    std::mt19937 random(static_cast<unsigned>(i + 1));
    std::uniform_real_distribution<float> numbers(-1, 1);
    for (int64_t at = 0; at < count; ++at)
      element_store(
          memory_[i].data(), tensor.dtype, at,
          dtype_is_float(tensor.dtype) ? static_cast<double>(numbers(random)) : static_cast<double>(random() % 8));
    tensor.data = memory_[i].data();
    tensor.is_there = true;
    tensor.on_gpu = on_gpu_;
    if (!on_gpu_) return;
    device_.emplace_back(std::max<int64_t>(bytes, 1), kernel_.signature().tensors()[i].name);
    tensor.data = device_.back().data();
  }

  const LoopKernel& kernel_;
  LoopCall call_;
  const bool on_gpu_;
  std::vector<runtime::Mapping> memory_;
  std::vector<DeviceMemory> device_;
  std::vector<int64_t> counts_;
};

int gpu_of(const std::string& target) {
  if (!jit::is_cuda_target(target)) return -1;
  const jit::CudaDeviceInfo device = jit::cuda_device();
  MEGALITH_CHECK(target == "cuda" || target == "cuda:" + device.architecture,
                 "the GPU of this machine is {}, not {}: use --target cuda", device.architecture, target);
  return device.ordinal;
}

loop::Binding binding_of(const LoopKernel& kernel, const LoopSizes& sizes) {
  for (const std::string& name : kernel.signature().sizes())
    MEGALITH_CHECK(sizes.contains(name), "{} the size {} is not known: want --sizes {}=...",
                   kernel.signature().prefix(), name, name);
  return {sizes, {}};
}

std::vector<double> times_ms(const std::function<void()>& run, int gpu) {
  run();
  std::vector<double> times;
  if (gpu >= 0) {
    runtime::LoopClock clock(gpu, nullptr, kFlushBytes);
    const auto measure = [&](int runs) {
      for (int i = 0; i < runs; ++i) clock.begin(), run(), clock.end();
      const std::vector<float> found = clock.times_ms();
      times.assign(found.begin(), found.end());
    };
    measure(kLeastRuns);
    const double estimate = std::max(percentile(times, 50), 1e-3);
    measure(std::clamp(static_cast<int>(1e3 * kSeconds / estimate), kLeastRuns, kMostRuns));
    return times;
  }
  const auto begin = std::chrono::steady_clock::now();
  while (times.size() < kLeastRuns || (times.size() < kMostRuns && jit::milliseconds_since(begin) < 1e3 * kSeconds)) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(jit::milliseconds_since(start));
  }
  return times;
}

// GB/s, of bytes read and bytes written together.
double copy_rate(int64_t moved_bytes, int gpu) {
  const int64_t bytes = std::max(moved_bytes / 2, kLeastCopied);
  double ms = 0;
  if (gpu >= 0) {
    const jit::CudaDriver& driver = jit::CudaDriver::get();
    const DeviceMemory from(bytes, "what is copied"), to(bytes, "its copy");
    ms = percentile(times_ms(
                        [&] {
                          driver.check(driver.copy_on_device(to.address(), from.address(), static_cast<size_t>(bytes)),
                                       "copying");
                        },
                        gpu),
                    50);
  } else {
    const runtime::Mapping from = make_array(bytes), to = make_array(bytes);
    const auto size = static_cast<size_t>(bytes);
    std::memset(from.data(), 1, size);  // pages that nobody wrote to are one and the same
    std::memset(to.data(), 1, size);
    ms = percentile(times_ms([&] { std::memcpy(to.data(), from.data(), size); }, gpu), 50);
  }
  return 2 * static_cast<double>(bytes) / ms / 1e6;
}

std::string exact_ms(double ms) { return ms < 1 ? format_ms(ms) : fmt::format("{:.3f} ms", ms); }

}  // namespace

LoopSizes parse_loop_sizes(const std::string& text) {
  LoopSizes sizes;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equal = part.find('=');
    int64_t value = 0;
    const char* const last = part.data() + part.size();
    const auto [stop, error] = equal == std::string::npos ? std::from_chars_result{last, std::errc::invalid_argument}
                                                          : std::from_chars(part.data() + equal + 1, last, value);
    if (error != std::errc() || stop != last || value < 0 || equal == 0)
      throw UsageError{fmt::format("--sizes: \"{}\" is none: want n=1024,m=64", part)};
    sizes[part.substr(0, equal)] = value;
    at = end + 1;
  }
  return sizes;
}

std::string count_text(const LoopKernel& kernel, const LoopSizes& sizes) {
  const loop::Kernel& scheduled = kernel.schedule().kernel();
  const loop::Binding binding = binding_of(kernel, sizes);
  const loop::OpCounts ops = loop::count_ops(scheduled, binding);
  std::string text;
  for (const auto& [what, count] : ops.ops)
    text += fmt::format("# {} {}: {}\n", dtype_name(what.first), what.second, count);
  for (const auto& [name, count] : loop::count_accesses(scheduled, binding))
    text += fmt::format("# {}: {} loads of {} bytes, {} stores of {} bytes, at least {} bytes moved\n", name,
                        count.loads, count.load_bytes, count.stores, count.store_bytes, count.moved_bytes());
  return text;
}

std::string assembly_text(const LoopKernel& kernel, const LoopSizes& sizes, const std::string& target) {
  LoopCall call = kernel.call();
  for (size_t i = 0; i < kernel.signature().sizes().size(); ++i)
    call.sizes[i] = binding_of(kernel, sizes).sizes.at(kernel.signature().sizes()[i]);
  const auto program = kernel.make_for(call, target);
  if (jit::is_cuda_target(target)) return program->cuda.ptx;
  const jit::Compiler compiler = jit::compiler_find(jit::KernelCache::from_environment());
  std::vector<std::string> command = compiler.command;
  for (const std::vector<std::string>& flags : {jit::loop_cpu_flags(), jit::common_flags(compiler)})
    command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"-S", "-o", "-", program->build.directory + "/kernel.cpp"});
  const jit::ProcessResult result = jit::process_run(command, ".", {});
  if (!result.ok()) throw SystemError(fmt::format("[loops] {} {}", compiler.command[0], result.ending()));
  return result.output;
}

std::string check_text(const LoopKernel& kernel, const LoopSizes& sizes, const std::string& target) {
  binding_of(kernel, sizes);
  const int gpu = gpu_of(target);
  std::optional<runtime::CudaContextGuard> context;
  if (gpu >= 0) context.emplace(gpu);
  const LoopKernel plain(kernel.schedule().plain(), {});
  LoopArrays found(kernel, sizes, target), wanted(plain, sizes, "cpu");
  found.upload();
  kernel.run(found.call());
  found.download();
  plain.interpret(wanted.call());
  double largest = 0;
  for (size_t i = 0; i < kernel.signature().tensors().size(); ++i) {
    if (kernel.signature().tensors()[i].role == loop::Role::input) continue;
    MEGALITH_CHECK(found.count(i) == wanted.count(i), "{} the schedule gives {} another shape: check it by hand",
                   kernel.signature().prefix(), kernel.signature().tensors()[i].name);
    for (int64_t at = 0; at < found.count(i); ++at) {
      const double have = element_load(found.memory()[i].data(), found.call().tensors[i].dtype, at);
      const double want = element_load(wanted.memory()[i].data(), wanted.call().tensors[i].dtype, at);
      const double share = std::abs(have - want) / (kTolerance * (1 + std::abs(want)));
      MEGALITH_CHECK(have == want || share <= 1, "{} {} is {} at {}, and the interpreter says {}",
                     kernel.signature().prefix(), kernel.signature().tensors()[i].name, have, at, want);
      if (have != want) largest = std::max(largest, share);
    }
  }
  return fmt::format("# right: the largest difference to the interpreter is {:.2g} of what is allowed\n", largest);
}

std::string bench_text(const LoopKernel& kernel, const LoopSizes& sizes, const std::string& target) {
  const loop::Binding binding = binding_of(kernel, sizes);
  const int gpu = gpu_of(target);
  std::optional<runtime::CudaContextGuard> context;
  if (gpu >= 0) context.emplace(gpu);
  LoopArrays arrays(kernel, sizes, target);
  arrays.upload();
  LoopCall& call = arrays.call();
  const std::vector<double> times = times_ms([&] { kernel.run(call); }, gpu);
  const double ms = percentile(times, 50);
  const loop::Kernel counted = kernel.schedule().plain().kernel();
  const double flops = static_cast<double>(loop::count_ops(counted, binding).flops());
  int64_t moved = 0;
  for (const auto& [name, count] : loop::count_accesses(counted, binding)) moved += count.moved_bytes();
  const double rate = static_cast<double>(moved) / ms / 1e6, copy = copy_rate(moved, gpu);
  std::string text =
      fmt::format("# {} median of {} ({} to {}), {:.1f} GB/s, {:.1f} % of a copy's {:.1f}\n", exact_ms(ms),
                  plural(static_cast<int64_t>(times.size()), "run"), exact_ms(percentile(times, 10)),
                  exact_ms(percentile(times, 90)), rate, 100 * rate / copy, copy);
  if (flops == 0) return text;
  text += fmt::format("# {:.1f} GFLOP/s", flops / ms / 1e6);
  if (gpu < 0) {
    const double most = runtime::cpu_multiply_rate_gflops({.f32_alone = true});
    text += fmt::format(", {:.1f} % of what a core multiplies at, {:.1f}", 100 * flops / ms / 1e6 / most, most);
  }
  return text + "\n";
}

}  // namespace megalith::tools
