#include "megalith/engine/record_pace.h"

#include <gtest/gtest.h>

namespace megalith::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
constexpr RecordPace::Nanoseconds kNow{0};

TEST(RecordPace, LooksNowAndThenWhereItKnowsNothing) {
  RecordPace pace;
  EXPECT_EQ(pace.rest(milliseconds(7)), RecordPace::kPoll);
  pace.note(milliseconds(3600'000));  // a first record, an hour after the clock began
  EXPECT_EQ(pace.rest(milliseconds(3600'001)), RecordPace::kPoll);
}

TEST(RecordPace, SleepsUntilShortlyBeforeAStepEnds) {
  RecordPace pace;
  for (const int ms : {10, 14, 18})
    for (const int sequence : {0, 1, 2}) pace.note(milliseconds(ms) + microseconds(5 * sequence));
  const auto rest = [&](int us) { return pace.rest(milliseconds(18) + microseconds(us)); };
  EXPECT_EQ(rest(500), RecordPace::kLongest);
  EXPECT_GT(rest(2900), kNow);
  EXPECT_LT(rest(2900), RecordPace::kLongest);
  EXPECT_EQ(rest(3100), kNow) << "a quarter of a step ahead";
  EXPECT_EQ(rest(4900), kNow);
  EXPECT_EQ(rest(5100), RecordPace::kPoll) << "this step is another one";
}

TEST(RecordPace, IsNotMisledByOneLongStep) {
  RecordPace pace;
  for (const int ms : {4, 8, 12, 26}) pace.note(milliseconds(ms));  // the last one with a prompt
  EXPECT_EQ(pace.rest(milliseconds(29) + microseconds(500)), kNow);
  pace.note(milliseconds(30));
  EXPECT_EQ(pace.rest(milliseconds(34)), kNow);
  // Steps that stay long are known after two.
  for (const int ms : {44, 58}) pace.note(milliseconds(ms));
  EXPECT_EQ(pace.rest(milliseconds(62)), RecordPace::kLongest);
}

TEST(RecordPace, NeverSleepsOverAShortStep) {
  RecordPace pace;
  for (const int us : {1000, 1300, 1600}) pace.note(microseconds(us));
  for (const int us : {1, 100, 290, 400}) EXPECT_EQ(pace.rest(microseconds(1600 + us)), kNow) << us;
  EXPECT_EQ(pace.rest(microseconds(1600 + 800)), RecordPace::kPoll);
}

}  // namespace
}  // namespace megalith::engine
