// `megalith loops`: a scheduled loop kernel on random numbers of given sizes, held against the interpreter, counted, timed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "megalith/runtime/loop_kernel.h"

namespace megalith::tools {

using LoopSizes = std::map<std::string, int64_t>;

/// "n=1024,m=64", with k and K, m and M as in other numbers. UsageError for what does not read.
LoopSizes parse_loop_sizes(const std::string& text);

/// Operations and accesses, a line each.
std::string count_text(const runtime::LoopKernel& kernel, const LoopSizes& sizes);
/// Assembly of what is compiled for the sizes: a CPU's, or PTX.
std::string assembly_text(const runtime::LoopKernel& kernel, const LoopSizes& sizes, const std::string& target);
/// Runs it, and the kernel without its schedule in the interpreter. UserError naming the element that is wrong.
std::string check_text(const runtime::LoopKernel& kernel, const LoopSizes& sizes, const std::string& target);
/// Times it, beside a copy of as many bytes and, on a CPU, beside how fast a core multiplies.
std::string bench_text(const runtime::LoopKernel& kernel, const LoopSizes& sizes, const std::string& target);

}  // namespace megalith::tools
