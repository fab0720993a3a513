#include "megalith/serve/generation_request.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  for (const serve::Api api : {serve::Api::chat, serve::Api::completion, serve::Api::responses, serve::Api::llama})
    fuzz::run(data, size, [&](std::string_view body) { serve::read_generation_request(api, body); });
  return 0;
}
