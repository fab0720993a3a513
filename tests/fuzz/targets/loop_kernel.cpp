#include "megalith/loop/text.h"

#include "fuzz.h"

// isl's reader forgets a token of 35 bytes where a set is cut off behind a bound ("{ [i] : S 0 <=<= i }"). To be told
// from leaks of ours it has to be seen who allocated, which takes the slower way through the stack.
extern "C" const char* __lsan_default_suppressions() { return "leak:isl_stream_read_"; }
extern "C" const char* __asan_default_options() { return "fast_unwind_on_malloc=0"; }

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
