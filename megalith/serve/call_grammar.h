// Grammars of answers with calls of tools: a call that is forced, and arguments that fit their schema. In the form in which
// the model writes calls (answer_syntax.h).
#pragma once

#include <optional>

#include "megalith/grammar/grammar.h"
#include "megalith/serve/generation_request.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

/// The grammar of an answer to `request`: of the form that it asks for, of the calls that it forces or wants to fit their
/// schemas; nothing: it may be anything. ApiError for what contradicts itself, or has no grammar in the model's form of calls.
std::optional<grammar::GrammarSource> answer_grammar(const ServedModel& model, const GenerationRequest& request,
                                                     const AnswerSyntax& syntax);

}  // namespace megalith::serve
