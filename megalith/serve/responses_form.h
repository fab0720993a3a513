// /v1/responses, as far as it needs no memory of earlier answers: one message of text, and events that have names and
// numbers.
#pragma once

#include "megalith/serve/answer_form.h"

namespace megalith::serve {

class ResponsesForm : public AnswerForm {
 public:
  ResponsesForm(const PreparedRequest& prepared, const std::string& id, int64_t created);

  std::string begin(size_t index, const Texts& texts) override;
  std::string part(size_t index, const std::string& text, const std::vector<TokenLogprob>& logprobs,
                   const Texts& texts) override;
  std::string end(size_t index, const Texts& texts) override;
  std::string last(const Texts& texts) override;
  std::string error(const std::string& error) override;
  std::string body(const Texts& texts) override;

 private:
  /// `members` are those of the event beside its type and number.
  std::string event(const std::string& type, const std::string& members);
  std::string response_json(const char* status, const Texts* texts) const;
  std::string message_json(const char* status, const AnswerText* text) const;

  const PreparedRequest& prepared_;
  std::string id_, message_id_;
  std::string where_;  // in the response the one text stands: members of the events about it
  int64_t created_;
  int64_t number_ = 0;  // of the next event
};

}  // namespace megalith::serve
