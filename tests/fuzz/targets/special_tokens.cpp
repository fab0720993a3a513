#include "megalith/model/special_tokens.h"

#include <array>

#include "fuzz.h"
#include "megalith/base/file.h"
#include "megalith/model/tokenizer.h"

// Three files, with a zero byte between them, over a tokenizer that is sound.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  static const std::string json = file_read(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/gpt2.tokenizer.json");
  return fuzz::run(data, size, [](std::string_view text) {
    std::array<std::string_view, 3> files;
    for (std::string_view& file : files) {
      file = text.substr(0, text.find('\0'));
      text.remove_prefix(std::min(text.size(), file.size() + 1));
    }
    const Tokenizer tokenizer =
        Tokenizer::parse(json, "tokenizer.json", SpecialTokens::parse(files[0], files[1], files[2]));
    tokenizer.decode(tokenizer.encode("a<s>b</s> <|x|>"));
    tokenizer.encode(std::vector<TextSegment>{{"<s>a", false}, {"b<s> </s>", true}}, true, {3, 641});
  });
}
