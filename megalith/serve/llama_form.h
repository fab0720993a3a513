// llama-server's own /completion: an object for each answer, or a list of them; as a stream an object for each piece of text, the
// last of which has everything but the text.
#pragma once

#include "megalith/serve/answer_form.h"

namespace megalith::serve {

class LlamaForm : public AnswerForm {
 public:
  explicit LlamaForm(const PreparedRequest& prepared) : prepared_(prepared) {}

  std::string begin(size_t, const Texts&) override { return ""; }
  std::string part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                   const Texts& texts) override;
  std::string end(size_t index, const Texts& texts) override;
  std::string last(const Texts&) override { return ""; }
  std::string error(const std::string& error) override;
  std::string body(const Texts& texts) override;

 private:
  std::string result_json(size_t index, const AnswerText& text, bool is_whole) const;
  std::string probabilities_json(const std::vector<TokenLogprob>& logprobs) const;

  const PreparedRequest& prepared_;
};

/// What a sequence is sampled by, under llama-server's names. `seed`: -1 for a new one each time.
std::string settings_json(const engine::Sampling& sampling, int64_t max_tokens, int64_t seed);

}  // namespace megalith::serve
