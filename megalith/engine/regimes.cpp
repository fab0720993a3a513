#include "megalith/engine/regimes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/optimize/limits.h"

namespace megalith::engine {

Regimes::Regimes(std::vector<int64_t> rows) : rows_(std::move(rows)) {
  MEGALITH_ASSERT(!rows_.empty() && std::ranges::adjacent_find(rows_, std::greater_equal()) == rows_.end(),
                  "[engine] regimes must have more and more rows");
}

size_t Regimes::choose(int64_t waiting) const {
  const auto holds = std::ranges::lower_bound(rows_, waiting);
  return std::min(static_cast<size_t>(holds - rows_.begin()), size() - 1);
}

LoadRange Regimes::range(size_t regime) const {
  LoadRange range;
  if (regime > 0) range.least = static_cast<int32_t>(rows_[regime - 1]);
  if (regime + 1 < size()) range.most = static_cast<int32_t>(rows_[regime]);
  return range;
}

std::vector<int64_t> smaller_regimes(int64_t max_rows, int64_t step_rows, int64_t weight_bytes) {
  std::vector<int64_t> rows = {1, 2, kFewSequences, 64};
  if (weight_bytes > kSmallModel) std::erase(rows, 2);
  std::erase_if(rows, [&](int64_t r) { return r >= max_rows || r > step_rows; });
  return rows;
}

std::vector<int64_t> prompt_regimes(int64_t max_rows, int64_t most, int64_t more) {
  std::vector<int64_t> rows;
  std::ranges::copy_if(kPromptRows, std::back_inserter(rows), [&](int64_t r) { return r < most; });
  rows.push_back(most);
  for (int64_t& r : rows) r -= ceil_div(more, optimize::kRowBlock) * optimize::kRowBlock;
  std::erase_if(rows, [&](int64_t r) { return r <= max_rows; });
  return rows;
}

std::optional<size_t> regime_to_leave_out(const std::vector<int64_t>& rows, const std::vector<bool>& named,
                                          size_t base) {
  const auto few = static_cast<size_t>(std::ranges::find(rows, kFewSequences) - rows.begin()),
             kept = few < base ? few : 0;
  for (size_t large = rows.size(); --large > base && rows[large] > kPromptRowsOfAll;)
    if (!named[large]) return large;
  for (size_t smaller = base; smaller-- > 0;)
    if (!named[smaller] && smaller != kept) return smaller;
  const size_t last = named.size() - 1;
  for (size_t prompts = base + 1; prompts < last; ++prompts)
    if (!named[prompts]) return prompts;
  if (base > 0 && !named[kept]) return kept;
  if (last > base && !named[last]) return last;
  return std::nullopt;
}

}  // namespace megalith::engine
