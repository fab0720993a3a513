// What becomes of text that others wrote, on its way into messages.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megalith/base/first_lines.h"
#include "megalith/base/json_reason.h"
#include "megalith/base/plain_text.h"
#include "megalith/base/printable.h"

namespace megalith {
namespace {

std::string reason_of(const std::string& text) {
  try {
    nlohmann::json::parse(text).at("name").get<std::string>();
  } catch (const nlohmann::json::exception& error) { return json_reason(error.what()); }
  return "";
}

TEST(JsonReason, HasNoneOfTheLibrarysNames) {
  EXPECT_EQ(reason_of("# Megalith"), "line 1, column 1: invalid literal; last read: '#'");
  EXPECT_EQ(reason_of("{\n \"a\": 1"), "line 2, column 8: unexpected end of input; expected '}'");
  EXPECT_EQ(reason_of("{}"), "key 'name' not found");
  EXPECT_EQ(reason_of(R"({"name": 1})"), "type must be string, but is number");
  EXPECT_EQ(json_reason("something else"), "something else");
}

TEST(Printable, ShowsControlCharactersAndLeavesTheRest) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("\033[2Jred\r\x7f"), "\\x1b[2Jred\\x0d\\x7f");
  EXPECT_EQ(printable("König \xc2\x9b"
                      "31m"),
            "König \\x9b31m");
  EXPECT_EQ(printable(std::string("\0x\xff\xc2", 4)), "\\x00x\\xff\\xc2");  // in some terminals these are controls, too
}

TEST(Printable, ShowsWhatChangesTheOrderOfReading) {
  EXPECT_EQ(printable("a\u202eb\u2066c\u2028d\u2029"), "a\\u202eb\\u2066c\\u2028d\\u2029");
  // Text of right-to-left languages and joined emoji stay.
  const std::string text = "שלום \u200f مرحبا 👩\u200d👧 e\u0301";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, OfALineHasNoNewlines) { EXPECT_EQ(printable_line("a\nb\tc\r"), "a\\nb\tc\\x0d"); }

TEST(Shortened, KeepsBothEndsAndCutsNoCharacter) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("0123456789abcdef", 8), "012345... (8 bytes left out) ...ef");
  EXPECT_EQ(shortened("éééééééé", 8), "ééé... (8 bytes left out) ...é");
  EXPECT_EQ(shortened("ééééééééé", 7), "é... (16 bytes left out) ...");
  EXPECT_EQ(shortened("ab", 0), "... (2 bytes left out) ...");
}

TEST(PlainText, IsOneLineOfAsciiThatTellsNamesApart) {
  EXPECT_EQ(plain_text("Qwen3-8B (bf16)"), "Qwen3-8B (bf16)");
  EXPECT_EQ(plain_text("a\rb\nc\\"), "a\\x0db\\x0ac\\x5c");
  EXPECT_EQ(plain_text("\xe2\x80\xa8\f\v\x7f"), "\\xe2\\x80\\xa8\\x0c\\x0b\\x7f");
  EXPECT_EQ(plain_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(plain_text("x y", " "), "x\\x20y");
  EXPECT_NE(plain_text("a\nb"), plain_text("a\\x0ab"));
}

TEST(Identifier, IsANameInAnyLanguage) {
  for (const char* name : {"x", "_", "layer_3", "X9"}) EXPECT_TRUE(is_identifier(name)) << name;
  for (const char* name : {"", "3x", "a b", "a-b", "a\n", "\xc3\xa9", "a;b", "a\rb"})
    EXPECT_FALSE(is_identifier(name)) << name;
}

TEST(FirstLines, SayHowManyMoreThereAre) {
  EXPECT_EQ(first_lines("a\nb\nc\n", 2), "a\nb\n... 1 more lines\n");
  EXPECT_EQ(first_lines("a\nb\n", 2), "a\nb\n");
  EXPECT_EQ(first_lines("a\nb", 5), "a\nb");
  EXPECT_EQ(first_lines("", 5), "");
  EXPECT_EQ(first_lines(std::string(1000, 'x') + "\ny\n", 1).size(), 300 + 28 + 100 + 1 + 17u);
}

}  // namespace
}  // namespace megalith
