// Requests as the tables that a running kernel works from (runtime/batch.h): what the host writes before a launch.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/memory_map.h"
#include "megalith/grammar/grammar.h"
#include "megalith/graph/graph.h"
#include "megalith/model/decoder.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/first_rows.h"
#include "megalith/task/verify_changes.h"

namespace megalith::engine {

/// How a text goes on. Temperature 0 always takes the likeliest token, after the penalties.
struct Sampling {
  float temperature = 0;
  float top_p = 1;
  float min_p = 0;               // least probability, as a share of the likeliest token's
  int top_k = 0;                 // 0: all
  float repetition_penalty = 1;  // of all tokens of the text so far: above 1 makes them less likely
  float presence_penalty = 0;    // of tokens made so far, whatever their number
  float frequency_penalty = 0;   // and for each time
  uint64_t seed = 0;
};

struct Request {
  std::vector<int> prompt;
  int64_t max_new_tokens = 128;
  Sampling sampling = {};
  bool ignore_stop_tokens = false;          // the model's; its own end it
  std::vector<int> stop_token_ids = {};     // its own, beside the model's
  int64_t min_tokens = 0;                   // before so many new ones none is drawn that would end it
  std::map<int, float> logit_bias = {};     // added to the logits of tokens, ahead of the penalties
  std::vector<int> allowed_token_ids = {};  // without any: all
  std::vector<std::vector<int>> bad_words =
      {};                                   // of each the last token is not drawn behind the others, if these were made
  bool logprobs = false;                    // with each token comes the logarithm of its probability
  int top_logprobs = 0;                     // and so many of the most probable tokens in its place, with theirs
  std::optional<int> prompt_logprobs = {};  // the same of the prompt's tokens, behind the first one
  grammar::GrammarUse grammar = {};         // what it may say: the host then has a say before each of its tokens
  int64_t cached_tokens = 0;    // the first ones of the prompt, taken for done without being worked through: for
                                // measurements at a depth, on dummy weights only
  int64_t priority = 0;         // of a service: lower ones go first, and keep their pages
  std::string cache_salt = {};  // of a service: only requests of the same one share the pages of their first tokens
};

/// One of the most probable tokens in a place of a sequence, by the model's own logits: of such lists the best comes first.
struct TopToken {
  int token = 0;
  float logprob = 0;

  bool operator==(const TopToken&) const = default;
};

/// How likely a token of a prompt is behind those in front of it.
struct PromptLogprob {
  float logprob = 0;
  std::vector<TopToken> top = {};

  bool operator==(const PromptLogprob&) const = default;
};
/// The most that a request wants to be told of with any token, of its prompt or made.
int most_top_tokens(const Request& request);
/// `top` of most_top_tokens() without those that were not asked for.
std::vector<TopToken> top_tokens_asked(std::vector<TopToken> top, int count);

/// The length at which the request ends at the latest, prompt and all.
int64_t length_limit(const DecoderOptions& options, const Request& request);
/// Whether a token ends the request; `stop_tokens`: the model's, sorted.
bool ends_request(const Request& request, const std::vector<int>& stop_tokens, int token);
/// Tokens with which the request ends: `stop_tokens` unless it ignores them, and its own.
std::vector<int> ends_of(const Request& request, const std::vector<int>& stop_tokens);
/// KV pages that the request fills, if it goes on to its limit.
int64_t pages_needed(const DecoderOptions& options, const Request& request);

/// A part of a table's line of one request: elements of 4 bytes, from the first one on.
struct LinePart {
  const char* table;
  int64_t line, used;  // elements
};
/// What of the batch block says how the tokens of `request` are drawn and which of them end it: what batch_block_write()
/// writes beside prompt and pages.
std::vector<LinePart> sampling_lines(const Request& request);

/// Writes prompt, pages and sampling of `request`, which has been checked, into the batch block's place for number `place`. The
/// line of `requests` with which it begins there.
std::array<int32_t, batch::kRequestFields> batch_block_write(const DecoderOptions& options, const Request& request,
                                                             int64_t place, const std::vector<int32_t>& pages,
                                                             const MemoryMap& memory);
/// A batch block without requests. `tables`: the graph whose tables it has.
void batch_block_clear(const graph::Graph& tables, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                       const MemoryMap& memory);
/// Fills in the batch block in `memory` for `requests`, which have been checked; every other place in it is cleared. Rows
/// are yet to be laid out. `tables`: the graph whose tables the block has.
void batch_block_fill_requests(const graph::Graph& tables, const DecoderOptions& options,
                               const std::vector<int>& stop_tokens, const std::vector<Request>& requests,
                               const MemoryMap& memory);
/// With the rows of the first iteration, for the one kernel of `graph`.
void batch_block_fill(const graph::Graph& graph, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                      const std::vector<Request>& requests, const MemoryMap& memory);

/// The states that batch_block_fill() writes: all of the block but the mailbox.
const std::vector<std::string>& batch_block_tensors();
/// Those of them that a kernel reads for these requests: tables of extras only where one has some.
std::vector<std::string> batch_block_changes(const std::vector<Request>& requests);
/// Those of them that laying out rows writes.
const std::vector<std::string>& row_tensors();
/// What a change from one kernel to another is about (task/verify_changes.h).
const task::ChangeTables& change_tables();
/// The tables of rows that `graph` has in `memory`.
runtime::RowTables row_tables(const graph::Graph& graph, const MemoryMap& memory);

}  // namespace megalith::engine
