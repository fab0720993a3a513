#include "megalith/model/tokenizer.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    const Tokenizer tokenizer = Tokenizer::parse(text, "tokenizer.json");
    tokenizer.decode(tokenizer.encode("Hello <s> world's 123 \u00e9\u0301\n\n \u65e5\u672c"));
    tokenizer.encode(std::vector<TextSegment>{{"<s>a", false}, {"b<s> \u00e9", true}, {"</s>", false}});
  });
}
