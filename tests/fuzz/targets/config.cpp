#include "megalith/model/config.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  fuzz::run(data, size, [](std::string_view text) { config_parse(text, "config.json"); });
  return fuzz::run(data, size, [](std::string_view text) { generation_config_parse(text, "generation_config.json"); });
}
