#include "megalith/runtime/profile_causes.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith::runtime {

ProfileCauses::ProfileCauses(const Profile& profile, const task::TaskGraph& graph)
    : graph_(graph), flags_(graph), signallers_(graph.events.size()) {
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (int event : graph.tasks[t].signals) signallers_[static_cast<size_t>(event)].push_back(static_cast<int>(t));
  for (size_t w = 0; w < profile.workers.size(); ++w)
    for (const ProfileRecord& record : profile.workers[w]) {
      std::vector<End>& ends = ends_[record.iteration];
      ends.resize(graph.tasks.size());
      ends.at(record.task) = {record.end_ns, w, true};
    }
}

ProfileCause ProfileCauses::last_of(const std::vector<int>& tasks, u32 iteration) const {
  ProfileCause last;
  const auto found = ends_.find(iteration);
  if (found == ends_.end()) return last;
  for (const int task : tasks) {
    const End& end = found->second[static_cast<size_t>(task)];
    if (end.is_there && (last.task == kNone || end.ns > last.end_ns))
      last = {.task = static_cast<u32>(task), .worker = end.worker, .end_ns = end.ns};
  }
  return last;
}

ProfileCause ProfileCauses::of_event(int event, u32 iteration) const {
  const auto [entry, is_new] = known_.try_emplace({iteration, event});
  if (is_new) entry->second = last_of(signallers_[static_cast<size_t>(event)], iteration);
  entry->second.event = event;
  return entry->second;
}

std::vector<ProfileCause> ProfileCauses::all_of(const ProfileRecord& record) const {
  std::vector<ProfileCause> causes;
  for (const task::Wait& wait : graph_.tasks.at(record.task).waits)
    causes.push_back(of_event(wait.event, record.iteration - static_cast<u32>(wait.lag)));
  for (const int region : flags_.waits(static_cast<int>(record.task))) {
    const auto [entry, is_new] = known_.try_emplace({record.iteration, -1 - region});
    if (is_new) entry->second = last_of(flags_.regions()[static_cast<size_t>(region)].writers, record.iteration);
    entry->second.region = region;
    causes.push_back(entry->second);
  }
  return causes;
}

std::optional<ProfileCause> ProfileCauses::last_of(const ProfileRecord& record) const {
  const std::vector<ProfileCause> causes = all_of(record);
  if (causes.empty()) return {};
  return *std::ranges::max_element(
      causes, {}, [](const ProfileCause& cause) { return std::pair(cause.task != kNone, cause.end_ns); });
}

std::string ProfileCauses::range_of(const ProfileCause& cause) const {
  const task::FlaggedRegion& region = flags_.regions()[static_cast<size_t>(cause.region)];
  return task::region_text(graph_, region.buffer, region.box);
}

std::string ProfileCauses::name_of(const ProfileCause& cause) const {
  return cause.region < 0 ? graph_.events[static_cast<size_t>(cause.event)].name : "flags of " + range_of(cause);
}

std::string ProfileCauses::kind_of(const ProfileCause& cause) const {
  if (cause.region < 0) return "events";
  const int buffer = flags_.regions()[static_cast<size_t>(cause.region)].buffer;
  return "flags of " + task::name_of_all_layers(graph_.buffers[static_cast<size_t>(buffer)].name);
}

}  // namespace megalith::runtime
