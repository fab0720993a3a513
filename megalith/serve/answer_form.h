// The JSON that an answer is written in. Each interface of OpenAI's has a form of its own; what is in an answer, and when it
// ends, is the same for all (answer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/serve/answer_piece.h"
#include "megalith/serve/prepare.h"
#include "megalith/serve/timings.h"

namespace megalith::serve {

/// A token that might have come, of the most probable ones.
struct TopLogprob {
  std::string bytes;
  float logprob;  // finite
  int token = -1;
};

struct TokenLogprob {
  std::string bytes;                 // of the token, which need not be whole characters
  std::optional<float> logprob;      // finite; none of the first token of all, and where nobody asked
  int64_t characters;                // of the text in front of it
  std::vector<TopLogprob> top = {};  // in its place; the best first
  int token = -1;
};

/// A token that stands in a place of the prompt, or that might.
struct PromptChoice {
  int token;
  std::string bytes;
  float logprob;               // finite
  std::optional<size_t> rank;  // from 1, if it is known
};

/// A part of an answer.
struct AnswerItem {
  AnswerPiece::Kind kind;          // content, reasoning or call
  std::string text = {};           // of a call: its arguments
  std::string id = {}, name = {};  // of a call
  bool is_complete = false;        // a call
};

/// One of the answers to a request, as far as it is made.
struct AnswerText {
  std::vector<AnswerItem> items = {};
  std::vector<TokenLogprob> logprobs = {};
  std::vector<std::vector<PromptChoice>> prompt_logprobs =
      {};  // of each token of its prompt if they are asked for; of the first none
  int64_t tokens = 0;
  int64_t reasoning_tokens = 0;  // of them
  int64_t cached_tokens = 0;     // of its prompt
  std::string finish = {};       // "stop", "length" or "tool_calls"; "" before the end
  int stop_token = -1;           // of the request's own, if that ended it
  std::string stop_word = {};    // the stop string that did
  bool has_new_line = false;     // was made
  AnswerTimes times = {};

  /// All that is of one kind, content or reasoning.
  std::string text(AnswerPiece::Kind kind) const;
  size_t num_calls() const;
  /// Takes a piece in; a call is to be called `id`.
  void add(const AnswerPiece& piece, const std::string& id);
};

class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // Events of a stream; `texts` are all answers as they are then, this part included.
  using Texts = std::vector<AnswerText>;
  virtual std::string begin(size_t index, const Texts& texts) = 0;
  virtual std::string part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                           const Texts& texts) = 0;
  virtual std::string end(size_t index, const Texts& texts) = 0;
  /// Behind the last of them.
  virtual std::string last(const Texts& texts) = 0;
  /// In place of what would have followed; `error` is {"error": {...}}.
  virtual std::string error(const std::string& error) = 0;

  /// All in one.
  virtual std::string body(const Texts& texts) = 0;
};

/// The form of `prepared`, which must outlive it. `id` is unique; `created` is seconds since 1970.
std::unique_ptr<AnswerForm> make_answer_form(const PreparedRequest& prepared, const std::string& id, int64_t created);

int64_t count_reasoning_tokens(const AnswerForm::Texts& texts);
int64_t count_tokens(const AnswerForm::Texts& texts);
int64_t count_cached_tokens(const AnswerForm::Texts& texts);

}  // namespace megalith::serve
