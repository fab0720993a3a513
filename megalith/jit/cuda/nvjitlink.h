// nvJitLink: the assembler of PTX as a library. NVRTC makes machine code from source in one go, so this is needed only
// for a PTX that somebody has edited (MEGALITH_OVERRIDE). It needs no GPU.
#pragma once

#include <string>

#include "megalith/jit/cuda/nvrtc.h"

namespace megalith::jit {

struct AssembledPtx {
  std::string cubin;
  KernelResources resources;
};

/// Assembles `ptx` for `architecture` ("sm_90a"). UserError with the first lines of the log if the PTX is wrong,
/// SystemError with the places where the library was looked for if there is none.
AssembledPtx nvjitlink_assemble(const std::string& ptx, const std::string& name, const std::string& architecture);

}  // namespace megalith::jit
