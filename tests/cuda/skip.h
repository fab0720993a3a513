// What the tests of CUDA need of the machine, and the skip that says what is missing.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megalith/base/error.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/jit/cuda/nvrtc.h"

namespace megalith::testing {

/// Why `attempt` throws a SystemError; "" if it does not.
template <class Attempt>
std::string missing(Attempt&& attempt) {
  try {
    attempt();
  } catch (const SystemError& error) { return error.what(); }
  return "";
}
inline std::string missing_compiler() {
  return missing([] { jit::nvrtc_version(); });
}
inline std::string missing_gpu() {
  const std::string compiler = missing_compiler();
  return compiler.empty() ? missing([] { jit::cuda_device(); }) : compiler;
}

}  // namespace megalith::testing

#define MEGALITH_SKIP_IF(reason)                        \
  if (const std::string why = (reason); !why.empty()) { \
    std::printf("[SKIP] %s\n", why.c_str());            \
    GTEST_SKIP() << why;                                \
  }
