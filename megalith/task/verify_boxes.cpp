#include "megalith/task/verify_boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace megalith::task::verifier {

std::string box_text(const loop::Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.lo.size(); ++d) text += fmt::format("{}{}:{}", d ? ", " : "", box.lo[d], box.hi[d]);
  return text + "]";
}

void BoxIndex::sort() {
  if (list_.empty() || list_.front().box->lo.empty()) return;  // nothing, or of a number alone
  std::ptrdiff_t most = 0;
  std::vector<int64_t> begins(list_.size());
  for (size_t d = 0; d < list_.front().box->lo.size(); ++d) {
    std::ranges::transform(list_, begins.begin(), [&](const Item& item) { return item.box->lo[d]; });
    std::ranges::sort(begins);
    const std::ptrdiff_t count = std::unique(begins.begin(), begins.end()) - begins.begin();
    if (count > most) most = count, axis_ = d;
  }
  std::ranges::stable_sort(list_, {}, [&](const Item& item) { return item.box->lo[axis_]; });
  int64_t end = 0;
  for (Item& item : list_) item.end_so_far = end = std::max(end, item.box->hi[axis_]);
}

}  // namespace megalith::task::verifier
