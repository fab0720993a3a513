// What the host writes for a kernel before a launch.
#include "megalith/engine/batch_block.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace megalith::engine {
namespace {

TEST(BatchBlock, ARequestTakesThePagesOfItsLengthAtMost) {
  const DecoderOptions options{.max_requests = 2, .max_seq_len = 64, .page_size = 16};
  const std::vector<int> prompt(20);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 1}), 2);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 12}), 2);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 13}), 3);
  EXPECT_EQ(pages_needed(options, {.prompt = prompt, .max_new_tokens = 1000}), 4);
}

// The sum of both overflowed: a negative limit, no pages, and another request's cache overwritten.
TEST(BatchBlock, TheLargestNumberOfTokensIsAsManyAsThereIsRoomFor) {
  const DecoderOptions options{.max_requests = 2, .max_seq_len = 64, .page_size = 16};
  for (const int64_t most : {INT64_MAX, INT64_MAX - 10})
    EXPECT_EQ(pages_needed(options, {.prompt = std::vector<int>(20), .max_new_tokens = most}), 4);
}

}  // namespace
}  // namespace megalith::engine
