// What a server knows of the model behind it: how prompts become tokens and tokens text, how its makers want it sampled,
// and how long a sequence may be. Nothing in it changes, so any thread may ask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/engine/text_stream.h"
#include "megalith/grammar/grammar.h"
#include "megalith/model/chat_template.h"
#include "megalith/model/generation_config.h"
#include "megalith/model/tokenizer.h"
#include "megalith/serve/answer_syntax.h"
#include "megalith/serve/generation_request.h"

namespace megalith::serve {

/// A conversation as tokens.
struct ChatTokens {
  std::vector<int> tokens;
  bool begins_reasoning = false;  // the last of them begin the answer's reasoning
};

struct ServedModel {
  std::vector<std::string> names;  // that requests may call it; answers have the first one where none was given
  int64_t max_seq_len = 0;         // tokens of a sequence, prompt and answer
  int64_t vocab_size = 0;
  int64_t max_sequences = 0;  // at work and waiting together
  int64_t num_parameters = 0;
  std::string folder = {};
  const Tokenizer* tokenizer = nullptr;          // null: prompts are token ids, and so are answers
  grammar::GrammarCompiler* grammars = nullptr;  // null: answers of a given form are refused
  std::optional<ChatTemplate> chat_template = {};
  AnswerSyntax syntax = {};
  std::vector<int> markers = {};           // tokens that no user's text becomes (ChatPrompt::turn_tokens)
  std::vector<int> stop_tokens = {};       // end an answer; sorted
  std::vector<std::string> stops = {};     // likewise
  SamplingFields sampling = {};            // of requests that do not say
  std::optional<int64_t> max_tokens = {};  // likewise; nothing: the rest of the context, of completions 16

  bool is_called(const std::string& name) const;

  /// ApiError if the folder has no tokenizer.
  std::vector<int> encode(const std::string& text, bool add_special, bool parse_special = true) const;
  /// A conversation as the chat template lays it out, or without one as plain text to go on from. ApiError for what the
  /// template refuses.
  std::vector<TextSegment> render(const GenerationRequest& chat) const;
  ChatTokens encode(const GenerationRequest& chat) const;
  std::string decode(const std::vector<int>& tokens) const;
  /// A token as clients see it in log-probabilities: its bytes, which need not be whole characters.
  std::string token_bytes(int token) const;
};

/// What is sampled by if a request says nothing: as generation_config.json wants it, or at temperature 1 if that wants
/// no sampling, because that is what clients of this interface expect. `given` goes before.
SamplingFields default_sampling(const GenerationConfig& theirs, const SamplingFields& given);

}  // namespace megalith::serve
