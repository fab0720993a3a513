#include "megalith/task/json.h"
#include "megalith/task/verify.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    const task::TaskGraph graph = task::from_json(text);
    task::verify(graph);
    const std::string written = task::to_json(graph);
    MEGALITH_ASSERT(task::to_json(task::from_json(written)) == written, "written again it differs:\n{}", written);
  });
}
