#include "megalith/model/near_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace megalith {

namespace {

// Names come from files: lengths and counts are bounded so that a helpful message stays cheap.
constexpr size_t kLongestName = 256;
constexpr size_t kMaxNames = 20000;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string near_names(std::string_view wanted, std::span<const std::string> names) {
  if (wanted.size() > kLongestName) return "";
  std::vector<std::pair<size_t, const std::string*>> ranked;
  for (const std::string& name : names.first(std::min(names.size(), kMaxNames))) {
    if (name.size() > kLongestName) continue;
    const size_t distance = edit_distance(wanted, name);
    if (distance <= wanted.size() / 3 + 1) ranked.emplace_back(distance, &name);
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const auto& a, const auto& b) { return std::pair(a.first, *a.second) < std::pair(b.first, *b.second); });
  if (ranked.size() > 3) ranked.resize(3);
  std::string list;
  for (const auto& [distance, name] : ranked) list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", *name);
  return list.empty() ? "" : fmt::format(" (near: {})", list);
}

}  // namespace megalith
