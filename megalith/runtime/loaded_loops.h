// A compiled loop kernel, loaded: its functions, and how a call's arguments become theirs. It has one for each part between
// barriers over everything (loop/stages.h); what they hand each other is a temporary that is everyone's. Launching allocates
// nothing but memory for those.
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
  /// returns; a program with checks of what data decides is waited for. UserError for what those find, SystemError of the
  /// driver.
  void launch(std::span<const LoopTensor> tensors, std::span<const int64_t> sizes, std::span<const float> attributes,
              jit::CudaStream stream);

 private:
  // A function, and where its arguments come from.
  struct Part {
    const codegen::LoopSource* source;
    std::vector<int> tensors;               // place in the call, or -1 - place in scratch_
    std::vector<size_t> sizes, attributes;  // place in the call
    void (*function)(void* const*, const long long*, const float*) = nullptr;  // on a CPU
    jit::CudaFunction cuda_function = nullptr;
  };
  // A temporary that is everyone's.
  struct Scratch {
    std::string name;
    std::vector<loop::QuasiAffine> shape;  // by the call's sizes
    int64_t element_bytes;
  };
  Part make_part(const codegen::LoopSource& source, const LoopSignature& signature);
  int place_of(const std::string& tensor, const LoopSignature& signature);
  void load_cuda(int ordinal);
  void launch_cuda(const Part& part, void** tensors, const int64_t* sizes, const float* attributes,
                   jit::CudaStream stream);
  void check_fault_cuda(const Part& part, jit::CudaStream stream);
  int64_t scratch_bytes(const Scratch& scratch, const int64_t* sizes) const;

  std::shared_ptr<const jit::LoopProgram> program_;
  std::string prefix_;
  std::vector<Part> parts_;  // run one after the other
  std::vector<Scratch> scratch_;

  CudaContextHold context_;
  CudaModuleOwner module_;
  const jit::CudaDriver* driver_ = nullptr;
  bool has_checks_ = false;
  DeviceMemory device_fault_;  // a codegen::LoopFault
  std::mutex mutex_;           // of scratch memory: work on one stream runs in order, and shares it; of device_fault_
  std::map<std::pair<jit::CudaStream, size_t>, DeviceMemory> device_scratch_;
};

}  // namespace megalith::runtime
