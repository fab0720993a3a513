#include "megalith/jit/cuda/nvrtc.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <regex>

#include "megalith/base/error.h"
#include "megalith/base/options.h"
#include "megalith/jit/cuda/shared_library.h"

namespace megalith::jit {

namespace {

using Program = void*;
using Code = int;  // nvrtcResult; 0 is success

struct Nvrtc {
  SharedLibrary library;
  Code (*version)(int*, int*);
  const char* (*error_string)(Code);
  Code (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  Code (*destroy)(Program*);
  Code (*compile)(Program, int, const char* const*);
  Code (*log_size)(Program, size_t*);
  Code (*log)(Program, char*);
  Code (*ptx_size)(Program, size_t*);
  Code (*ptx)(Program, char*);
  Code (*cubin_size)(Program, size_t*);
  Code (*cubin)(Program, char*);

  static SharedLibrary open() {
    const std::string advice =
        "install the CUDA toolkit or \"pip install nvidia-cuda-nvrtc\", or set CUDA_HOME or MEGALITH_NVRTC";
    if (option_is_set("MEGALITH_NVRTC"))
      return SharedLibrary::named(option_value("MEGALITH_NVRTC"), "MEGALITH_NVRTC", advice);
    return SharedLibrary({"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"}, cuda_library_folders(), advice);
  }

  Nvrtc() : library(open()) {
    library.bind(version, "nvrtcVersion");
    library.bind(error_string, "nvrtcGetErrorString");
    library.bind(create, "nvrtcCreateProgram");
    library.bind(destroy, "nvrtcDestroyProgram");
    library.bind(compile, "nvrtcCompileProgram");
    library.bind(log_size, "nvrtcGetProgramLogSize");
    library.bind(log, "nvrtcGetProgramLog");
    library.bind(ptx_size, "nvrtcGetPTXSize");
    library.bind(ptx, "nvrtcGetPTX");
    library.bind(cubin_size, "nvrtcGetCUBINSize");
    library.bind(cubin, "nvrtcGetCUBIN");
  }

  static const Nvrtc& get() {
    static const Nvrtc nvrtc;
    return nvrtc;
  }
};

std::string fetch(Program program, Code (*size)(Program, size_t*), Code (*content)(Program, char*)) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return "";
  std::string text(bytes, '\0');
  return content(program, text.data()) == 0 ? text : "";
}

std::string first_lines(const std::string& text, int count) {
  size_t end = 0;
  for (int i = 0; i < count && end < text.size(); ++i) end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end);
}

}  // namespace

std::string KernelResources::text() const {
  return fmt::format(
      "{} registers, {} bytes of shared memory, {} bytes of stack, {}", registers, shared_bytes, stack_bytes,
      spill_bytes == 0 ? "no spills" : fmt::format("{} bytes of spills in {}", spill_bytes, fmt::join(spilling, ", ")));
}

KernelResources parse_resources(const std::string& log) {
  KernelResources resources;
  auto each = [&](const char* pattern, auto&& use) {
    const std::regex regex(pattern);
    for (std::sregex_iterator at(log.begin(), log.end(), regex), end; at != end; ++at) use(std::stoi((*at)[1]));
  };
  each("Used (\\d+) registers", [&](int n) { resources.registers = std::max(resources.registers, n); });
  each("(\\d+) bytes smem", [&](int n) { resources.shared_bytes = std::max(resources.shared_bytes, n); });
  each("(\\d+) bytes (?:cumulative )?stack",
       [&](int n) { resources.stack_bytes = std::max(resources.stack_bytes, n); });
  const std::regex function("Function properties for (\\S+)\n.*?(\\d+) bytes spill stores, (\\d+) bytes spill loads");
  for (std::sregex_iterator at(log.begin(), log.end(), function), end; at != end; ++at) {
    const int bytes = std::stoi((*at)[2]) + std::stoi((*at)[3]);
    resources.spill_bytes += bytes;
    if (bytes > 0) resources.spilling.push_back((*at)[1]);
  }
  return resources;
}

std::string nvrtc_version() {
  const Nvrtc& nvrtc = Nvrtc::get();
  int major = 0, minor = 0;
  nvrtc.version(&major, &minor);
  return fmt::format("NVRTC {}.{} ({})", major, minor, nvrtc.library.path());
}

NvrtcResult nvrtc_compile(const std::string& source, const std::string& name, const std::string& architecture,
                          const std::vector<std::string>& flags) {
  const Nvrtc& nvrtc = Nvrtc::get();
  Program program = nullptr;
  Code code = nvrtc.create(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  if (code != 0)
    throw SystemError(fmt::format("[cuda] NVRTC makes no program of \"{}\": {}", name, nvrtc.error_string(code)));
  struct Destroyer {
    const Nvrtc& nvrtc;
    Program& program;
    ~Destroyer() { nvrtc.destroy(&program); }
  } destroyer{nvrtc, program};

  std::vector<std::string> words = flags;
  words.push_back("--gpu-architecture=" + architecture);
  words.push_back("--ptxas-options=-v");
  std::vector<const char*> options;
  for (const std::string& word : words) options.push_back(word.c_str());
  code = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  NvrtcResult result;
  result.log = fetch(program, nvrtc.log_size, nvrtc.log);
  if (code != 0)
    throw SystemError(fmt::format("[cuda] NVRTC does not compile \"{}\" for {}: {}\n{}", name, architecture,
                                  nvrtc.error_string(code), first_lines(result.log, 20)));
  result.ptx = fetch(program, nvrtc.ptx_size, nvrtc.ptx);
  while (!result.ptx.empty() && result.ptx.back() == '\0') result.ptx.pop_back();
  result.cubin = fetch(program, nvrtc.cubin_size, nvrtc.cubin);
  result.resources = parse_resources(result.log);
  return result;
}

}  // namespace megalith::jit
