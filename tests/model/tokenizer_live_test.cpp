// Ten thousand random texts for each style of tokenizer, here and in Hugging Face's `tokenizers`, where python3 can
// import it: put a virtual environment that has it first in PATH.
#include <gtest/gtest.h>
#include <stdio.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "megalith/model/tokenizer.h"

namespace megalith {
namespace {

using nlohmann::json;

class TokenizerLiveTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerLiveTest, EqualsTokenizers) {
  if (system("python3 -c 'import tokenizers' 2> /dev/null") != 0)
    GTEST_SKIP() << "[SKIP] python3 has no tokenizers: pip install tokenizers";
  constexpr size_t kTexts = 10'000;
  const std::string root = MEGALITH_SOURCE_DIR;
  const Tokenizer tokenizer = Tokenizer::open(root + "/tests/golden/tokenizers/" + GetParam() + ".tokenizer.json");
  const std::string command = "python3 '" + root + "/tools/make_tokenizer_goldens.py' --live " + GetParam() +
                              " --count " + std::to_string(kTexts);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  ASSERT_TRUE(pipe);

  size_t texts = 0, different = 0;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, pipe.get()) > 0 && different < 20) {
    const json row = json::parse(line);
    const std::vector<int> ids = tokenizer.encode(row[0].get_ref<const std::string&>());
    const bool same = ids == row[1].get<std::vector<int>>() && tokenizer.decode(ids) == row[2].get<std::string>();
    EXPECT_TRUE(same) << row[0] << "\n  ids here:  " << json(ids) << "\n  ids there: " << row[1]
                      << "\n  text here:  " << json(tokenizer.decode(ids)) << "\n  text there: " << row[2];
    different += !same;
    ++texts;
  }
  free(line);
  EXPECT_EQ(texts, kTexts);
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenizerLiveTest,
                         testing::Values("gpt2", "qwen2", "llama3", "mixed", "gpt4o", "llama2", "mistral", "characters",
                                         "gaps_dropped", "gaps_unknown", "gaps_fused", "gaps_fallback"),
                         [](const auto& style) { return std::string(style.param); });

}  // namespace
}  // namespace megalith
