// The kernels that an engine has by default for a model whose weights are few.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "megalith/engine/regime_build.h"
#include "megalith/engine/regimes.h"

namespace megalith::testing {

/// Their rows, ascending; `options` become those of the one that holds every sequence.
inline std::vector<int64_t> default_regimes(const ModelConfig& config, DecoderOptions& options) {
  options.shares_caches = true;
  options = options.resolved(config);
  std::vector<int64_t> rows = engine::smaller_regimes(options.max_rows, options.max_requests, 0);
  std::ranges::copy(engine::shared_prompt_regimes(config, options), std::back_inserter(rows));
  std::vector<engine::WantedRegime> others;
  for (const int64_t other : rows) others.push_back({other, nullptr});
  options.caches_in_rows = engine::want_caches_in_rows(config, options, others);
  rows.push_back(options.max_rows);
  std::ranges::sort(rows);
  return rows;
}

}  // namespace megalith::testing
