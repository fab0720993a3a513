// The answer to a request, as it is made: tokens in, text out, as a stream of events or as one body, in the form of the
// interface that was asked (answer_form.h). Knows nothing of sockets and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/text_stream.h"
#include "megalith/engine/token_service.h"
#include "megalith/serve/answer_form.h"
#include "megalith/serve/answer_parser.h"
#include "megalith/serve/prepare.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

/// What follows from an event of the engine.
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
  Answer(const ServedModel& model, PreparedRequest prepared, const std::string& id, int64_t created);

  const PreparedRequest& prepared() const { return *prepared_; }
  AnswerStep take(size_t sequence, const engine::RequestEvent& event);
  /// All sequences have ended.
  bool is_complete() const { return num_ended_ == sequences_.size(); }
  bool has_ended(size_t sequence) const { return sequences_[sequence].has_ended; }

  /// Behind the last chunk.
  std::string last_chunks() { return form_->last(texts_); }
  /// An error, and the end, in a stream that has begun; `error` is {"error": {...}}.
  std::string error_chunks(const std::string& error) { return form_->error(error); }
  /// All of it in one, of a request that is no stream.
  std::string body() { return form_->body(texts_); }

  int64_t completion_tokens() const { return count_tokens(texts_); }
  int64_t completion_tokens(size_t sequence) const { return texts_[sequence].tokens; }
  /// "stop", "length" or "tool_calls"; "" before its end.
  const std::string& finish_reason(size_t sequence) const { return texts_[sequence].finish; }

 private:
  struct Sequence {
    engine::TextStream stream;
    std::optional<AnswerParser> parser = {};
    std::vector<TokenLogprob> held = {};   // of tokens whose text is held back
    std::vector<TokenLogprob> shown = {};  // of those that are shown with the next piece
    int64_t characters = 0;                // where the next token's text begins
    bool has_begun = false, has_ended = false;
    bool is_full = false;  // all calls are made that there may be
  };

  void begin(size_t index, const engine::RequestEvent& event, AnswerStep& step);
  /// Text that may be shown now, and with it the log-probabilities that waited for it. `releases`: even if there is none.
  void show(size_t index, const std::string& text, bool releases, AnswerStep& step);
  void show(size_t index, const AnswerPiece& piece, AnswerStep& step);
  void hold_logprob(Sequence& sequence, const engine::RequestEvent& event) const;
  void end(size_t index, const char* finish, AnswerStep& step);

  const ServedModel* model_;
  std::unique_ptr<const PreparedRequest> prepared_;  // stays where it is, for the form
  std::unique_ptr<AnswerForm> form_;
  std::vector<Sequence> sequences_;
  std::vector<AnswerText> texts_;  // of each of them
  size_t num_ended_ = 0;
};

}  // namespace megalith::serve
