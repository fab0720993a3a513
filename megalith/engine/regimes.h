// Which kernel works on a load. An engine may have several kernels of one model, its regimes, each made for another number
// of tokens at a time (rows): a kernel of few rows takes less time for them, and one of many takes fewer passes over the
// weights. The load is the number of tokens that wait (runtime/batch.h); it falls while prompts are worked through and
// sequences end, and grows when requests come.
//
// The kernel with the fewest rows that hold all tokens that wait works on them, or else the one with the most. Measured
// on an H100 with Qwen3-8B, in ms a pass:
//
//   rows   with 1 token   8      32     64     128
//   4      4.96
//   8      5.01           5.24
//   64     5.68           6.02   6.26   7.14
//   128    6.07           7.20          7.96   9.86
//   256    7.5 to 10, by how full it is
//   512    15.3 full
//
// So a pass of a larger kernel takes less than two of a smaller one: it never pays to work on a prompt in two passes
// where one kernel holds it. A change takes 0.03 to 0.08 ms where it was foreseen (engine/regime_machine.h) and 0.3 to 0.9
// otherwise, which fewer rows save in a few passes, and sequences have more tokens than that. Nothing bounces: while no request comes, the load only falls, and a request that comes costs two
// changes at most, up for its prompt and down again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "megalith/runtime/batch.h"

namespace megalith::engine {

using batch::LoadRange;

class Regimes {
 public:
  /// The rows of each kernel, ascending.
  explicit Regimes(std::vector<int64_t> rows);

  size_t size() const { return rows_.size(); }
  int64_t rows(size_t regime) const { return rows_[regime]; }
  /// The kernel for a load.
  size_t choose(int64_t waiting) const;
  /// Loads for which choose() says `regime`.
  LoadRange range(size_t regime) const;

 private:
  std::vector<int64_t> rows_;
};

/// Rows of the kernels that a GPU has beside the one of `max_rows` that holds every sequence, for fewer tokens. Up to 8
/// rows weights are multiplied as they come; a kernel of more is slower even with one token. With 9 to 64 tokens one of
/// 64 rows is as good as one that fits, and one of more than 64 is slower. With one sequence, behind 512 tokens, an H200
/// takes 3.45 ms for Qwen3-8B with 1 row and 3.61 with 8, for Qwen3-0.6B 0.396 with 1 row and 0.474 with 2. Of a model whose
/// weights are no more than kSmallModel, a step of two tokens, too, waits for results more than for weights, and they come
/// sooner in the kernel for so many: with one sequence of Qwen3-0.6B an H100 takes 0.50 ms with 2 rows, 0.72 with 4 and 0.81
/// with 8, of Llama-3.2-1B 0.85, 0.90 and 0.90, of Qwen3-4B 2.76, 3.15 and 2.90. `step_rows`: tokens that all sequences make in
/// a step at most, drafts included; of one no step has two.
inline constexpr int64_t kSmallModel = int64_t{10} << 30;
std::vector<int64_t> smaller_regimes(int64_t max_rows, int64_t step_rows, int64_t weight_bytes);

/// Rows of those that it has for more tokens, of prompts: each is faster than the larger ones for as many tokens as it holds,
/// since what they have of work for more tokens is passed by. Matrices of a model of up to kSmallModel have too few rows for
/// all workers to share 512 tokens: on an H200 Qwen3-4B takes 1,024 of them in 15.6 ms and in 18.7 by 512, Qwen3-0.6B 2,048 in
/// 7.0 ms, in 9.0 by 1,024 and in 12.4 by 512. Of more than kTinyModel 2,048 at once take as long as by 1,024, and 1,536 longer.
/// Of more than kSmallModel 1,024 at once save 4 %, and a sequence that makes a token beside them waits twice as long. A draft
/// model has up to `more` rows beside those of an iteration (DecoderOptions::draft_model_rows()), and no more altogether than
/// `most`.
inline constexpr int64_t kTinyModel = int64_t{2} << 30;
inline constexpr int64_t kPromptRows[] = {256, 512, 1024, 2048}, kPromptRowsOfAll = 512, kPromptRowsOfSmall = 1024,
                         kPromptRowsOfTiny = 2048;
std::vector<int64_t> prompt_regimes(int64_t max_rows, int64_t most, int64_t more = 0);
/// Whether a model of so many bytes of weights is better off with a chosen kernel for prompts of so many rows.
constexpr bool suits_prompts(int64_t rows, int64_t weight_bytes) {
  return rows <= (weight_bytes > kSmallModel  ? kPromptRowsOfAll
                  : weight_bytes > kTinyModel ? kPromptRowsOfSmall
                                              : kPromptRowsOfTiny);
}

/// Of kernels that do not fit into memory together the one to do without first, or none: `base` holds every sequence and
/// stays, as do those that are `named`, one flag for each of the kernels of `rows`. First those for prompts of more than
/// kPromptRowsOfAll, whose activations take the most. Then those for fewer sequences but one, of which the largest goes first:
/// the one for kFewSequences stays, which takes 5 % longer for one sequence than one of its own, or if it is not there the
/// smallest. Then of those for prompts all but the largest, which save a third of a short prompt's time; then that one for few,
/// which saves a tenth of a pass and more; last the one for prompts, which saves half of a prompt's time or more.
inline constexpr int64_t kFewSequences = 8;
std::optional<size_t> regime_to_leave_out(const std::vector<int64_t>& rows, const std::vector<bool>& named,
                                          size_t base);

}  // namespace megalith::engine
