// The members of a request that say of which form its answer is to be: OpenAI's, vLLM's, older ones of vLLM's and
// llama-server's. There may be one of them.
#pragma once

#include "megalith/serve/fields.h"
#include "megalith/serve/generation_request.h"

namespace megalith::serve {

/// ApiError for a form that is none, and for two of them.
void read_answer_grammar(const Fields& fields, GenerationRequest& request);

}  // namespace megalith::serve
