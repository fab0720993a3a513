// UTF-8 of strangers: repaired as Unicode recommends, however it is cut.
#include "megalith/model/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace megalith {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

TEST(Utf8Test, Valid) {
  for (const char* text : {"", "a", "é", "日", "🙂", "\x7f", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(utf8_is_valid(text)) << text;
    EXPECT_EQ(utf8_repair(text), text);
  }
}

// The examples of the Unicode standard, tables 3-8 to 3-11, and the other ways to be wrong.
TEST(Utf8Test, Repair) {
  EXPECT_EQ(utf8_repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                        "A"),
            kBad + kBad + kBad + kBad + kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(utf8_repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                        "A"),
            kBad + kBad + kBad + kBad + kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(utf8_repair("\xF4\x91\x92\x93\xFF"
                        "A\x80\xBF"
                        "B"),
            kBad + kBad + kBad + kBad + kBad + "A" + kBad + kBad + "B");
  EXPECT_EQ(utf8_repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                        "A"),
            kBad + kBad + kBad + kBad + "A");
  EXPECT_EQ(utf8_repair("a\xE6\x97"), "a" + kBad);
  EXPECT_EQ(utf8_repair("\xF5\x80"), kBad + kBad);
}

TEST(Utf8Test, CodePoints) {
  for (char32_t c : {U'\0', U'a', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\xffff', U'\x10000', U'\x10ffff'}) {
    std::string text = "x";
    utf8_append(text, c);
    EXPECT_EQ(utf8_last(text), 1u);
    EXPECT_EQ(utf8_code_point(text.substr(1)), c);
    EXPECT_EQ(utf8_next(text.substr(1)), static_cast<int>(text.size() - 1));
  }
}

// Any bytes, cut anywhere: every piece is valid, and together they are the repaired whole.
TEST(Utf8Test, StreamEqualsRepair) {
  std::mt19937 random(1);
  const std::string alphabet = "a\x80\xBF\xC3\xA9\xE6\x97\xA5\xF0\x9F\x99\x82\xED\xFF\xF4";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t n = random() % 24; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    Utf8Stream stream;
    std::string joined;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t length = 1 + random() % 5;
      const std::string piece = stream.push(std::string_view(bytes).substr(begin, length));
      EXPECT_TRUE(utf8_is_valid(piece));
      joined += piece;
      begin += length;
    }
    EXPECT_EQ(joined + stream.finish(), utf8_repair(bytes));
    EXPECT_EQ(stream.finish(), "");
  }
}

}  // namespace
}  // namespace megalith
