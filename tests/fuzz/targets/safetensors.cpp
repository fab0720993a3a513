#include <fmt/format.h>

#include "megalith/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  const int file = memfd_create("fuzz", 0);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  const std::string link = fmt::format("/tmp/megalith-fuzz-{}.safetensors", getpid());
  unlink(link.c_str());
  if (symlink(fmt::format("/proc/{}/fd/{}", getpid(), file).c_str(), link.c_str()) == 0) {
    fuzz::run(data, size, [&](std::string_view) {
      const Weights weights = Weights::open(link);
      volatile double sum = 0;
      for (const std::string& name : weights.names()) {
        const WeightTensor& tensor = weights.get(name);
        for (int64_t i = 0; i < static_cast<int64_t>(tensor.bytes.size()) / dtype_bytes(tensor.dtype); ++i)
          sum = sum + element_load(tensor.bytes.data(), tensor.dtype, i);
      }
    });
  }
  unlink(link.c_str());
  close(file);
  return 0;
}
