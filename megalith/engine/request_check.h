// What requests may ask for: of the model, of a sequence's room, and of how their tokens are drawn. Checked before any of them
// reaches the batch block, which takes all for right.
#pragma once

#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"

namespace megalith::engine {

/// UserError unless all of them fit into one batch and each is one that can run. `stop_tokens`: the model's, sorted.
void check_batch(const std::vector<Request>& requests, const ModelConfig& config, const DecoderOptions& decoder,
                 const std::vector<int>& stop_tokens, bool dummy_weights);

}  // namespace megalith::engine
