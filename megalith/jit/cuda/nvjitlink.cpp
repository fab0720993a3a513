#include "megalith/jit/cuda/nvjitlink.h"

#include <memory>

#include "megalith/base/error.h"
#include "megalith/base/options.h"
#include "megalith/jit/cuda/fetch.h"
#include "megalith/jit/cuda/shared_library.h"
#include "megalith/jit/patience.h"
#include "megalith/jit/stage.h"

namespace megalith::jit {

namespace {

using Handle = void*;
using Code = int;  // nvJitLinkResult; 0 is success

constexpr int kInputPtx = 2;
constexpr size_t kLogShown = 2000;

struct NvJitLink {
  SharedLibrary library;
  Code (*create)(Handle*, unsigned, const char**);
  Code (*destroy)(Handle*);
  Code (*add)(Handle, int, const void*, size_t, const char*);
  Code (*complete)(Handle);
  Code (*cubin_size)(Handle, size_t*);
  Code (*cubin)(Handle, void*);
  Code (*error_log_size)(Handle, size_t*);
  Code (*error_log)(Handle, char*);
  Code (*info_log_size)(Handle, size_t*);
  Code (*info_log)(Handle, char*);

  static SharedLibrary open() {
    const std::string advice =
        "an edited PTX (MEGALITH_OVERRIDE) needs it: install the CUDA toolkit or \"pip install nvidia-nvjitlink\", or "
        "set CUDA_HOME or MEGALITH_NVJITLINK";
    if (option_is_set("MEGALITH_NVJITLINK"))
      return SharedLibrary::named(option_value("MEGALITH_NVJITLINK"), "MEGALITH_NVJITLINK", advice);
    return SharedLibrary({"libnvJitLink.so", "libnvJitLink.so.13", "libnvJitLink.so.12"}, cuda_library_folders(),
                         advice);
  }

  NvJitLink() : library(open()) {
    library.bind(create, "nvJitLinkCreate");
    library.bind(destroy, "nvJitLinkDestroy");
    library.bind(add, "nvJitLinkAddData");
    library.bind(complete, "nvJitLinkComplete");
    library.bind(cubin_size, "nvJitLinkGetLinkedCubinSize");
    library.bind(cubin, "nvJitLinkGetLinkedCubin");
    library.bind(error_log_size, "nvJitLinkGetErrorLogSize");
    library.bind(error_log, "nvJitLinkGetErrorLog");
    library.bind(info_log_size, "nvJitLinkGetInfoLogSize");
    library.bind(info_log, "nvJitLinkGetInfoLog");
  }
};

AssembledPtx assemble(const std::string& ptx, const std::string& name, const std::string& architecture) {
  const NvJitLink library;
  const std::string target = "-arch=" + architecture;
  const char* options[] = {target.c_str(), "-verbose"};
  Handle handle = nullptr;
  const Code made = library.create(&handle, 2, options);
  if (made != 0)
    throw SystemError(fmt::format("[cuda] {} does not assemble for {} (error {}): it may be too old for it",
                                  library.library.path(), architecture, made));
  struct Destroyer {
    const NvJitLink& library;
    Handle& handle;
    ~Destroyer() { library.destroy(&handle); }
  } destroyer{library, handle};

  Code code = library.add(handle, kInputPtx, ptx.data(), ptx.size(), (file_name_of(name) + ".ptx").c_str());
  if (code == 0) code = library.complete(handle);
  if (code != 0)
    throw UserError(Lines{fmt::format("it does not assemble for {} (error {})\n{}", architecture, code,
                                      fetch(handle, library.error_log_size, library.error_log).substr(0, kLogShown))});
  std::string cubin = fetch(handle, library.cubin_size, library.cubin);
  MEGALITH_CHECK(is_cubin(cubin), "it assembles for {} without an error, but to no machine code ({} bytes)",
                 architecture, cubin.size());
  return {.cubin = std::move(cubin),
          .resources = parse_resources(fetch(handle, library.info_log_size, library.info_log))};
}

}  // namespace

AssembledPtx nvjitlink_assemble(const std::string& ptx, const std::string& name, const std::string& architecture) {
  const auto result = std::make_shared<AssembledPtx>();
  call_patiently(fmt::format("nvJitLink's work on \"{}\"", name), [=] { *result = assemble(ptx, name, architecture); });
  return std::move(*result);
}

}  // namespace megalith::jit
