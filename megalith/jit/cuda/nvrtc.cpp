#include "megalith/jit/cuda/nvrtc.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/first_lines.h"
#include "megalith/base/options.h"
#include "megalith/base/printable.h"
#include "megalith/jit/cuda/fetch.h"
#include "megalith/jit/cuda/shared_library.h"
#include "megalith/jit/patience.h"
#include "megalith/jit/stage.h"

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

}  // namespace

std::string KernelResources::text() const {
  std::string spilled;
  for (const auto& [function, bytes] : spills)
    spilled += fmt::format("{}{} bytes of spills in {}", spilled.empty() ? "" : ", ", bytes, function);
  return fmt::format("{} registers, {} bytes of shared memory, {} bytes of stack, {}{}", registers, shared_bytes,
                     stack_bytes, spilled.empty() ? "no spills" : spilled,
                     multiplies_one_by_one ? ", tensor cores multiply one by one" : "");
}

// The assembler says "Used 72 registers", "48 bytes stack frame", "8 bytes spill stores", ...: a number, then what of.
// A line before the spills names whose they are.
KernelResources parse_resources(const std::string& log) {
  constexpr std::string_view kFunction = "Function properties for ";
  KernelResources resources;
  resources.multiplies_one_by_one = log.find("wgmma.mma_async instructions are serialized") != std::string::npos;
  for (size_t at = 0; (at = log.find_first_of("0123456789", at)) != std::string::npos;) {
    const size_t end = std::min(log.find_first_not_of("0123456789", at), log.size());
    const std::string_view after = std::string_view(log).substr(end);
    int number = 0;
    std::from_chars(log.data() + at, log.data() + end, number);
    auto keep_largest = [&](int& of) { of = std::max(of, number); };
    if (after.starts_with(" registers")) keep_largest(resources.registers);
    if (after.starts_with(" bytes smem")) keep_largest(resources.shared_bytes);
    if (after.starts_with(" bytes stack") || after.starts_with(" bytes cumulative stack"))
      keep_largest(resources.stack_bytes);
    if (after.starts_with(" bytes spill") && number > 0) {
      if (const size_t name = log.rfind(kFunction, at); name != std::string::npos) {
        const size_t begin = name + kFunction.size();
        resources.spills[log.substr(begin, log.find_first_of(" \n", begin) - begin)] += number;
      }
    }
    at = end;
  }
  return resources;
}

bool is_cubin(std::string_view bytes) { return bytes.starts_with("\177ELF"); }

std::string nvrtc_version() {
  const Nvrtc& nvrtc = Nvrtc::get();
  int major = 0, minor = 0;
  nvrtc.version(&major, &minor);
  return fmt::format("NVRTC {}.{} ({})", major, minor, nvrtc.library.file());
}

int nvrtc_major() {
  int major = 0, minor = 0;
  Nvrtc::get().version(&major, &minor);
  return major;
}

void open_nvrtc() noexcept {
  try {
    Nvrtc::get();
  } catch (const std::exception&) {}
}

std::string nvrtc_identity() { return Nvrtc::get().library.identity(); }

namespace {

NvrtcResult compile(const std::string& source, const std::string& name, const std::string& architecture,
                    const std::vector<std::string>& flags) {
  const Nvrtc& nvrtc = Nvrtc::get();
  Program program = nullptr;
  Code code = nvrtc.create(&program, source.c_str(), (file_name_of(name) + ".cu").c_str(), 0, nullptr, nullptr);
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
    throw SystemError(Lines{fmt::format("[cuda] NVRTC does not compile \"{}\" for {}: {}\n{}", printable_line(name),
                                        architecture, nvrtc.error_string(code), first_lines(result.log, 20))});
  result.ptx = fetch(program, nvrtc.ptx_size, nvrtc.ptx);
  while (!result.ptx.empty() && result.ptx.back() == '\0') result.ptx.pop_back();
  if (!architecture.starts_with("sm_")) return result;
  result.cubin = fetch(program, nvrtc.cubin_size, nvrtc.cubin);
  if (!is_cubin(result.cubin))
    throw SystemError(
        fmt::format("[cuda] {} compiled \"{}\" for {} without an error, but gave no machine code ({} bytes): does it "
                    "know that GPU? MEGALITH_NVRTC may name another one",
                    nvrtc_version(), name, architecture, result.cubin.size()));
  result.resources = parse_resources(result.log);
  return result;
}

}  // namespace

NvrtcResult nvrtc_compile(const std::string& source, const std::string& name, const std::string& architecture,
                          const std::vector<std::string>& flags, const std::atomic<bool>* over) {
  const auto result = std::make_shared<NvrtcResult>();
  call_patiently(fmt::format("NVRTC's work on \"{}\"", name),
                 [=] { *result = compile(source, name, architecture, flags); }, {.is_over = over});
  return std::move(*result);
}

}  // namespace megalith::jit
