#include "megalith/serve/answer.h"

#include <algorithm>
#include <iterator>

#include "megalith/base/random_hex.h"
#include "megalith/serve/prompt_logprobs.h"

namespace megalith::serve {

namespace {

// Templates of Mistral's models want nine letters and digits.
std::string new_call_id(CallFormat format) {
  return format == CallFormat::mistral ? random_hex().substr(0, 9) : "call_" + random_hex().substr(0, 24);
}

// Of a sequence whose text has parts; nothing else needs one.
std::optional<AnswerParser> make_parser(const PreparedRequest& prepared) {
  const AnswerSyntax& syntax = prepared.syntax;
  if (syntax.calls == CallFormat::none && !syntax.splits_reasoning()) return std::nullopt;
  return AnswerParser(syntax, make_call_parser(syntax.calls, prepared.request.tool_types), prepared.begins_reasoning);
}

void note_time(AnswerTimes& times, const engine::RequestEvent& event) {
  if (event.admitted_ns) times.admitted_ns = event.admitted_ns;
  if (event.token < 0) return;
  if (!times.first_ns) times.first_ns = event.posted_ns;
  times.last_ns = event.posted_ns;
}

// Of an answer that breaks off in a call, nobody should act on the calls.
bool has_called(const AnswerText& text) {
  return text.num_calls() > 0 && std::ranges::all_of(text.items, [](const AnswerItem& item) {
           return item.kind != AnswerPiece::Kind::call || item.is_complete;
         });
}

}  // namespace

Answer::Answer(const ServedModel& model, PreparedRequest prepared, const std::string& id, int64_t created)
    : model_(&model),
      prepared_(std::make_unique<const PreparedRequest>(std::move(prepared))),
      form_(make_answer_form(*prepared_, id, created)),
      texts_(prepared_->sequences.size()) {
  for (size_t i = 0; i < texts_.size(); ++i)
    sequences_.push_back({.stream = {model.tokenizer, prepared_->text}, .parser = make_parser(*prepared_)});
}

void Answer::hold_logprob(Sequence& sequence, const engine::RequestEvent& event) const {
  TokenLogprob one{model_->token_bytes(event.token), std::nullopt, sequence.characters};
  one.token = event.token;
  if (prepared_->request.logprobs) one.logprob = finite_logprob(event.logprob);
  for (const engine::TopToken& top : event.top)
    one.top.push_back({model_->token_bytes(top.token), finite_logprob(top.logprob), top.token});
  sequence.characters += count_characters(one.bytes);
  sequence.held.push_back(std::move(one));
}

void Answer::show(size_t index, const AnswerPiece& piece, AnswerStep& step) {
  Sequence& sequence = sequences_[index];
  AnswerText& text = texts_[index];
  const GenerationRequest& request = prepared_->request;
  if (sequence.is_full) return;
  if (piece.kind == AnswerPiece::Kind::call && text.num_calls() > 0 && !request.parallel_tool_calls) {
    sequence.is_full = true;
    return;
  }
  if (piece.kind == AnswerPiece::Kind::reasoning && !request.include_reasoning) {
    sequence.shown.clear();
    return;
  }
  text.has_new_line |= piece.text.find('\n') != std::string::npos;
  text.add(piece, piece.kind == AnswerPiece::Kind::call ? new_call_id(prepared_->syntax.calls) : "");
  std::vector<TokenLogprob> logprobs;
  if (piece.kind != AnswerPiece::Kind::call_end) logprobs = std::exchange(sequence.shown, {});
  if (request.stream)
    step.chunks += form_->part(index, piece, logprobs, texts_);
  else
    text.logprobs.insert(text.logprobs.end(), logprobs.begin(), logprobs.end());
}

void Answer::show(size_t index, const std::string& text, bool releases, AnswerStep& step) {
  Sequence& sequence = sequences_[index];
  if (!text.empty() || releases) {
    std::ranges::move(sequence.held, std::back_inserter(sequence.shown));
    sequence.held.clear();
  }
  AnswerPieces pieces;
  if (sequence.parser)
    pieces = sequence.parser->push(text);
  else
    pieces.add(AnswerPiece::Kind::content, text);
  for (const AnswerPiece& piece : pieces.all) show(index, piece, step);
}

void Answer::begin(size_t index, const engine::RequestEvent& event, AnswerStep& step) {
  const GenerationRequest& request = prepared_->request;
  if (request.stream) step.chunks += form_->begin(index, texts_);
  const std::vector<int>& prompt = prepared_->sequences[index].prompt;
  if (request.prompt_logprobs)
    texts_[index].prompt_logprobs = prompt_choices(*model_, prompt, event.prompt_logprobs, *request.prompt_logprobs);
  const std::string& echo = prepared_->echoes[index / static_cast<size_t>(request.n)];
  if (request.echo && request.logprobs)
    sequences_[index].shown = echoed_logprobs(*model_, echo, prompt, event.prompt_logprobs, request.top_logprobs);
  sequences_[index].characters = count_characters(echo);
  show(index, echo, false, step);
}

void Answer::end(size_t index, const char* finish, AnswerStep& step) {
  Sequence& sequence = sequences_[index];
  // Of a text that a stop string ended, the tokens of the stop string are no part.
  const bool is_stopped = sequence.stream.is_stopped();
  if (is_stopped) sequence.held.clear();
  texts_[index].stop_word = sequence.stream.stop();
  show(index, sequence.stream.finish(), !is_stopped, step);
  if (sequence.parser)
    for (const AnswerPiece& piece : sequence.parser->finish().all) show(index, piece, step);
  if (!sequence.shown.empty()) show(index, {AnswerPiece::Kind::content}, step);
  sequence.has_ended = step.has_ended = true;
  texts_[index].finish = finish == std::string_view("stop") && has_called(texts_[index]) ? "tool_calls" : finish;
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
  if (!std::exchange(sequence.has_begun, true)) begin(index, event, step);
  texts_[index].cached_tokens += event.cached_tokens;
  step.has_token = event.token >= 0;
  note_time(texts_[index].times, event);
  if (request.max_tokens == 0) {  // what the engine makes in any case is no part of it
    step.wants_abort = event.end == engine::RequestEnd::none;
    end(index, "length", step);
    return step;
  }
  texts_[index].tokens += step.has_token;
  const bool is_stop_token = step.has_token && event.end == engine::RequestEnd::stop;
  const auto is_one_of = [&](const std::vector<int>& ids) { return std::ranges::binary_search(ids, event.token); };
  if (is_stop_token && is_one_of(request.stop_token_ids) && !is_one_of(prepared_->text.stop_tokens))
    texts_[index].stop_token = event.token;
  if (step.has_token && !is_stop_token) {
    if (request.logprobs || request.api == Api::llama) hold_logprob(sequence, event);  // of which the ids are said
    const auto is_reasoning = [&] { return sequence.parser && sequence.parser->is_in_reasoning(); };
    const bool was_reasoning = is_reasoning();
    show(index, sequence.stream.push(event.token), false, step);
    texts_[index].reasoning_tokens += was_reasoning || is_reasoning();
  }
  const bool is_stopped = sequence.stream.is_stopped() || sequence.is_full;
  step.wants_abort = is_stopped && event.end == engine::RequestEnd::none;
  if (is_stopped || event.end == engine::RequestEnd::stop)
    end(index, "stop", step);
  else if (event.end == engine::RequestEnd::length)
    end(index, "length", step);
  return step;
}

}  // namespace megalith::serve
