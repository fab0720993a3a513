// Source in, loaded kernel out: the assemble stage for CPU targets. The only place that joins compiler, cache and
// library. A cache hit spawns no process.
//
//   jit::Build build = jit::build_shared_object({.name = "storyteller", .source = text});
//   auto* worker = build.library.function<void(const Launch*, unsigned)>("megalith_worker");
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/emit.h"
#include "megalith/jit/cache.h"
#include "megalith/jit/compiler.h"
#include "megalith/jit/library.h"
#include "megalith/jit/stage.h"

namespace megalith::jit {

struct SourceFile {
  std::string name;  // "bodies_1.cpp" is compiled, "common.h" is only there to be included
  std::string text;
};

struct BuildRequest {
  std::string name;                                  // for messages and for the reader of command.txt
  std::string source;                                // of kernel.cpp
  std::vector<SourceFile> more = {};                 // further units, compiled in parallel and linked with kernel.cpp
  std::vector<std::string> flags = default_flags();  // common_flags() come on top
  codegen::Effort effort = codegen::Effort::chosen;
};

struct Build {
  Library library;
  std::string key;
  std::string directory;  // of the cache entry: kernel.cpp, kernel.so, command.txt
  bool cache_hit = false;
  double compile_ms = 0;  // spent in the compiler; 0 on a hit
  double total_ms = 0;
};

/// Finds the kernel in the cache, or compiles and stores it; then loads it.
Build build_shared_object(const BuildRequest& request, const KernelCache& cache = KernelCache::from_environment());

/// The same as the stage "assemble" of `pipeline`, with the artifact kernel.so, which may be overridden too.
Build build_shared_object(Pipeline& pipeline, const BuildRequest& request,
                          const KernelCache& cache = KernelCache::from_environment());

/// The same request, or if it says Effort::quick and the cache has what is chosen, a request for that.
BuildRequest without_haste(BuildRequest request, const KernelCache& cache);

/// The cache key of a request on this machine: sources, compiler, flags, CPU, Megalith's version.
std::string build_key(const BuildRequest& request, const KernelCache& cache = KernelCache::from_environment());

}  // namespace megalith::jit
