// Why the tasks of a profile waited: whose signal or whose value came last. Records say when a task was ready, not what it
// waited for; that is worked out here from the task graph and from when the others ended, for all views of a profile.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megalith/runtime/profile_rings.h"
#include "megalith/task/flag_waits.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

/// What a task waited for that came last: a signal of an event, or the values of a region with flags.
struct ProfileCause {
  u32 task = kNone;  // who signalled or wrote; kNone: its record is not there
  size_t worker = 0;
  u64 end_ns = 0;
  int event = -1, region = -1;  // exactly one of them, by number
};

class ProfileCauses {
 public:
  /// Both must outlive it.
  ProfileCauses(const Profile& profile, const task::TaskGraph& graph);

  /// The last of its signallers to end in that iteration.
  ProfileCause of_event(int event, u32 iteration) const;
  /// One for each event and each region with flags that the task waited for.
  std::vector<ProfileCause> all_of(const ProfileRecord& record) const;
  /// The last of those; nothing if it waits for nothing.
  std::optional<ProfileCause> last_of(const ProfileRecord& record) const;

  /// "x.ready", or "flags of layer.3.h[0:1, 0:64]".
  std::string name_of(const ProfileCause& cause) const;
  /// The same for all layers together: "events", or "flags of layer.*.h".
  std::string kind_of(const ProfileCause& cause) const;
  /// The tensor and the range of a cause by flags.
  std::string range_of(const ProfileCause& cause) const;
  const task::FlagWaits& flags() const { return flags_; }

 private:
  struct End {
    u64 ns = 0;
    size_t worker = 0;
    bool is_there = false;
  };
  ProfileCause last_of(const std::vector<int>& tasks, u32 iteration) const;

  const task::TaskGraph& graph_;
  task::FlagWaits flags_;
  std::vector<std::vector<int>> signallers_;                   // per event
  std::unordered_map<u32, std::vector<End>> ends_;             // by iteration, per task
  mutable std::map<std::pair<u32, int>, ProfileCause> known_;  // by iteration and event, or -1 - region
};

}  // namespace megalith::runtime
