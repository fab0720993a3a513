#include "megalith/jit/cuda/driver.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "megalith/base/error.h"
#include "megalith/base/options.h"
#include "megalith/kernels/shared_budget.h"

namespace megalith::jit {

namespace {

enum DeviceAttribute {
  kNumMultiprocessors = 16,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kCooperativeLaunch = 95,
  kSharedBytesOptin = 97,
  kReservedSharedBytes = 111
};

// From Hopper on, kernels may use what only their generation has: the letter a.
std::string architecture_name(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

SharedLibrary open_driver() {
  const std::string advice = "it comes with NVIDIA's driver; without a GPU use --target cpu";
  if (option_is_set("MEGALITH_CUDA_DRIVER"))
    return SharedLibrary::named(option_value("MEGALITH_CUDA_DRIVER"), "MEGALITH_CUDA_DRIVER", advice);
  return SharedLibrary({"libcuda.so.1", "libcuda.so"},
                       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                        "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"},
                       advice);
}

// The driver's words say what happened; these say what to do about it. Codes are those of its ABI.
struct Advice {
  CudaCode first, last;
  const char* text;
};
constexpr const char* kStickyAdvice =
    "this ended the GPU's context, and every later call of this process fails alike: start it again; if it comes back, "
    "compute-sanitizer names the access";
constexpr const char* kCardAdvice =
    "the card may be gone or broken: nvidia-smi says whether it is there, and the kernel's log (dmesg, lines with Xid) "
    "why; restarting the machine brings most cards back";
constexpr const char* kContainedAdvice =
    "the card, or its link to another, had an error that ended only this process's work: start the process again; if "
    "it comes back, the kernel's log (dmesg, lines with Xid) says why";
constexpr const char* kOldDriverAdvice =
    "the kernel was made by a compiler that is newer than the driver, or for another GPU: install a newer driver, or "
    "use an older NVRTC (MEGALITH_NVRTC)";
constexpr Advice kAdvice[] = {
    {kCudaOutOfMemory, kCudaOutOfMemory,
     "close what else uses the GPU (nvidia-smi lists it), or use a smaller model, --max-seq-len or --max-batch"},
    {46, 46, kCardAdvice},  // device unavailable
    {100, 100,
     "the driver sees no GPU: CUDA_VISIBLE_DEVICES may hide it, and nvidia-smi lists what there is; without one use "
     "--target cpu"},
    {200, 200, kOldDriverAdvice},  // invalid image
    {209, 209, kOldDriverAdvice},  // no binary for this GPU
    {214, 214, kCardAdvice},       // uncorrectable memory error
    {222, 222, kOldDriverAdvice},  // unsupported version of PTX
    {226, 226, kContainedAdvice},  // error that the card contained
    {304, 304, kCardAdvice},       // the operating system's call failed
    {700, 700, kStickyAdvice},     // illegal address
    {702, 702, kStickyAdvice},     // time limit of a card that also drives a screen
    {714, 719, kStickyAdvice},     // stack, instruction, alignment, address space, program counter, unspecified
    {720, 720, "another program may hold part of the GPU: nvidia-smi lists them; fewer workers need less (--workers)"},
    {802, 802, "the machine's GPUs are still being set up: try again in a minute, and look at nvidia-fabricmanager"},
    {803, 803, "library and kernel module of the driver differ, as after an update: restart the machine"},
    {804, 804, "CUDA's compatibility library does not serve this GPU: take it out of LD_LIBRARY_PATH"},
    {999, 999, kCardAdvice},
};

std::atomic<pid_t> opened_in{0};  // the process that started the driver

}  // namespace

CudaDriver::CudaDriver() : library(open_driver()) {
  library.bind(driver_version, "cuDriverGetVersion");
  try {
    bind_all();
  } catch (const SystemError& error) {
    throw SystemError(
        fmt::format("{} (this driver is for CUDA {}, Megalith wants one for 12.0 or newer)", error.what(), version()));
  }
  check(init(0), "starting the driver (cuInit)");
  opened_in.store(::getpid(), std::memory_order_relaxed);
}

void CudaDriver::bind_all() {
  library.bind(init, "cuInit");
  library.bind(error_name, "cuGetErrorName");
  library.bind(error_string, "cuGetErrorString");
  library.bind(device_count, "cuDeviceGetCount");
  library.bind(device_get, "cuDeviceGet");
  library.bind(device_name, "cuDeviceGetName");
  library.bind(device_attribute, "cuDeviceGetAttribute");
  library.bind(device_memory, "cuDeviceTotalMem_v2");
  library.bind(context_retain, "cuDevicePrimaryCtxRetain");
  library.bind(context_release, "cuDevicePrimaryCtxRelease_v2");
  library.bind(context_push, "cuCtxPushCurrent_v2");
  library.bind(context_pop, "cuCtxPopCurrent_v2");
  library.bind(context_device, "cuCtxGetDevice");
  library.bind(memory_info, "cuMemGetInfo_v2");
  library.bind(memory_allocate, "cuMemAlloc_v2");
  library.bind(memory_free, "cuMemFree_v2");
  library.bind(memory_set, "cuMemsetD8_v2");
  library.bind(memory_set_async, "cuMemsetD8Async");
  library.bind(pointer_attribute, "cuPointerGetAttribute");
  library.bind(host_allocate, "cuMemHostAlloc");
  library.bind(host_free, "cuMemFreeHost");
  library.bind(copy_to_device, "cuMemcpyHtoD_v2");
  library.bind(copy_to_host, "cuMemcpyDtoH_v2");
  library.bind(copy_on_device, "cuMemcpyDtoD_v2");
  library.bind(copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  library.bind(copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  library.bind(stream_create, "cuStreamCreate");
  library.bind(stream_destroy, "cuStreamDestroy_v2");
  library.bind(stream_synchronize, "cuStreamSynchronize");
  library.bind(stream_wait, "cuStreamWaitEvent");
  library.bind(event_create, "cuEventCreate");
  library.bind(event_destroy, "cuEventDestroy_v2");
  library.bind(event_record, "cuEventRecord");
  library.bind(event_query, "cuEventQuery");
  library.bind(event_synchronize, "cuEventSynchronize");
  library.bind(event_elapsed, "cuEventElapsedTime");
  library.bind(module_load, "cuModuleLoadData");
  library.bind(module_unload, "cuModuleUnload");
  library.bind(module_function, "cuModuleGetFunction");
  library.bind(function_attribute, "cuFuncGetAttribute");
  library.bind(function_set_attribute, "cuFuncSetAttribute");
  library.bind(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  library.bind(launch, "cuLaunchKernelEx");
  library.bind(tensor_map, "cuTensorMapEncodeTiled");
}

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver;
  if (is_of_another_process())
    throw SystemError(
        "[cuda] this process was forked from one that had opened the GPU, which a fork cannot use: load or compile "
        "after the fork, or start processes with \"spawn\" (multiprocessing.set_start_method)");
  return driver;
}

bool CudaDriver::is_of_another_process() {
  const pid_t process = opened_in.load(std::memory_order_relaxed);
  return process != 0 && process != ::getpid();
}

void CudaDriver::check(CudaCode code, const std::string& what) const {
  if (code == 0) return;
  const char *name = nullptr, *words = nullptr;
  error_name(code, &name);
  error_string(code, &words);
  const auto* advice =
      std::ranges::find_if(kAdvice, [&](const Advice& a) { return a.first <= code && code <= a.last; });
  throw SystemError(fmt::format("[cuda] {} failed: {} ({}){}{}", what, name ? name : fmt::format("error {}", code),
                                words ? words : "the driver has no words for it",
                                advice == std::end(kAdvice) ? "" : "; ",
                                advice == std::end(kAdvice) ? "" : advice->text));
}

std::string CudaDriver::version() const {
  int number = 0;
  driver_version(&number);
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::vector<CudaDeviceInfo> cuda_devices() {
  const CudaDriver& driver = CudaDriver::get();
  int count = 0;
  driver.check(driver.device_count(&count), "counting the GPUs");
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    CudaDevice device = 0;
    driver.check(driver.device_get(&device, i), fmt::format("opening GPU {}", i));
    CudaDeviceInfo info{.ordinal = i};
    char name[256] = {};
    driver.check(driver.device_name(name, sizeof name, device), "asking for the GPU's name");
    info.name = name;
    auto attribute = [&](int which) {
      int value = 0;
      driver.check(driver.device_attribute(&value, which, device), fmt::format("asking for GPU attribute {}", which));
      return value;
    };
    info.architecture = architecture_name(attribute(kComputeMajor), attribute(kComputeMinor));
    info.num_multiprocessors = attribute(kNumMultiprocessors);
    info.launches_cooperatively = attribute(kCooperativeLaunch) != 0;
    info.shared_bytes_per_block = attribute(kSharedBytesOptin);
    info.reserved_bytes_per_block = attribute(kReservedSharedBytes);
    driver.check(driver.device_memory(&info.memory_bytes, device), "asking for the GPU's memory");
    devices.push_back(std::move(info));
  }
  return devices;
}

CudaDeviceInfo cuda_device() {
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  if (devices.empty())
    throw SystemError("[cuda] the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it); use --target cpu");
  const CudaDeviceInfo& device = devices.front();
  if (!device.launches_cooperatively)
    throw SystemError(
        fmt::format("[cuda] {} cannot launch cooperatively, as the driver has it here, and workers that wait for each "
                    "other must all run at once: so it is with some virtual GPUs and "
                    "with drivers for displays on Windows; take another GPU (CUDA_VISIBLE_DEVICES), or "
                    "--target cpu",
                    device.name));
  if (device.reserved_bytes_per_block > stream::kSystemBytes)
    throw SystemError(
        fmt::format("[cuda] the driver keeps {} bytes of a block's shared memory on {}, and kernels are "
                    "made for {} at most; try an older driver, or --target cpu",
                    device.reserved_bytes_per_block, device.name, stream::kSystemBytes));
  return device;
}

}  // namespace megalith::jit
