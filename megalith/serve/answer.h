// The answer to a request, as it is made: tokens in, OpenAI's JSON out, as a stream of chunks or as one body. Knows nothing
// of sockets and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/engine/text_stream.h"
#include "megalith/engine/token_service.h"
#include "megalith/serve/prepare.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

/// What follows from an event.
struct AnswerStep {
  std::string chunks = {};   // to be streamed; "" if it is no stream, or there is nothing to show yet
  bool has_token = false;    // one that counts
  bool has_ended = false;    // the sequence, just now
  bool wants_abort = false;  // it shall go no further, though the engine would
  bool has_failed = false;   // it ended in a way that is no answer
};

class Answer {
 public:
  /// `id` and `created` stand in every chunk. The model must outlive the answer.
  Answer(const ServedModel& model, PreparedRequest prepared, std::string id, int64_t created);

  const PreparedRequest& prepared() const { return prepared_; }
  AnswerStep take(size_t sequence, const engine::RequestEvent& event);
  /// All sequences have ended.
  bool is_complete() const { return num_ended_ == sequences_.size(); }
  bool has_ended(size_t sequence) const { return sequences_[sequence].has_ended; }

  /// Behind the last chunk: the usage, if it was asked for, and the end.
  std::string last_chunks() const;
  /// All of it in one, of a request that is no stream.
  std::string body() const;

  int64_t completion_tokens() const;
  int64_t completion_tokens(size_t sequence) const { return sequences_[sequence].tokens; }
  /// "stop" or "length"; "" before its end.
  std::string finish_reason(size_t sequence) const { return sequences_[sequence].finish; }

  /// An error, and the end, in a stream that has begun.
  static std::string error_chunks(const std::string& error);

 private:
  struct Sequence {
    engine::TextStream stream;
    std::string text = {};               // so far, if it is no stream
    std::vector<std::string> held = {};  // log-probabilities of tokens whose text is held back
    std::vector<std::string> logprobs = {};
    int64_t characters = 0;  // where the next token's text begins
    int64_t tokens = 0;
    bool has_begun = false, has_ended = false;
    std::string finish = {}, stop_reason = "null";
  };

  bool is_chat() const { return prepared_.request.api == Api::chat; }
  size_t prompt_of(size_t sequence) const { return sequence / static_cast<size_t>(prepared_.request.n); }
  std::string logprob_entry(Sequence& sequence, const engine::RequestEvent& event) const;
  std::string logprobs_json(const std::vector<std::string>& entries) const;
  /// Text and log-probabilities that may be shown now.
  void show(size_t index, const std::string& text, bool releases, std::string& chunks);
  void end(size_t index, const char* finish, AnswerStep& step);
  std::string chunk(size_t index, const std::string& delta, const std::string& logprobs, bool is_last) const;
  std::string usage_json(int64_t prompt_tokens) const;

  const ServedModel* model_;
  PreparedRequest prepared_;
  std::string id_, head_;  // head_: what all chunks begin with
  std::vector<Sequence> sequences_;
  size_t num_ended_ = 0;
};

}  // namespace megalith::serve
