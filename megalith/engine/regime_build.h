// Compiles kernels of one model for several numbers of tokens at a time, side by side. The one that holds every sequence
// is compiled by the engine itself; these are beside it, and may be ready later than it.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"

namespace megalith::engine {

/// A kernel, and what it was made from.
struct Regime {
  DecoderOptions options;
  std::shared_ptr<const graph::Graph> graph;
  jit::CompiledKernel kernel = {};
  bool is_named = true;  // not chosen, so that nothing else will do
};

/// A kernel beside the one that holds every sequence.
struct WantedRegime {
  int64_t rows;
  const char* option;  // that says how many; of a chosen one, which is an attempt, nullptr
};

/// What they have in common.
struct RegimeSource {
  ModelConfig config;
  DecoderOptions options;                    // of the one that holds every sequence
  std::shared_ptr<const graph::Graph> base;  // its graph
  std::string target;
  int num_workers;
};

/// Whether one of `others` can share the memory of the kernel of `options` with caches in rows only (DecoderOptions::caches_in_rows).
bool want_caches_in_rows(const ModelConfig& config, const DecoderOptions& options,
                         const std::vector<WantedRegime>& others);

/// prompt_regimes() of a GPU beside the kernel of `options`: of as many rows as the largest that has bodies for attention. Of
/// more than kPromptRowsWithoutTiles there are none where shared memory has no room for tiles of queries, as on an A100 of heads
/// of 128 values. Where that of fewer has none either attention is generated. More than kPromptRowsOfAll are for GPUs with much
/// shared memory, on which they were measured.
inline constexpr int64_t kSharedBytesOfLongPrompts = 200 << 10;
inline constexpr int64_t kPromptRowsWithoutTiles = 128;
std::vector<int64_t> shared_prompt_regimes(const ModelConfig& config, const DecoderOptions& options);

class RegimeBuild {
 public:
  /// Begins at once, a thread for each. `gives_way`: to whatever else wants the cores.
  RegimeBuild(std::shared_ptr<const RegimeSource> source, const std::vector<WantedRegime>& wanted, bool gives_way);
  /// And the one that holds every sequence, as it is chosen, where the engine has one that was compiled quickly.
  void add_base() { add({source_->options.max_rows, nullptr}); }
  /// What is not ready is given up: a compiler that cannot be ended goes on by itself.
  ~RegimeBuild();
  RegimeBuild(const RegimeBuild&) = delete;
  RegimeBuild& operator=(const RegimeBuild&) = delete;

  /// UserError if one that an option names cannot share the others' memory, which is known before it is compiled.
  void check();
  /// Whether all are ready, or have failed, within that time.
  bool is_ready(std::chrono::milliseconds within = {}) const;
  /// Told of a kernel that could not be compiled: for how many tokens at a time, and why.
  using OnFailure = std::function<void(int64_t rows, const std::exception& error)>;
  /// All that can share the others' memory, once; waits for them. What one of them failed with is thrown, unless
  /// somebody is told.
  std::vector<Regime> take(const OnFailure& on_failure = {});
  /// Tokens at a time of each.
  const std::vector<int64_t>& rows() const { return rows_; }

 private:
  void add(const WantedRegime& wanted);

  struct One {
    std::future<bool> is_shared;  // whether it can share their memory
    std::future<std::optional<Regime>> made;
  };

  const std::shared_ptr<const RegimeSource> source_;
  const bool gives_way_;
  std::vector<int64_t> rows_;
  std::atomic<bool> is_over_{false};
  std::vector<One> ones_;
};

}  // namespace megalith::engine
