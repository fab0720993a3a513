// For targets whose texts reach isl's reader. It forgets a token of 35 bytes where a set is cut off behind a bound
// ("{ [i] : S 0 <=<= i }"). To be told from leaks of ours it has to be seen who allocated, which takes the slower way
// through the stack.
#pragma once

#ifndef LLVMFuzzerTestOneInput  // has other names in test_fuzz, where replay_test.cpp says this for all targets
extern "C" const char* __lsan_default_suppressions() { return "leak:isl_stream_read_"; }
extern "C" const char* __asan_default_options() { return "fast_unwind_on_malloc=0"; }
#endif
