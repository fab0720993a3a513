#include "megalith/jit/cuda/driver.h"

#include "megalith/base/error.h"

namespace megalith::jit {

namespace {

enum DeviceAttribute {
  kNumMultiprocessors = 16,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kCooperativeLaunch = 95,
  kSharedBytesOptin = 97
};

// From Hopper on, kernels may use what only their generation has: the letter a.
std::string architecture_name(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

}  // namespace

CudaDriver::CudaDriver()
    : library({"libcuda.so.1", "libcuda.so"},
              {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
               "/usr/lib/wsl/lib"},
              "it comes with NVIDIA's driver; without a GPU use --target cpu") {
  library.bind(init, "cuInit");
  library.bind(driver_version, "cuDriverGetVersion");
  library.bind(error_name, "cuGetErrorName");
  library.bind(error_string, "cuGetErrorString");
  library.bind(device_count, "cuDeviceGetCount");
  library.bind(device_get, "cuDeviceGet");
  library.bind(device_name, "cuDeviceGetName");
  library.bind(device_attribute, "cuDeviceGetAttribute");
  library.bind(device_memory, "cuDeviceTotalMem_v2");
  library.bind(context_retain, "cuDevicePrimaryCtxRetain");
  library.bind(context_release, "cuDevicePrimaryCtxRelease_v2");
  library.bind(context_set, "cuCtxSetCurrent");
  library.bind(memory_info, "cuMemGetInfo_v2");
  library.bind(memory_allocate, "cuMemAlloc_v2");
  library.bind(memory_free, "cuMemFree_v2");
  library.bind(memory_set, "cuMemsetD8_v2");
  library.bind(host_allocate, "cuMemHostAlloc");
  library.bind(host_free, "cuMemFreeHost");
  library.bind(copy_to_device, "cuMemcpyHtoD_v2");
  library.bind(copy_to_host, "cuMemcpyDtoH_v2");
  library.bind(copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  library.bind(copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  library.bind(stream_create, "cuStreamCreate");
  library.bind(stream_destroy, "cuStreamDestroy_v2");
  library.bind(stream_query, "cuStreamQuery");
  library.bind(stream_synchronize, "cuStreamSynchronize");
  library.bind(module_load, "cuModuleLoadData");
  library.bind(module_unload, "cuModuleUnload");
  library.bind(module_function, "cuModuleGetFunction");
  library.bind(function_attribute, "cuFuncGetAttribute");
  library.bind(function_set_attribute, "cuFuncSetAttribute");
  library.bind(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  library.bind(launch, "cuLaunchKernelEx");
  check(init(0), "starting the driver (cuInit)");
}

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver;
  return driver;
}

void CudaDriver::check(CudaCode code, const std::string& what) const {
  if (code == 0) return;
  const char *name = nullptr, *words = nullptr;
  error_name(code, &name);
  error_string(code, &words);
  throw SystemError(fmt::format("[cuda] {} failed: {} ({})", what, name ? name : fmt::format("error {}", code),
                                words ? words : "the driver has no words for it"));
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
    info.shared_bytes_per_block = attribute(kSharedBytesOptin);
    driver.check(driver.device_memory(&info.memory_bytes, device), "asking for the GPU's memory");
    devices.push_back(std::move(info));
  }
  return devices;
}

CudaDeviceInfo cuda_device() {
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  if (devices.empty())
    throw SystemError("[cuda] the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it); use --target cpu");
  return devices.front();
}

}  // namespace megalith::jit
