// NVRTC: CUDA's compiler as a library. It needs no GPU, no toolkit beside itself and no host compiler, so every machine
// with it can compile for every architecture.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::jit {

/// What the kernel takes of a multiprocessor, as ptxas reports it.
struct KernelResources {
  int registers = 0;  // per thread
  int shared_bytes = 0, stack_bytes = 0;
  std::map<std::string, int> spills;  // bytes stored and loaded, of the functions that do so
  bool multiplies_one_by_one =
      false;  // each wgmma waits for the one before it (ptxas C7510 and its like): several times slower

  std::string text() const;  // "72 registers, 320 bytes of shared memory, 48 bytes of stack, no spills"
};

struct NvrtcResult {
  std::string ptx, cubin;
  std::string log;
  KernelResources resources;
};

/// Compiles `source` for `architecture`: "sm_90a", or for PTX alone "compute_90a". SystemError with the first lines of the log if that fails, or with
/// the places where NVRTC was looked for if there is none. As long as call_patiently() lets it, and `over` is not set, if there is one.
NvrtcResult nvrtc_compile(const std::string& source, const std::string& name, const std::string& architecture,
                          const std::vector<std::string>& flags, const std::atomic<bool>* over = nullptr);

/// "NVRTC 13.0 (/usr/local/cuda-13.0/lib64/libnvrtc.so.13.0.88)"; SystemError as above.
std::string nvrtc_version();
int nvrtc_major();
/// Opens the library ahead of the time when it is needed. Without one nothing happens: whoever needs it says so.
void open_nvrtc() noexcept;
/// What changes with every build of NVRTC, for the cache's key: of each 12.4.x the version is 12.4.
std::string nvrtc_identity();

/// Whether it begins as machine code for a GPU does.
bool is_cubin(std::string_view bytes);

/// ptxas' report in NVRTC's log.
KernelResources parse_resources(const std::string& log);

}  // namespace megalith::jit
