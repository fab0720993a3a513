// One event of a stream of /v1/completions or /v1/chat/completions, as far as a client cares that measures: whether there is
// something of the answer in it, and what it says of the tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megalith::serve {

struct StreamChunk {
  bool is_end = false;       // [DONE]
  bool has_choice = false;   // it is about an answer, and not only the usage
  bool has_content = false;  // of a completion a token, be its text empty; of a chat some text, reasoning or call
  bool is_finished = false;  // it has a finish_reason
  std::optional<std::string> error;
  std::optional<int64_t> prompt_tokens, completion_tokens;
  std::optional<int64_t> cached_tokens;  // of the prompt, from the server's prefix cache
};

/// `data`: of the event. UserError if it is neither [DONE] nor such an object.
StreamChunk read_stream_chunk(std::string_view data);

}  // namespace megalith::serve
