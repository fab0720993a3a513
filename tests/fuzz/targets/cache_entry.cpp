#include "megalith/jit/cache_entry.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    const std::string written = jit::to_json(jit::entry_info_from_json(text));
    MEGALITH_ASSERT(jit::to_json(jit::entry_info_from_json(written)) == written, "written again it differs:\n{}",
                    written);
  });
}
