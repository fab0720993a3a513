#include "megalith/model/encode_budget.h"

#include <time.h>

#include <algorithm>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// What normalizing may make of a byte. NFKD makes eleven of one at most (U+FDFA), "▁" for a space is three.
constexpr size_t kMaxGrowth = 16;
// So that short texts may have prefixes.
constexpr size_t kMaxGrowthOfAny = 1 << 16;
// However long it was: what is merged takes 60 times as much memory.
constexpr size_t kMaxNormalizedBytes = 2 * kMaxTextBytes;
// Published tokenizers take some 50 ns for a byte.
constexpr std::chrono::microseconds kTimePerByte{2};
constexpr std::chrono::seconds kTimeOfAny{2};

// What others do on this machine does not count.
std::chrono::nanoseconds thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

EncodeBudget::EncodeBudget(size_t text_bytes)
    : text_bytes_(text_bytes),
      most_bytes_(std::min(text_bytes * kMaxGrowth + kMaxGrowthOfAny, kMaxNormalizedBytes)),
      begin_(thread_time()),
      most_(kTimeOfAny + text_bytes * kTimePerByte),
      next_look_(Clock::now() + most_) {
  MEGALITH_CHECK(text_bytes <= kMaxTextBytes, "a text of {} bytes is too long to tokenize, at most {} can be",
                 text_bytes, kMaxTextBytes);
}

std::chrono::steady_clock::time_point EncodeBudget::check_time() {
  const Clock::time_point now = Clock::now();
  if (now < next_look_) return now;
  const std::chrono::nanoseconds left = most_ - (thread_time() - begin_);
  next_look_ = now + left;
  if (left.count() > 0) return now;
  throw UserError(fmt::format(
      "the tokenizer takes more than {} s for a text of {} bytes: its regular expressions backtrack too much, or its "
      "added tokens are too much alike; a tokenizer.json of another source may help",
      std::chrono::duration_cast<std::chrono::seconds>(most_).count(), text_bytes_));
}

void EncodeBudget::fail_bytes() const {
  throw UserError(
      fmt::format("the tokenizer makes more than {} bytes of a text of {}: its \"normalizer\" or "
                  "\"pre_tokenizer\" multiplies text",
                  most_bytes_, text_bytes_));
}

}  // namespace megalith
