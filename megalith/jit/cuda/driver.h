// The CUDA driver, opened at run time: the few functions of libcuda that a persistent kernel needs, and what there is
// to run on. Everything here throws a SystemError that names the call, the driver's own words, and what to try.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "megalith/jit/cuda/shared_library.h"

namespace megalith::jit {

// The driver's types, as its ABI has them; no header of CUDA's is needed to build.
using CudaCode = int;  // 0 is success
using CudaDevice = int;
using CudaAddress = unsigned long long;
using CudaContext = void*;
using CudaModule = void*;
using CudaFunction = void*;
using CudaStream = void*;
using CudaEvent = void*;

struct CudaLaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
  } value;
};
struct CudaLaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CudaStream stream;
  CudaLaunchAttribute* attributes;
  unsigned num_attributes;
};

constexpr CudaCode kCudaInvalidValue = 1, kCudaOutOfMemory = 2, kCudaNotFound = 500, kCudaNotReady = 600;
constexpr unsigned kCudaEventWithoutTiming = 2;

struct CudaDriver {
  SharedLibrary library;
  CudaCode (*init)(unsigned);
  CudaCode (*driver_version)(int*);
  CudaCode (*error_name)(CudaCode, const char**);
  CudaCode (*error_string)(CudaCode, const char**);
  CudaCode (*device_count)(int*);
  CudaCode (*device_get)(CudaDevice*, int);
  CudaCode (*device_name)(char*, int, CudaDevice);
  CudaCode (*device_attribute)(int*, int, CudaDevice);
  CudaCode (*device_memory)(size_t*, CudaDevice);
  CudaCode (*context_retain)(CudaContext*, CudaDevice);
  CudaCode (*context_release)(CudaDevice);
  CudaCode (*context_push)(CudaContext);  // on this thread; what was current before is so again after the pop
  CudaCode (*context_pop)(CudaContext*);
  CudaCode (*context_device)(CudaDevice*);  // of the current one
  CudaCode (*memory_info)(size_t*, size_t*);
  CudaCode (*memory_allocate)(CudaAddress*, size_t);
  CudaCode (*memory_free)(CudaAddress);
  CudaCode (*memory_set)(CudaAddress, unsigned char, size_t);
  CudaCode (*memory_set_async)(CudaAddress, unsigned char, size_t, CudaStream);
  CudaCode (*pointer_attribute)(void*, int, CudaAddress);
  CudaCode (*host_allocate)(void**, size_t, unsigned);
  CudaCode (*host_free)(void*);
  CudaCode (*copy_to_device)(CudaAddress, const void*, size_t);
  CudaCode (*copy_to_host)(void*, CudaAddress, size_t);
  CudaCode (*copy_on_device)(CudaAddress, CudaAddress, size_t);
  CudaCode (*copy_to_device_async)(CudaAddress, const void*, size_t, CudaStream);
  CudaCode (*copy_to_host_async)(void*, CudaAddress, size_t, CudaStream);
  CudaCode (*stream_create)(CudaStream*, unsigned);
  CudaCode (*stream_destroy)(CudaStream);
  CudaCode (*stream_synchronize)(CudaStream);
  CudaCode (*stream_wait)(CudaStream, CudaEvent, unsigned);
  CudaCode (*event_create)(CudaEvent*, unsigned);
  CudaCode (*event_destroy)(CudaEvent);
  CudaCode (*event_record)(CudaEvent, CudaStream);
  CudaCode (*event_query)(CudaEvent);
  CudaCode (*event_synchronize)(CudaEvent);
  CudaCode (*event_elapsed)(float*, CudaEvent, CudaEvent);  // milliseconds
  CudaCode (*module_load)(CudaModule*, const void*);
  CudaCode (*module_unload)(CudaModule);
  CudaCode (*module_function)(CudaFunction*, CudaModule, const char*);
  CudaCode (*function_attribute)(int*, int, CudaFunction);
  CudaCode (*function_set_attribute)(CudaFunction, int, int);
  CudaCode (*occupancy)(int*, CudaFunction, int, size_t);
  CudaCode (*launch)(const CudaLaunchConfig*, CudaFunction, void**, void**);
  // map (128 bytes, at a multiple of 64), type, dimensions, address, sizes, strides in bytes, box, steps, interleaving,
  // swizzling, promotion, filling
  CudaCode (*tensor_map)(void*, int, unsigned, CudaAddress, const unsigned long long*, const unsigned long long*,
                         const unsigned*, const unsigned*, int, int, int, int);

  /// Opens the driver that MEGALITH_CUDA_DRIVER names, or the system's, and starts it. Everyone uses get().
  CudaDriver();
  /// SystemError if there is no driver (with the places where it was looked for), or if it is too old or does not
  /// start; and in a process that was forked after it was opened, where it does not work.
  static const CudaDriver& get();
  /// Whether this is such a process.
  static bool is_of_another_process();
  /// SystemError "[cuda] WHAT failed: CUDA_ERROR_... (words); what to try" unless `code` is success.
  void check(CudaCode code, const std::string& what) const;
  /// "13.0": the newest CUDA that the driver knows.
  std::string version() const;

 private:
  void bind_all();
};

struct CudaDeviceInfo {
  int ordinal = 0;
  std::string name;
  std::string architecture;  // "sm_90a": with the features of that generation where it has its own
  int num_multiprocessors = 0;
  bool launches_cooperatively = false;  // all workers at once, or none
  int shared_bytes_per_block = 0;       // at most, when asked for
  int reserved_bytes_per_block = 0;     // of shared memory, by the driver
  size_t memory_bytes = 0;
};

/// SystemError as CudaDriver::get().
std::vector<CudaDeviceInfo> cuda_devices();
/// The device that is used: the first one (CUDA_VISIBLE_DEVICES says which that is).
CudaDeviceInfo cuda_device();

}  // namespace megalith::jit
