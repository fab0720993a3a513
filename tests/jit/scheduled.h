// Short hands for tests of scheduled kernels as code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megalith/base/file.h"
#include "megalith/jit/loops.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::jit {

inline const std::vector<std::string> kQuickFlags = {"-std=c++20", "-fPIC", "-O0", "-w"};

inline loop::Schedule scheduled(const std::string& kernel_text, const std::string& steps) {
  loop::Kernel kernel = loop::parse_kernel(kernel_text);
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  return loop::Schedule::parse(std::move(kernel), steps);
}

inline std::string body_of(const loop::Schedule& schedule, codegen::LoopTarget target) {
  const std::string text = codegen::emit_loops(schedule.kernel(), target, "kernel").text;
  return text.substr(text.find("extern"));
}

/// A file of examples/loops.
inline std::string example(const std::string& file) {
  return file_read(std::string(MEGALITH_SOURCE_DIR) + "/examples/loops/" + file);
}

inline constexpr const char* kTransposition =
    "kernel transpose\ninput a: f32[n, m]\noutput b: f32[m, n]\nassume n >= 1 and m >= 1\n"
    "{ [i, j] : 0 <= i < n and 0 <= j < m }\n";

}  // namespace megalith::jit
