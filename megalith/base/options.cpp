#include "megalith/base/options.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "megalith/base/error.h"

namespace megalith {

namespace {
constexpr Option kOptions[] = {
    {"MEGALITH_CACHE_DIR", "",
     "Where compiled kernels are kept; default $XDG_CACHE_HOME/megalith or ~/.cache/megalith."},
    {"MEGALITH_CACHE_LIMIT_MB", "2048", "Size at which the least recently used cache entries are deleted, in MiB."},
    {"MEGALITH_ALWAYS_COMPILE", "0", "1: ignore cache entries (they are still written)."},
    {"MEGALITH_CXX", "", "C++ compiler for CPU kernels; default the first of c++, g++, clang++ on the PATH."},
    {"MEGALITH_CUDA_DRIVER", "", "The driver's library, as a path; default the system's libcuda.so.1."},
    {"MEGALITH_DISABLE", "", "Rules of fusion that are not to be used, with commas between (docs/design.md)."},
    {"MEGALITH_DUMP", "", "Directory into which every stage writes its artifact."},
    {"MEGALITH_OVERRIDE", "", "Directory whose artifacts replace those of the stages with the same file names."},
    {"MEGALITH_OPTIMIZE", "full",
     "How far kernels are optimised: full, or little, which compiles them in a third of the time (for a GPU with NVRTC "
     "13); on a CPU they calculate the same bits and take half as long again, or more."},
    {"MEGALITH_PRODUCTS", "auto",
     "What a CPU multiplies with weights in bf16: f32, bf16 (rounded to it first), amx (likewise, by tiles), or auto, "
     "which is what it is fastest with."},
    {"MEGALITH_INTERPRET", "0",
     "1: loop kernels of one's own that are made from now on are run by the interpreter, in float64 "
     "(docs/loops-python.md)."},
    {"MEGALITH_NVJITLINK", "", "nvJitLink's library, as a path; default the first that is found. Only for edited PTX."},
    {"MEGALITH_NVRTC", "", "NVRTC's library, as a path; default the first that is found."},
    {"MEGALITH_LOG", "warn", "What is logged to stderr: quiet, warn, info or debug."},
    {"MEGALITH_RACECHECK", "0",
     "1: GPU kernels for compute-sanitizer's racecheck, in which each thread arrives at barriers itself."},
    {"MEGALITH_SIDES", "1", "0: weights and caches are not distributed over the two partitions of a GPU's L2."},
    {"MEGALITH_TARGET", "",
     "What models run on if nobody says it, such as cpu; default the GPU of this machine if it has one."},
    {"MEGALITH_THREADS", "", "Worker threads of a CPU kernel; default one for every core this process may use."},
    {"MEGALITH_WATCHDOG_MS", "10000", "Time without progress after which a running kernel counts as hung, in ms."},
    {"NO_COLOR", "", "Set to anything: no colours on the terminal."},
};

const Option& find(const char* name) {
  for (const Option& option : kOptions)
    if (std::strcmp(option.name, name) == 0) return option;
  throw InternalError(fmt::format("option {} is not in the table of base/options.cpp", name));
}
}  // namespace

std::span<const Option> option_table() { return kOptions; }

std::string option_value(const char* name) {
  const Option& option = find(name);
  const char* value = std::getenv(name);
  return value && *value ? value : option.default_value;
}

bool option_is_set(const char* name) {
  find(name);
  const char* value = std::getenv(name);
  return value && *value;
}

int64_t option_integer(const char* name) {
  // Mebibytes and milliseconds become bytes and nanoseconds of 64 bits.
  constexpr int64_t kMax = int64_t{1} << 40;
  std::string text = option_value(name);
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  MEGALITH_CHECK(code == std::errc() && end == text.data() + text.size() && value >= 0 && value <= kMax,
                 "{} is \"{}\", want a whole number of 0 to {}", name, text, kMax);
  return value;
}

}  // namespace megalith
