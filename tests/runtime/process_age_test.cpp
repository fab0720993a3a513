#include "megalith/runtime/process_age.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace megalith::runtime {
namespace {

TEST(ProcessAge, GrowsWithTime) {
  const double before = process_age_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const double after = process_age_ms();
  EXPECT_GT(before, 0);
  EXPECT_LT(before, 3'600'000) << "an hour ago there was no test yet";
  EXPECT_GE(after - before, 60);
  EXPECT_EQ(process_age_ms("/nowhere"), 0);
}

}  // namespace
}  // namespace megalith::runtime
