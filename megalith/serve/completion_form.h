// /v1/chat/completions and /v1/completions: chunks that carry a choice each, and "[DONE]" behind them.
#pragma once

#include "megalith/serve/answer_form.h"

namespace megalith::serve {

class CompletionForm : public AnswerForm {
 public:
  CompletionForm(const PreparedRequest& prepared, const std::string& id, int64_t created);

  std::string begin(size_t index, const Texts& texts) override;
  std::string part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                   const Texts& texts) override;
  std::string end(size_t index, const Texts& texts) override;
  std::string last(const Texts& texts) override;
  std::string error(const std::string& error) override;
  std::string body(const Texts& texts) override;

 private:
  bool is_chat() const { return prepared_.request.api == Api::chat; }
  enum class At { begin, middle, end };
  std::string chunk(size_t index, const std::string& delta, const std::string& logprobs, const Texts& texts,
                    At at) const;
  std::string logprobs_json(const std::vector<TokenLogprob>& logprobs) const;
  /// As a further member, if the prompt's are asked for.
  std::string prompt_logprobs_json(const AnswerText& text) const;
  std::string usage_json(const Texts& texts) const;
  /// As a further member, if the service says when tokens came.
  std::string timings_member(size_t index, const Texts& texts) const;

  const PreparedRequest& prepared_;
  std::string head_;  // what all chunks begin with
};

}  // namespace megalith::serve
