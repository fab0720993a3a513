#include "megalith/task/bytes.h"
#include "megalith/task/verify.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view bytes) {
    const task::TaskGraph graph = task::from_bytes(bytes);
    task::verify(graph);
    const std::string written = task::to_bytes(graph);
    MEGALITH_ASSERT(task::to_bytes(task::from_bytes(written)) == written, "written again they differ");
  });
}
