#include "megalith/model/chat_template.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    const ChatTemplate chat = ChatTemplate::parse(text, "template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    chat.render({{"system", "Be kind."}, {"user", " Hello\n"}, {"assistant", "<think>\nhm\n</think>\n\nHi"}},
                {.now = 0});
  });
}
