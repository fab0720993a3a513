#include "megalith/runtime/profile_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/runtime/profile_causes.h"
#include "megalith/runtime/profile_page_text.h"
#include "megalith/task/cost.h"

namespace megalith::runtime {

namespace {

template <class Range, class Text>
std::string list_of(const Range& range, Text text) {
  std::string result = "[";
  for (const auto& item : range) {
    if (result.size() > 1) result += ',';
    result += text(item);
  }
  return result + "]";
}

std::set<u32> newest_iterations(const Profile& profile, const task::TaskGraph& graph, size_t most_records) {
  std::map<u32, size_t> counts;
  for (const std::vector<ProfileRecord>& records : profile.workers)
    for (const ProfileRecord& record : records) {
      MEGALITH_ASSERT(record.task < graph.tasks.size(), "[profile] a record is of task {} of {}", record.task,
                      graph.tasks.size());
      ++counts[record.iteration];
    }
  std::set<u32> result;
  size_t records = 0;
  for (auto it = counts.rbegin(); it != counts.rend(); ++it) {
    if (it->second != graph.tasks.size()) continue;
    if (!result.empty() && records + it->second > most_records) break;
    records += it->second;
    result.insert(it->first);
  }
  MEGALITH_CHECK(!result.empty(), "[profile] there is no whole iteration among the records: run more tokens");
  return result;
}

}  // namespace

std::string profile_page(const Profile& profile, const task::TaskGraph& graph, const std::vector<ProfiledNode>& nodes,
                         size_t most_records) {
  const std::set<u32> iterations = newest_iterations(profile, graph, most_records);
  u64 start = ~u64{0};
  for (const std::vector<ProfileRecord>& records : profile.workers)
    for (const ProfileRecord& record : records)
      if (iterations.contains(record.iteration)) start = std::min(start, record.begin_ns);

  std::set<std::string> names;
  for (const ProfiledNode& node : nodes) names.insert(node.op);
  const std::vector<std::string> operators(names.begin(), names.end());
  const auto node_of = [&](const task::Task& task) -> const ProfiledNode& {
    return nodes.at(static_cast<size_t>(task.node));
  };
  const auto number = [&](const task::Task& task) {
    return std::to_string(std::ranges::lower_bound(operators, node_of(task).op) - operators.begin());
  };

  std::string data = fmt::format("{{\"name\":{}", json_quote(graph.name));
  data += ",\"operators\":" + list_of(operators, json_quote);
  data += ",\"events\":" + list_of(graph.events, [](const task::Event& event) { return json_quote(event.name); });
  data += ",\"tasks\":" + list_of(graph.tasks, [](const task::Task& task) { return json_quote(task.name); });
  data += ",\"operatorOf\":" + list_of(graph.tasks, number);
  data += ",\"bytesOf\":" + list_of(graph.tasks, [&](const task::Task& task) {
            return std::to_string(node_of(task).looks_up ? 0 : task::weight_bytes(graph, task));
          });
  data += ",\"eventOf\":" + list_of(graph.tasks, [](const task::Task& task) {
            return std::to_string(task.waits.empty() ? -1 : task.waits.front().event);
          });
  // Of tasks that wait for flags: which of "flags" they wait for first, or -1. Of each record the task that it waited for
  // last, by a signal or a value, or -1.
  const ProfileCauses causes(profile, graph);
  data += ",\"flags\":" + list_of(causes.flags().regions(), [&](const task::FlaggedRegion& region) {
            return json_quote(task::region_text(graph, region.buffer, region.box));
          });
  data += ",\"flagsOf\":[";
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    const auto waits = causes.flags().waits(static_cast<int>(t));
    data += fmt::format("{}{}", t > 0 ? "," : "", waits.empty() ? -1 : waits[0]);
  }
  data += "],\"lastOf\":" + list_of(profile.workers, [&](const std::vector<ProfileRecord>& records) {
            std::string text = "[";
            for (const ProfileRecord& record : records) {
              if (!iterations.contains(record.iteration)) continue;
              const auto last = causes.last_of(record);
              text += fmt::format("{}{}", text.size() > 1 ? "," : "",
                                  last && last->task != kNone ? static_cast<int>(last->task) : -1);
            }
            return text + "]";
          });
  // Of each worker, one after the other: task, iteration, begin, how long it waited, how long it ran.
  data += ",\"workers\":" + list_of(profile.workers, [&](const std::vector<ProfileRecord>& records) {
            std::string text = "[";
            for (const ProfileRecord& record : records)
              if (iterations.contains(record.iteration))
                text += fmt::format("{}{},{},{},{},{}", text.size() > 1 ? "," : "", record.task, record.iteration,
                                    record.begin_ns - start, static_cast<i64>(record.ready_ns - record.begin_ns),
                                    static_cast<i64>(record.end_ns - record.ready_ns));
            return text + "]";
          });
  data += "}";
  // A name could be anything that a graph was given from outside; within a script no "<" may stand.
  for (size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
  std::string page = kProfilePage;
  const std::string mark = "PROFILE_DATA";
  page.replace(page.find(mark), mark.size(), data);
  return page;
}

}  // namespace megalith::runtime
