// What comes back for one request of `megalith bench serve`, byte by byte: HTTP, server-sent events and their JSON, each of
// them bounded, become the times at which tokens came, or the kind of the failure. It has no socket and no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/serve/http_answer_reader.h"
#include "megalith/serve/sse_reader.h"
#include "megalith/serve/stream_chunk.h"

namespace megalith::tools {

/// `kind` is one of a few words, by which failures are counted; `detail` is the server's message, or ours.
struct LoadFailure {
  std::string kind, detail;
  std::string retry_after = {};  // of a refusal, as the server wrote it
};

struct TokenEvent {
  double ms;       // since the request was sent
  int64_t tokens;  // 1 where the server does not say how many are in an event
};

/// A request that was sent, and what came of it.
struct LoadRecord {
  double sent_ms = 0, ended_ms = 0;                  // since the beginning of the run
  double late_ms = 0;                                // sent after it was due and there was a place for it
  int64_t prompt_tokens = 0, asked_tokens = 0;       // the first as the server counted them, if it did
  int64_t cached_tokens = 0;                         // of the prompt, that the server says it had not to work through
  int64_t output_tokens = 0;                         // of all events, or as the server counted them
  bool is_counted = false, is_counted_each = false;  // by the server: in the end; in each event
  std::vector<TokenEvent> events;                    // those that brought tokens
  std::optional<LoadFailure> failure;

  double ttft_ms() const { return events.front().ms; }
  double e2el_ms() const { return events.back().ms; }
  /// From the first event to the last, by the tokens that came behind the first. Nothing if none did.
  std::optional<double> tpot_ms() const;
};

class LoadAnswer {
 public:
  /// Of a stream, or (`wants_stream` false) of a body that is kept.
  explicit LoadAnswer(bool wants_stream);

  /// All of what came, `ms` after the request was sent.
  void take(std::string_view bytes, double ms);
  /// The server closed its side.
  void take_end();
  void fail(LoadFailure failure);

  /// The answer is there, or has failed; the connection may have more of it.
  bool is_over() const { return is_over_; }
  /// Nothing of it is left to come, and the connection may have another request.
  bool is_reusable() const { return http_.is_complete() && !http_.complaint() && http_.keep_alive() && held_.empty(); }
  bool has_begun() const { return has_begun_; }
  const std::optional<LoadFailure>& failure() const { return failure_; }
  const std::string& body() const { return body_; }
  /// Adds what is known to a record. Once it is over.
  void fill(LoadRecord& record) const;

 private:
  void take_body(double ms);
  void take_chunk(const serve::StreamChunk& chunk, double ms);
  void end(bool is_marked);

  bool wants_stream_, is_stream_ = false, has_begun_ = false, is_over_ = false, is_finished_ = false;
  serve::HttpAnswerReader http_;
  serve::SseReader sse_;
  std::string held_, body_;
  std::vector<TokenEvent> events_;
  bool counts_each_ = true;  // each event so far said how many tokens there are by now
  int64_t seen_tokens_ = 0;
  std::optional<int64_t> prompt_tokens_, output_tokens_;
  int64_t cached_tokens_ = 0;
  std::optional<LoadFailure> failure_;
};

}  // namespace megalith::tools
