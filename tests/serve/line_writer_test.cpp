// Lines that are not taken: they wait, they are counted once too many wait, and whoever puts them never waits.
#include "megalith/serve/line_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "megalith/serve/workers.h"

namespace megalith::serve {
namespace {

using ::testing::ElementsAre;

TEST(LineWriter, WritesAllInOrderBeforeItEnds) {
  std::vector<std::string> written;
  {
    LineWriter writer([&](const std::string& line) { written.push_back(line); });
    for (const char* line : {"a", "b", "c"}) writer.put(line);
  }
  EXPECT_THAT(written, ElementsAre("a", "b", "c"));
}

TEST(LineWriter, DropsWhatIsTooMuchAndSaysSo) {
  std::vector<std::string> written;
  std::atomic<size_t> num_written = 0;
  std::promise<void> has_begun, may_go_on;
  {
    LineWriter writer(
        [&](const std::string& line) {
          if (written.empty()) {
            has_begun.set_value();
            may_go_on.get_future().wait();
          }
          written.push_back(line);
          ++num_written;
        },
        2);
    writer.put("first");
    has_begun.get_future().wait();  // and does not end
    for (const char* line : {"a", "b", "c", "d"}) writer.put(line);
    may_go_on.set_value();
    while (num_written < 5) {
      writer.put("last");  // of which one finds room again
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ASSERT_GT(written.size(), 4U);
  written.resize(4);
  EXPECT_THAT(written, ElementsAre("first", "a", "b", ::testing::MatchesRegex("\\{\"dropped_log_lines\":[0-9]+\\}")));
}

TEST(Workers, TakeNoMoreThanTheyMay) {
  Workers workers(1, 2, "a test");
  std::promise<void> has_begun, may_go_on;
  std::atomic<int> done = 0;
  EXPECT_TRUE(workers.post([&] {
    has_begun.set_value();
    may_go_on.get_future().wait();
    ++done;
  }));
  has_begun.get_future().wait();
  EXPECT_TRUE(workers.post([&] { ++done; }));
  EXPECT_TRUE(workers.post([&] { ++done; }));
  EXPECT_FALSE(workers.post([&] { ++done; }));
  may_go_on.set_value();
  while (done < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(workers.post([&] { ++done; }));
}

}  // namespace
}  // namespace megalith::serve
