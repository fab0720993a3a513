// A draft model: a small model of the same tokenizer makes drafts (kernels/drafts.h) for a large one, in the same kernel. What is
// worked out stands in docs/speculation.md.
//
// An iteration begins with its steps. The first one works on the rows of the large model whose tokens are known, and on the token
// before them where that was made here; behind the last token of each request that has drafts its argmax is the first draft. Each
// further step works on the draft of the step before. Then the large model works on all rows. The draft model has layers, weights
// and a cache of its own; pages and positions are those of the large one.
#pragma once

#include <memory>
#include <string>

#include "megalith/graph/graph.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"

namespace megalith {

/// What the names of its weights, caches and nodes begin with.
inline constexpr const char* kDraftPrefix = "draft.";

/// Drafts of a step unless somebody says how many.
inline constexpr int64_t kDraftModelTokens = 4;

/// The configuration of the one in `folder`; UserError unless its tokens are those of the model in `target`, as far as both have a
/// tokenizer.json.
std::shared_ptr<const ModelConfig> read_draft_model(const std::string& folder, const std::string& target);

/// UserError unless `draft` can make drafts for `target` in sequences of up to `max_seq_len` tokens, by their configurations.
void check_draft_model(const ModelConfig& draft, const ModelConfig& target, int64_t max_seq_len);

/// Adds options.draft_tokens steps to a graph that has the batch block of a decoder with a vocabulary of so many tokens.
void build_draft_model(graph::Graph& graph, const ModelConfig& draft, const DecoderOptions& options,
                       int64_t vocabulary);

}  // namespace megalith
