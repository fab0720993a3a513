// /v1/responses, as far as it needs no memory of earlier answers: items of text, reasoning and calls of tools,
// and events that have names and numbers.
#pragma once

#include "megalith/serve/answer_form.h"

namespace megalith::serve {

class ResponsesForm : public AnswerForm {
 public:
  ResponsesForm(const PreparedRequest& prepared, const std::string& id, int64_t created);

  std::string begin(size_t index, const Texts& texts) override;
  std::string part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                   const Texts& texts) override;
  std::string end(size_t index, const Texts& texts) override;
  std::string last(const Texts& texts) override;
  std::string error(const std::string& error) override;
  std::string body(const Texts& texts) override;

 private:
  /// `members` are those of the event beside its type and number.
  std::string event(const std::string& type, const std::string& members);
  std::string response_json(const char* status, const Texts* texts) const;
  // Of the item at the place `number` of the answer.
  std::string item_id(const AnswerText& text, size_t number) const;
  std::string item_json(const AnswerText& text, size_t number, bool is_done) const;
  std::string where(const AnswerText& text, size_t number) const;
  std::string item_begin(const AnswerText& text);
  std::string item_end(const AnswerText& text);

  const PreparedRequest& prepared_;
  std::string request_id_, id_;
  int64_t created_;
  int64_t number_ = 0;    // of the next event
  size_t num_begun_ = 0;  // items
  bool is_open_ = false;  // the last one of them
};

}  // namespace megalith::serve
