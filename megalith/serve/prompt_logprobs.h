// How likely the tokens of a prompt are, as answers say it: beside the prompt that is repeated, as OpenAI has it, or by themselves,
// as vLLM does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/serve/answer_form.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

/// JSON has no infinity; others write -9999 for it.
float finite_logprob(float logprob);
int64_t count_characters(const std::string& bytes);

/// Of each token of `prompt`, which `echo` is the text of, with `count` others. `told`: of all but the first.
std::vector<TokenLogprob> echoed_logprobs(const ServedModel& model, const std::string& echo,
                                          const std::vector<int>& prompt,
                                          const std::vector<engine::PromptLogprob>& told, int count);
/// Each token of `prompt`, and the `count` most probable ones in its place.
std::vector<std::vector<PromptChoice>> prompt_choices(const ServedModel& model, const std::vector<int>& prompt,
                                                      const std::vector<engine::PromptLogprob>& told, int count);

}  // namespace megalith::serve
