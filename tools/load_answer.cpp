#include "tools/load_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "megalith/base/error.h"

namespace megalith::tools {

namespace {

constexpr size_t kHeaderBytes = 32 << 10;
constexpr size_t kEventBytes = 1 << 20;    // with log-probabilities one has a few KB
constexpr size_t kBodyBytes = 1 << 20;     // of an error, or a list of models
constexpr size_t kMaxEvents = 10'000'000;  // 160 MB of times
constexpr size_t kDetailBytes = 300;

// Of an error's body what it says, if it is of OpenAI's form.
std::string message_of(const std::string& body) {
  try {
    if (const auto error = serve::read_stream_chunk(body).error) return error->substr(0, kDetailBytes);
  } catch (const UserError&) {}
  return body.substr(0, kDetailBytes);
}

}  // namespace

std::optional<double> LoadRecord::tpot_ms() const {
  const int64_t behind = output_tokens - (events.empty() ? 0 : events.front().tokens);
  if (events.size() < 2 || behind < 1) return std::nullopt;
  return (e2el_ms() - ttft_ms()) / static_cast<double>(behind);
}

LoadAnswer::LoadAnswer(bool wants_stream) : wants_stream_(wants_stream), http_(kHeaderBytes), sse_(kEventBytes) {}

void LoadAnswer::take(std::string_view bytes, double ms) {
  has_begun_ = true;
  held_ += bytes;
  while (!failure_) {
    const bool knew_head = http_.has_head();
    const size_t taken = http_.take(held_);
    held_.erase(0, taken);
    if (http_.complaint()) return fail({"bad http", *http_.complaint()});
    if (!knew_head && http_.has_head()) {
      is_stream_ = http_.status() == 200 && wants_stream_;
      if (is_stream_ && !http_.header("content-type").starts_with("text/event-stream"))
        return fail({"no stream", fmt::format("the answer is \"{}\", want text/event-stream",
                                              http_.header("content-type").substr(0, kDetailBytes))});
    }
    take_body(ms);
    if (http_.is_complete()) return end(false);
    if (knew_head == http_.has_head() && (taken == 0 || held_.empty())) return;
  }
}

void LoadAnswer::take_body(double ms) {
  const std::string piece = http_.take_body();
  if (is_over_) return;
  if (!is_stream_) {
    body_ += piece;
    if (body_.size() > kBodyBytes) fail({"too large", fmt::format("the body has more than {} bytes", kBodyBytes)});
    return;
  }
  const bool fits = sse_.take(piece, [&](std::string_view data) {
    if (is_over_) return;
    try {
      take_chunk(serve::read_stream_chunk(data), ms);
    } catch (const UserError& error) { fail({"bad event", error.what()}); }
  });
  if (!fits) fail({"too large", fmt::format("an event or a line of the stream has more than {} bytes", kEventBytes)});
}

void LoadAnswer::take_chunk(const serve::StreamChunk& chunk, double ms) {
  if (chunk.is_end) return end(true);
  if (chunk.error) return fail({"error event", chunk.error->substr(0, kDetailBytes)});
  is_finished_ |= chunk.is_finished;
  if (chunk.prompt_tokens) prompt_tokens_ = chunk.prompt_tokens;
  if (chunk.completion_tokens) output_tokens_ = chunk.completion_tokens;
  cached_tokens_ = std::max(cached_tokens_, chunk.cached_tokens.value_or(0));
  if (!chunk.has_choice) return;
  if (chunk.has_content && !chunk.completion_tokens) counts_each_ = false;
  int64_t tokens = chunk.has_content;
  if (counts_each_) {
    tokens = chunk.completion_tokens.value_or(seen_tokens_) - seen_tokens_;
    seen_tokens_ = std::max(seen_tokens_, chunk.completion_tokens.value_or(0));
  }
  if (tokens <= 0) return;
  if (events_.size() == kMaxEvents) return fail({"too large", fmt::format("the stream has {} events", kMaxEvents)});
  events_.push_back({ms, tokens});
}

void LoadAnswer::take_end() {
  if (is_over_) return;
  if (!has_begun_) return fail({"disconnected", "the server closed the connection before it answered"});
  http_.take_end();
  if (http_.complaint()) return fail({"disconnected", *http_.complaint()});
  end(false);
}

void LoadAnswer::fail(LoadFailure failure) {
  if (is_over_) return;
  failure_ = std::move(failure);
  is_over_ = true;
}

void LoadAnswer::end(bool is_marked) {
  if (is_over_) return;
  if (http_.status() != 200)
    return fail({fmt::format("status {}", http_.status()), message_of(body_),
                 std::string(http_.header("retry-after").substr(0, kDetailBytes))});
  if (is_stream_ && events_.empty()) return fail({"no tokens", "the stream ended without a token"});
  // A server may leave out [DONE]; but then the answer has an end of its own.
  if (is_stream_ && !is_finished_ && !is_marked)
    return fail({"cut short", "the stream ended with neither a finish_reason nor [DONE]"});
  is_over_ = true;
}

void LoadAnswer::fill(LoadRecord& record) const {
  record.events = events_;
  record.failure = failure_;
  if (prompt_tokens_) record.prompt_tokens = *prompt_tokens_;
  record.cached_tokens = cached_tokens_;
  record.is_counted = output_tokens_.has_value();
  record.is_counted_each = record.is_counted && counts_each_;
  record.output_tokens = output_tokens_
                             ? *output_tokens_
                             : std::accumulate(events_.begin(), events_.end(), int64_t{0},
                                               [](int64_t sum, const TokenEvent& event) { return sum + event.tokens; });
}

}  // namespace megalith::tools
