// The members of llama-server's own /completion, as far as they are other ones than those of OpenAI's and vLLM's, or have other
// forms.
#pragma once

#include "megalith/serve/fields.h"
#include "megalith/serve/generation_request.h"

namespace megalith::serve {

void read_llama(const Fields& fields, GenerationRequest& request);

}  // namespace megalith::serve
