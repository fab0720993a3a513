#include "megalith/task/flag_waits.h"

#include <fmt/format.h>

#include <cctype>
#include <map>

#include "megalith/task/verify_boxes.h"

namespace megalith::task {

using verifier::BoxIndex;
using verifier::BoxOrder;

FlagWaits::FlagWaits(const TaskGraph& graph) : waits_(graph.tasks.size()), signals_(graph.tasks.size()) {
  const auto is_flagged = [&](const Region& region) {
    return graph.buffers[static_cast<size_t>(region.buffer)].memory == Memory::exchange &&
           !verifier::touches_nothing(region.box);
  };
  struct Writes {
    BoxIndex boxes;
    std::vector<int> tasks;  // of each box
  };
  std::map<int, Writes> writes;  // by buffer
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (const Region& region : graph.tasks[t].writes)
      if (is_flagged(region)) {
        writes[region.buffer].boxes.add(region.box);
        writes[region.buffer].tasks.push_back(static_cast<int>(t));
      }
  for (auto& [buffer, of_buffer] : writes) of_buffer.boxes.sort();

  std::map<int, std::map<const loop::Box*, int, BoxOrder>> known;  // by buffer: numbers of regions
  verifier::Budget budget;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (const Region& region : graph.tasks[t].reads) {
      if (!is_flagged(region)) continue;
      const auto [entry, is_new] = known[region.buffer].try_emplace(&region.box, static_cast<int>(regions_.size()));
      if (is_new) {
        FlaggedRegion& flagged = regions_.emplace_back(FlaggedRegion{region.buffer, region.box, {}, {}});
        const Writes& of_buffer = writes[region.buffer];
        of_buffer.boxes.visit(region.box, budget, 4, [&](size_t w) { flagged.writers.push_back(of_buffer.tasks[w]); });
        std::ranges::sort(flagged.writers);
        const auto rest = std::ranges::unique(flagged.writers);
        flagged.writers.erase(rest.begin(), rest.end());
        for (const int writer : flagged.writers) signals_[static_cast<size_t>(writer)].push_back(entry->second);
      }
      std::vector<int>& readers = regions_[static_cast<size_t>(entry->second)].readers;
      if (!readers.empty() && readers.back() == static_cast<int>(t)) continue;
      readers.push_back(static_cast<int>(t));
      waits_[t].push_back(entry->second);
    }
}

std::string region_text(const TaskGraph& graph, int buffer, const loop::Box& box) {
  const std::string& name = graph.buffers[static_cast<size_t>(buffer)].name;
  return box.lo.empty() ? name : name + verifier::box_text(box);
}

std::string name_of_all_layers(const std::string& name) {
  std::string label;
  for (size_t i = 0; i < name.size() && name[i] != '['; ++i) {
    const bool digit =
        std::isdigit(static_cast<unsigned char>(name[i])) && (i == 0 || name[i - 1] == '.' || label.ends_with('*'));
    if (!digit)
      label += name[i];
    else if (!label.ends_with('*'))
      label += '*';
  }
  return label;
}

}  // namespace megalith::task
