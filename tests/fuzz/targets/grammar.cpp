#include "megalith/grammar/grammar.h"

#include "fuzz.h"

// The first byte says of which kind the rest is: a schema, an expression, rules, a structural tag.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    static const Tokenizer tokenizer = Tokenizer::open(MEGALITH_SOURCE_DIR "/models/storyteller");
    static grammar::GrammarCompiler compiler(
        tokenizer, tokenizer.vocab_size(),
        {.text_bytes = 64 << 10, .grammar_bytes = 64 << 20, .processor_ms = 300, .cache_bytes = 0});
    constexpr grammar::GrammarKind kKinds[] = {grammar::GrammarKind::json_schema, grammar::GrammarKind::regex,
                                               grammar::GrammarKind::ebnf, grammar::GrammarKind::tag};
    if (text.empty()) return;
    const auto grammar =
        compiler.compile({kKinds[static_cast<unsigned char>(text[0]) % 4], std::string(text.substr(1))});
    grammar::Matcher matcher({.grammar = grammar}, {0});
    std::vector<uint32_t> mask(static_cast<size_t>(grammar::mask_words(tokenizer.vocab_size())));
    for (int i = 0; i < 20 && matcher.failure().empty(); ++i) {
      matcher.fill(mask.data());
      int token = 1 + i * 37 % 4000;
      const auto is_allowed = [&] { return (mask[static_cast<size_t>(token / 32)] >> token % 32 & 1) != 0; };
      for (int tried = 0; tried < tokenizer.vocab_size() && !is_allowed(); ++tried)
        token = (token + 1) % tokenizer.vocab_size();
      if (token == 0) return;
      matcher.accept(token);
    }
  });
}
