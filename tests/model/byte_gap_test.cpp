// A byte-level vocabulary need not have all 256 bytes. What `tokenizers` makes of such ones is in the goldens
// (tokenizer_test.cpp, gaps_*); here is what is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/model/tokenizer.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Tokenizer changed_tokenizer(const std::string& name, const std::function<void(json&)>& change) {
  json document = json::parse(file_read(MEGALITH_SOURCE_DIR "/tests/golden/tokenizers/" + name + ".tokenizer.json"));
  change(document);
  return Tokenizer::parse(document.dump(), "tokenizer.json");
}

TEST(ByteGapTest, AByteWithoutATokenIsDroppedBeforeMerging) {
  const Tokenizer whole = changed_tokenizer("gpt2", [](json&) {});
  const Tokenizer tokenizer = changed_tokenizer("gpt2", [](json& document) {
    document["model"]["vocab"].erase("Z");
    document["model"]["vocab"].erase("ĉ");  // a tab
  });
  EXPECT_EQ(tokenizer.encode("tZhe"), whole.encode("the")) << "what stands around it meets";
  EXPECT_EQ(tokenizer.encode("Z\tZ"), std::vector<int>{});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a Zebra\tand more")), "a ebraand more");
}

TEST(ByteGapTest, OrBecomesTheUnknownToken) {
  auto with_unknown = [](const json& fuse) {
    return changed_tokenizer("gpt2", [&](json& document) {
      document["model"]["vocab"].erase("Z");
      document["model"]["unk_token"] = "Q";
      document["model"]["fuse_unk"] = fuse;
    });
  };
  const Tokenizer apart = with_unknown(false), fused = with_unknown(true), null = with_unknown(nullptr);
  const int unknown = apart.token_id("Q").value(), a = apart.token_id("a").value();
  EXPECT_EQ(apart.encode("ZZaZ"), (std::vector<int>{unknown, unknown, a, unknown}));
  EXPECT_EQ(fused.encode("ZZaZ"), (std::vector<int>{unknown, a, unknown}));
  EXPECT_EQ(null.encode("ZZaZ"), apart.encode("ZZaZ"));
}

// Nothing depends on it until there is such text, as `tokenizers` has it.
TEST(ByteGapTest, AnUnknownTokenThatIsNoneIsToldWhenItIsNeeded) {
  for (const char* name : {"gpt2", "mistral"}) {
    const bool is_bytes = name[0] == 'g';
    const Tokenizer tokenizer = changed_tokenizer(name, [&](json& document) {
      document["model"]["vocab"].erase(is_bytes ? "Z" : "\u2581Z");
      document["model"]["unk_token"] = "<none>";
      document["model"]["byte_fallback"] = false;
    });
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("the sea")), "the sea") << name;
    EXPECT_THAT(user_error([&] { tokenizer.encode(is_bytes ? "Zoo" : "\u4e94"); }),
                HasSubstr(is_bytes ? "tokenizer.json: text with the byte 0x5A has no tokens: the vocabulary lacks it, "
                                     "and also the \"unk_token\", which is \"<none>\""
                                   : "tokenizer.json: text with \"\u4e94\" has no tokens"))
        << name;
  }
}

TEST(ByteGapTest, MergesOfTokensThatAreNotThereAreRefused) {
  EXPECT_THAT(
      user_error([] { changed_tokenizer("gpt2", [](json& document) { document["model"]["vocab"].erase("t"); }); }),
      HasSubstr("names \"t\", which is not in the vocabulary"));
}

}  // namespace
}  // namespace megalith
