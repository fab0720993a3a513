#include "megalith/serve/answer_form.h"

#include <algorithm>

#include "megalith/serve/completion_form.h"
#include "megalith/serve/llama_form.h"
#include "megalith/serve/responses_form.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

int64_t sum_of(const AnswerForm::Texts& texts, int64_t AnswerText::*count) {
  int64_t sum = 0;
  for (const AnswerText& text : texts) sum += text.*count;
  return sum;
}

}  // namespace

std::string AnswerText::text(Kind kind) const {
  std::string all;
  for (const AnswerItem& item : items)
    if (item.kind == kind) all += item.text;
  return all;
}

size_t AnswerText::num_calls() const {
  return static_cast<size_t>(std::ranges::count(items, Kind::call, &AnswerItem::kind));
}

void AnswerText::add(const AnswerPiece& piece, const std::string& id) {
  switch (piece.kind) {
    case Kind::content:
    case Kind::reasoning:
      if (items.empty() || items.back().kind != piece.kind) items.push_back({.kind = piece.kind});
      items.back().text += piece.text;
      break;
    case Kind::call: items.push_back({.kind = Kind::call, .id = id, .name = piece.text}); break;
    case Kind::arguments: items.back().text += piece.text; break;
    case Kind::call_end: items.back().is_complete = true; break;
  }
}

std::unique_ptr<AnswerForm> make_answer_form(const PreparedRequest& prepared, const std::string& id, int64_t created) {
  if (prepared.request.api == Api::llama) return std::make_unique<LlamaForm>(prepared);
  if (prepared.request.api == Api::responses) return std::make_unique<ResponsesForm>(prepared, id, created);
  return std::make_unique<CompletionForm>(prepared, id, created);
}

int64_t count_tokens(const AnswerForm::Texts& texts) { return sum_of(texts, &AnswerText::tokens); }

int64_t count_reasoning_tokens(const AnswerForm::Texts& texts) { return sum_of(texts, &AnswerText::reasoning_tokens); }

int64_t count_cached_tokens(const AnswerForm::Texts& texts) { return sum_of(texts, &AnswerText::cached_tokens); }

}  // namespace megalith::serve
