// Tests that run without a GPU: the driver of this process is the stand-in of fake/fake_cuda.cpp.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/temporary_folder.h"
#include "driver/fake/fake_cuda.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/cuda/driver.h"

namespace megalith::test {

/// What NVRTC's stand-in is given to compile.
inline constexpr const char* kKernelSource =
    "extern \"C\" __global__ void megalith_worker(int* out) { *out = 4242; }\n";

/// Two kernels of few tokens, which serve all tests: by default a GPU has five, and each takes NVRTC some ten seconds.
inline engine::EngineOptions few_kernels() {
  engine::EngineOptions options{.target = "cuda", .regimes = std::vector<int64_t>{1}, .prompt_rows = 0};
  options.decoder.max_rows = 8;
  return options;
}

class FakeDriverTest : public ::testing::Test {
 protected:
  FakeDriverTest() { fake.reset(); }
  ~FakeDriverTest() override { fake.reset(); }

  /// The one that CudaDriver::get() opens: nobody else of this process sets the variable.
  static FakeCuda& load() {
    ::setenv("MEGALITH_CUDA_DRIVER", FAKE_CUDA, 1);
    void* library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  }
  FakeCuda& fake = load();
};

}  // namespace megalith::test
