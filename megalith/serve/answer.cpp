#include "megalith/serve/answer.h"

#include <algorithm>
#include <cmath>

#include "megalith/serve/completion_form.h"
#include "megalith/serve/responses_form.h"

namespace megalith::serve {

namespace {

// JSON has no infinity; this is what others write for it.
constexpr float kLeastLogprob = -9999;

int64_t count_characters(const std::string& bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::unique_ptr<AnswerForm> make_answer_form(const PreparedRequest& prepared, const std::string& id, int64_t created) {
  if (prepared.request.api == Api::responses) return std::make_unique<ResponsesForm>(prepared, id, created);
  return std::make_unique<CompletionForm>(prepared, id, created);
}

int64_t count_tokens(const AnswerForm::Texts& texts) {
  int64_t tokens = 0;
  for (const AnswerText& text : texts) tokens += text.tokens;
  return tokens;
}

int64_t count_cached_tokens(const AnswerForm::Texts& texts) {
  int64_t tokens = 0;
  for (const AnswerText& text : texts) tokens += text.cached_tokens;
  return tokens;
}

Answer::Answer(const ServedModel& model, PreparedRequest prepared, const std::string& id, int64_t created)
    : model_(&model),
      prepared_(std::make_unique<const PreparedRequest>(std::move(prepared))),
      form_(make_answer_form(*prepared_, id, created)),
      texts_(prepared_->sequences.size()) {
  for (size_t i = 0; i < texts_.size(); ++i) sequences_.push_back({.stream = {model.tokenizer, prepared_->text}});
}

void Answer::hold_logprob(Sequence& sequence, const engine::RequestEvent& event) const {
  const auto finite = [](float logprob) { return std::isfinite(logprob) ? logprob : kLeastLogprob; };
  TokenLogprob one{model_->token_bytes(event.token), finite(event.logprob), sequence.characters};
  for (const engine::TopToken& top : event.top)
    one.top.push_back({model_->token_bytes(top.token), finite(top.logprob)});
  sequence.characters += count_characters(one.bytes);
  sequence.held.push_back(std::move(one));
}

void Answer::show(size_t index, const std::string& text, bool releases, AnswerStep& step) {
  std::vector<TokenLogprob> logprobs;
  if (!text.empty() || releases) logprobs = std::exchange(sequences_[index].held, {});
  if (text.empty() && logprobs.empty()) return;
  texts_[index].text += text;
  if (prepared_->request.stream) {
    step.chunks += form_->part(index, text, logprobs, texts_);
  } else {
    auto& all = texts_[index].logprobs;
    all.insert(all.end(), logprobs.begin(), logprobs.end());
  }
}

void Answer::begin(size_t index, AnswerStep& step) {
  if (prepared_->request.stream) step.chunks += form_->begin(index, texts_);
  const std::string& echo = prepared_->echoes[index / static_cast<size_t>(prepared_->request.n)];
  sequences_[index].characters = count_characters(echo);
  show(index, echo, false, step);
}

void Answer::end(size_t index, const char* finish, AnswerStep& step) {
  Sequence& sequence = sequences_[index];
  // Of a text that a stop string ended, the tokens of the stop string are no part.
  const bool is_stopped = sequence.stream.is_stopped();
  if (is_stopped) sequence.held.clear();
  show(index, sequence.stream.finish(), !is_stopped, step);
  sequence.has_ended = step.has_ended = true;
  texts_[index].finish = finish;
  ++num_ended_;
  if (prepared_->request.stream) step.chunks += form_->end(index, texts_);
}

AnswerStep Answer::take(size_t index, const engine::RequestEvent& event) {
  Sequence& sequence = sequences_[index];
  AnswerStep step;
  if (sequence.has_ended) return step;
  if (event.end == engine::RequestEnd::failed || event.end == engine::RequestEnd::aborted) {
    sequence.has_ended = step.has_ended = step.has_failed = true;
    ++num_ended_;
    return step;
  }
  const GenerationRequest& request = prepared_->request;
  if (!std::exchange(sequence.has_begun, true)) begin(index, step);
  texts_[index].cached_tokens += event.cached_tokens;
  step.has_token = event.token >= 0;
  texts_[index].tokens += step.has_token;
  const bool is_stop_token = step.has_token && event.end == engine::RequestEnd::stop;
  const auto is_one_of = [&](const std::vector<int>& ids) { return std::ranges::binary_search(ids, event.token); };
  if (is_stop_token && is_one_of(request.stop_token_ids) && !is_one_of(prepared_->text.stop_tokens))
    texts_[index].stop_token = event.token;
  if (step.has_token && !is_stop_token) {
    if (request.logprobs) hold_logprob(sequence, event);
    show(index, sequence.stream.push(event.token), false, step);
  }
  const bool is_stopped = sequence.stream.is_stopped();
  step.wants_abort = is_stopped && event.end == engine::RequestEnd::none;
  if (is_stopped || event.end == engine::RequestEnd::stop)
    end(index, "stop", step);
  else if (event.end == engine::RequestEnd::length)
    end(index, "length", step);
  return step;
}

}  // namespace megalith::serve
