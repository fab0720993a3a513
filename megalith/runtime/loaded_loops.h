// A compiled loop kernel, loaded: the function, and how a call's arguments become its own. Launching allocates nothing but,
// for a kernel with temporaries that are everyone's, memory for those.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megalith/jit/loop_program.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/loop_signature.h"

namespace megalith::runtime {

class LoadedLoops {
 public:
  /// `ordinal` of the GPU, for a program for one. CapacityError if the card cannot hold a block.
  LoadedLoops(std::shared_ptr<const jit::LoopProgram> program, const LoopSignature& signature, int ordinal);

  const std::shared_ptr<const jit::LoopProgram>& program() const { return program_; }

  /// Arguments in the order of the signature. On a GPU the work is put on `stream` (nullptr: the default one) and the call
  /// returns. SystemError of the driver.
  void launch(std::span<const LoopTensor> tensors, std::span<const int64_t> sizes, std::span<const float> attributes,
              jit::CudaStream stream);

 private:
  void load_cuda(int ordinal);
  void launch_cuda(void** tensors, const int64_t* sizes, const float* attributes, const std::array<int64_t, 3>& blocks,
                   jit::CudaStream stream);
  int64_t scratch_bytes(size_t index, const int64_t* sizes) const;

  std::shared_ptr<const jit::LoopProgram> program_;
  std::string prefix_;
  std::vector<int> tensors_;                // of the function: place in the call, or -1 - place in scratch_
  std::vector<size_t> sizes_, attributes_;  // place in the call
  struct Scratch {
    std::string name;
    std::vector<loop::QuasiAffine> shape;  // by the function's sizes
    int64_t element_bytes;
  };
  std::vector<Scratch> scratch_;

  void (*function_)(void* const*, const long long*, const float*) = nullptr;  // on a CPU
  CudaContextHold context_;
  CudaModuleOwner module_;
  jit::CudaFunction cuda_function_ = nullptr;
  const jit::CudaDriver* driver_ = nullptr;
  std::mutex mutex_;  // of scratch memory: work on one stream runs in order, and shares it
  std::map<std::pair<jit::CudaStream, size_t>, DeviceMemory> device_scratch_;
};

}  // namespace megalith::runtime
