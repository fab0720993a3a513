#include "megalith/loop/text.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) { loop::parse_kernel(text); });
}
