// How a model's RoPE reaches farther than the positions that it was trained on, as config.json says it: under the
// classic "rope_theta" and "rope_scaling", under the "rope_parameters" of transformers 5, or under both where they agree.
#pragma once

#include <cstdint>
#include <optional>

#include "megalith/model/architecture.h"
#include "megalith/model/json.h"

namespace megalith {

enum class RopeKind { linear, dynamic, yarn, llama3 };

/// What it means for the frequencies stands in rope.h. Of each kind the members that do not concern it have the values
/// below.
struct RopeScaling {
  RopeKind kind = RopeKind::linear;
  double factor = 1;
  int64_t original_max_position = 0;  // positions that the model was trained on first; linear: of the checkpoint
  double low_freq_factor = 1;         // llama3: wavelengths in the original context, from which frequencies are slowed
  double high_freq_factor = 4;        //         and up to which they are kept
  double beta_fast = 32;              // yarn: turns within the original context, from which frequencies are kept
  double beta_slow = 1;               //       and up to which they are slowed
  bool truncate = true;               //       the two bounds are rounded to whole pairs
  double attention_factor = 1;        //       cosines and sines are multiplied by it

  bool operator==(const RopeScaling&) const = default;
};

struct RopeSettings {
  double theta = 10000;
  std::optional<RopeScaling> scaling;  // nothing if it changes nothing
};

/// Of the object that describes the text model. UserError for a kind that is not supported, for values without a
/// meaning, and for two descriptions that differ.
RopeSettings read_rope(const JsonValue& text, const Architecture& architecture, int64_t max_position_embeddings);

}  // namespace megalith
