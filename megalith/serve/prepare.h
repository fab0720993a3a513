// A request made ready for the engine: its prompts are tokens, and all that it leaves open is decided. Runs beside the
// server's thread, since a long prompt takes a while.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/engine/text_stream.h"
#include "megalith/serve/generation_request.h"
#include "megalith/serve/served_model.h"

namespace megalith::serve {

struct PreparedRequest {
  GenerationRequest request;
  std::vector<engine::Request> sequences;      // n for each prompt, one behind the other
  std::vector<std::string> echoes;             // for each prompt, the text that its answers begin with
  std::vector<std::string> prompt_texts = {};  // of a llama-server's completion: each of them
  engine::TextOptions text;
  AnswerSyntax syntax = {};       // of the parts of the answers; of those that are plain text none
  bool begins_reasoning = false;  // the prompt does
  int64_t prompt_tokens = 0;
  int64_t max_seq_len = 0;
  std::string model;  // as the answer calls it
};

/// Makes tokens of the prompts. ApiError for another model, a prompt that is empty or too long, a token that is none.
PreparedRequest prepare_tokens(const ServedModel& model, GenerationRequest request);
/// Whether a grammar is to be compiled first, which may take as long as CompilerLimits says.
bool needs_compiler(const ServedModel& model, const PreparedRequest& prepared);
/// Gives the answers their grammar, if they have one. ApiError for one that is none, or takes too much.
void add_grammar(const ServedModel& model, PreparedRequest& prepared);
/// All of it.
PreparedRequest prepare(const ServedModel& model, GenerationRequest request);
/// What is asked for, or else what is usual. Without a seed a random one.
engine::Sampling sampling_of(const SamplingFields& asked, const SamplingFields& otherwise);
/// The check of a request's "model": ApiError (404) if it is another one.
void check_name(const ServedModel& model, const std::optional<std::string>& name);

}  // namespace megalith::serve
