#include "megalith/runtime/profile_layers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

namespace megalith::runtime {

namespace {

constexpr int kNoNode = -1;

struct Place {
  int layer;
  std::string part;
};

// Of a task "layer.N.what[n=0:8]".
std::optional<Place> place_of(const std::string& task) {
  constexpr std::string_view kPrefix = "layer.";
  if (!task.starts_with(kPrefix)) return {};
  const std::string_view rest = std::string_view(task).substr(kPrefix.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') return {};
  const std::string_view part = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return Place{layer, std::string(part.substr(0, part.find('[')))};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// When the tasks of a node had come so far, in one iteration. Clocks count from 1970: what a double would round them to
// is a quarter of a microsecond, and a hundred of them are more than a u64 holds.
struct NodeTimes {
  u64 first = ~u64{0}, last = 0, count = 0;
  int64_t sum_since_any = 0;  // of what each came after `any` of them
  u64 any = 0;

  void add(u64 at) {
    if (count == 0) any = at;
    first = std::min(first, at);
    last = std::max(last, at);
    sum_since_any += static_cast<int64_t>(at - any);
    ++count;
  }
  Moments since(u64 begin) const {
    const auto after = [begin](u64 at) { return static_cast<double>(static_cast<int64_t>(at - begin)); };
    return {after(first), after(any) + static_cast<double>(sum_since_any) / static_cast<double>(count), after(last)};
  }
};

class Samples {
 public:
  void add(const Moments& moments) {
    for (size_t i = 0; i < kFields.size(); ++i) values_[i].push_back(moments.*kFields[i]);
  }
  Moments medians() const {
    Moments result;
    for (size_t i = 0; i < kFields.size(); ++i) result.*kFields[i] = median(values_[i]);
    return result;
  }

 private:
  static constexpr std::array kFields = {&Moments::first, &Moments::mean, &Moments::last};
  std::array<std::vector<double>, kFields.size()> values_;
};

}  // namespace

std::vector<ProfileLayerPart> profile_layers(const Profile& profile, const task::TaskGraph& graph) {
  std::map<int, Place> places;  // by node, in the order of the program
  std::map<int, u64> num_tasks;
  for (const task::Task& task : graph.tasks) {
    if (auto place = place_of(task.name)) places.emplace(task.node, std::move(*place));
    ++num_tasks[task.node];
  }
  // With which node the layer before ended: what comes right before the layer's first in the program.
  std::map<int, int> before;
  int layer = -1, end_of_last = kNoNode, previous = kNoNode;
  for (const auto& [node, place] : places) {
    if (place.layer > layer) {
      layer = place.layer;
      end_of_last = previous;
    }
    before[node] = end_of_last;
    previous = node;
  }

  struct Times {
    NodeTimes ready, end;
  };
  std::map<std::pair<u32, int>, Times> times;  // by iteration and node
  for (const std::vector<ProfileRecord>& records : profile.workers)
    for (const ProfileRecord& record : records) {
      const int node = graph.tasks.at(record.task).node;
      if (!places.contains(node)) continue;
      Times& of_node = times[{record.iteration, node}];
      of_node.ready.add(record.ready_ns);
      of_node.end.add(record.end_ns);
    }
  const auto is_whole = [&](int node, const Times& of_node) { return of_node.end.count == num_tasks.at(node); };

  struct Part {
    Samples ready, end;
  };
  std::map<std::string, Part> parts;
  for (const auto& [where, of_node] : times) {
    const auto [iteration, node] = where;
    const auto begin = times.find({iteration, before.at(node)});
    if (begin == times.end() || !is_whole(begin->first.second, begin->second) || !is_whole(node, of_node)) continue;
    Part& part = parts[places.at(node).part];
    part.ready.add(of_node.ready.since(begin->second.end.last));
    part.end.add(of_node.end.since(begin->second.end.last));
  }

  std::vector<ProfileLayerPart> result;
  for (const auto& [name, part] : parts) result.push_back({name, part.ready.medians(), part.end.medians()});
  std::ranges::sort(result, {}, [](const ProfileLayerPart& part) { return part.ready.mean; });
  return result;
}

}  // namespace megalith::runtime
