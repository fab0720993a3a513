#include "megalith/loop/text.h"

#include "fuzz.h"
#include "leak_of_isl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    const std::string printed = loop::print(loop::parse_kernel(text));
    std::string again;
    try {
      again = loop::print(loop::parse_kernel(printed));
    } catch (const UserError& error) { again = error.what(); }
    MEGALITH_ASSERT(again == printed, "printed, parsed and printed again it differs:\n{}\n{}", printed, again);
  });
}
