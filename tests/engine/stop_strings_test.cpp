#include "megalith/engine/stop_strings.h"

#include <gtest/gtest.h>

namespace megalith::engine {
namespace {

TEST(StopStrings, AreFoundAcrossPieces) {
  StopStrings stops({"END", "\n\n"});
  EXPECT_EQ(stops.push("a E"), "a ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("X"), "ENX");  // it was none
  EXPECT_EQ(stops.push("b\n"), "b");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.push("\nc"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, TheFirstInTheTextCounts) {
  StopStrings stops({"two", "one"});
  EXPECT_EQ(stops.push("zero one two"), "zero ");
  EXPECT_TRUE(stops.found());
}

TEST(StopStrings, WhatIsHeldBackComesAtTheEnd) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("xaa"), "x");
  EXPECT_EQ(stops.push("a"), "a");  // "aa" may still become "aab"
  EXPECT_EQ(stops.finish(), "aa");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, OfNoneOrEmptyOnesNothingIsHeld) {
  StopStrings stops({"", ""});
  EXPECT_EQ(stops.push("text"), "text");
  EXPECT_FALSE(stops.found());
}

TEST(StopStrings, EndInWhatCounts) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("an END, an E", false, false), "an END, an ");
  EXPECT_EQ(stops.push("ND", false, false), "END");
  EXPECT_EQ(stops.push("EN", false, false), "");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.push("D."), "");  // which began before
  EXPECT_TRUE(stops.found());
}

// Every way of cutting a text into pieces shows the same.
TEST(StopStrings, DoNotDependOnHowTheTextIsCut) {
  const std::string text = "ababcababd!rest";
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    StopStrings stops({"ababd", "bcc"});
    std::string shown, piece;
    for (size_t i = 0; i < text.size(); ++i) {
      piece += text[i];
      if (i + 1 < text.size() && (cuts >> i & 1) == 0) continue;
      shown += stops.push(piece);
      piece.clear();
    }
    ASSERT_EQ(shown + stops.finish(), "ababc") << cuts;
    ASSERT_TRUE(stops.found());
  }
}

}  // namespace
}  // namespace megalith::engine
