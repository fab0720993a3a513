// The system's C++ compiler: finding it, asking its version once, and running it. Kernels are compiled for the machine
// that runs them by a command that anyone can repeat by hand.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/progress.h"
#include "megalith/codegen/emit.h"
#include "megalith/jit/cache.h"
#include "megalith/jit/process.h"

namespace megalith::jit {

struct Compiler {
  std::vector<std::string> command;  // absolute path, then arguments if MEGALITH_CXX has some ("ccache g++")
  std::string version;               // first line of --version
  std::string variables = {};        // that say where it looks for files besides: "CPATH=/a\n"
};

/// MEGALITH_CXX, else the first of c++, g++, clang++ on the PATH. The version is remembered in the cache by path, time
/// and size of the program, so that a cache hit starts no process.
Compiler compiler_find(const KernelCache& cache);

/// What a source is compiled with if its request does not say otherwise.
std::vector<std::string> default_flags();
/// What every kernel is compiled with by `compiler` besides: -march=native, warnings, how far it is optimised, what
/// products multiply, and -fsanitize as this build has it.
std::vector<std::string> common_flags(const Compiler& compiler, codegen::Effort effort = codegen::Effort::chosen);

/// What -march=native depends on: vendor, model and feature bits of this CPU. Part of the cache key.
const std::string& cpu_features();
/// The directory to compile in cannot be written: another one may do.
struct WorkspaceError : SystemError {
  using SystemError::SystemError;
};

struct CompileResult {
  ProcessResult process;             // of the command that failed, or the last one
  std::vector<std::string> command;  // that one
  double ms = 0;                     // for all
};

/// Compiles `units` (.cpp files in `directory`) to `output` there: one command for one unit, else one for each unit in
/// parallel and one to link. All commands go to command.txt; `progress` advances with each unit. WorkspaceError if the
/// directory cannot be written. If this process ends meanwhile, the directory is deleted.
CompileResult compile_units(const Compiler& compiler, const std::vector<std::string>& flags,
                            const std::string& directory, const std::vector<std::string>& units,
                            const std::string& output, Progress* progress = nullptr, PatienceLimits limits = {});

}  // namespace megalith::jit
