#include "megalith/task/dependence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/task/region.h"

namespace megalith::task {

namespace {

struct Access {
  int member;  // position in the group
  loop::Box box;
  int64_t row_begin = 0, row_end = 0;  // of a scatter, as Region has them
};
// Of two writes of one node: rows of a scatter go to different elements.
bool scatter_apart(const Access& a, const Access& b) {
  return a.row_end > a.row_begin && b.row_end > b.row_begin && (a.row_end <= b.row_begin || b.row_end <= a.row_begin);
}

// What one group does to one buffer in one mode (read or write).
struct Pattern {
  std::vector<Access> accesses;
  loop::Box hull;                // around all of them
  std::vector<loop::Box> cover;  // boxes whose union is that of the accesses: one if the accesses tile it
};

// For each member of the later pattern the members of the earlier one that it meets, as an id of a relative set, or -1.
struct Relation {
  std::vector<int> set_of_member;
};

void append_integer(std::string& key, int64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Hands out small numbers for things seen before.
template <class Value>
class Interned {
 public:
  /// The id, and whether it is new (then the caller adds the value).
  std::pair<int, bool> find(const std::string& key) {
    auto [entry, added] = ids_.try_emplace(key, static_cast<int>(values_.size()));
    return {entry->second, added};
  }
  void add(Value value) { values_.push_back(std::move(value)); }
  const Value& operator[](int id) const { return values_[static_cast<size_t>(id)]; }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<Value> values_;
};

loop::Box hull_of(const std::vector<Access>& accesses) {
  loop::Box hull = accesses.front().box;
  for (const Access& access : accesses)
    for (size_t d = 0; d < hull.lo.size(); ++d) {
      hull.lo[d] = std::min(hull.lo[d], access.box.lo[d]);
      hull.hi[d] = std::max(hull.hi[d], access.box.hi[d]);
    }
  return hull;
}

std::vector<loop::Box> cover_of(const std::vector<Access>& accesses, const loop::Box& hull) {
  int64_t elements = 0;
  for (const Access& access : accesses) elements += box_elements(access.box);
  // Fewer elements than the hull: they cannot tile it. As many or more: they do if nothing of it is left over.
  bool tiles = elements >= box_elements(hull);
  if (tiles) {
    std::vector<loop::Box> rest = {hull};
    constexpr size_t kTooRagged = 64;  // a tiling never leaves many pieces; give up on what does
    for (size_t i = 0; i < accesses.size() && !rest.empty() && rest.size() < kTooRagged; ++i)
      box_subtract(rest, accesses[i].box);
    tiles = rest.empty();
  }
  if (tiles) return {hull};
  std::vector<loop::Box> boxes;
  for (const Access& access : accesses) boxes.push_back(access.box);
  return boxes;
}

// The accesses of a pattern, sorted along the dimension that tells them apart best, to find those that meet a box.
class Sweep {
 public:
  explicit Sweep(const Pattern& pattern) : accesses_(pattern.accesses) {
    const size_t rank = accesses_.front().box.lo.size();
    size_t most = 0;
    for (size_t d = 0; d < rank; ++d) {
      std::vector<int64_t> starts;
      for (const Access& access : accesses_) starts.push_back(access.box.lo[d]);
      std::sort(starts.begin(), starts.end());
      const size_t distinct = static_cast<size_t>(std::unique(starts.begin(), starts.end()) - starts.begin());
      if (distinct > most) most = distinct, dimension_ = d;
    }
    for (size_t i = 0; i < accesses_.size(); ++i) sorted_.push_back(i);
    if (rank == 0) return;
    std::stable_sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) { return start(a) < start(b); });
    int64_t reach = INT64_MIN;
    for (size_t i : sorted_) reach_.push_back(reach = std::max(reach, accesses_[i].box.hi[dimension_]));
  }

  template <class Visit>
  void meet(const loop::Box& box, Visit visit) const {
    size_t end = sorted_.size();
    if (!box.lo.empty())
      end = static_cast<size_t>(std::partition_point(sorted_.begin(), sorted_.end(),
                                                     [&](size_t i) { return start(i) < box.hi[dimension_]; }) -
                                sorted_.begin());
    for (size_t i = end; i-- > 0;) {
      if (!box.lo.empty() && reach_[i] <= box.lo[dimension_]) break;
      const Access& access = accesses_[sorted_[i]];
      if (box_intersects(access.box, box)) visit(access);
    }
  }

 private:
  int64_t start(size_t i) const { return accesses_[i].box.lo[dimension_]; }

  const std::vector<Access>& accesses_;
  size_t dimension_ = 0;
  std::vector<size_t> sorted_;
  std::vector<int64_t> reach_;  // largest end among the first so many
};

// What one group does to one buffer: ids of patterns, -1 = nothing.
struct Use {
  int buffer;
  int reads = -1, writes = -1;
};

// A group's use of a buffer that later groups may still meet.
struct Past {
  int group;
  int pattern;
  bool writes;
  int iteration;
};

class Finder {
 public:
  Finder(const std::vector<Task>& tasks, const std::vector<Buffer>& buffers) : tasks_(tasks), buffers_(buffers) {
    result_.within.resize(tasks.size());
    result_.carried.resize(tasks.size());
    result_.words.resize(tasks.size());
  }

  Dependences run() {
    find_groups();
    past_.resize(buffers_.size());
    for (int iteration = 0; iteration < 2; ++iteration)
      for (int g = 0; g < static_cast<int>(result_.groups.size()); ++g)
        for (const Use& use : uses_[static_cast<size_t>(g)]) visit(g, use, iteration);
    return std::move(result_);
  }

 private:
  void find_groups() {
    std::unordered_map<std::string, int> signatures;
    const int num_tasks = static_cast<int>(tasks_.size());
    for (int begin = 0, end = 0; begin < num_tasks; begin = end) {
      while (end < num_tasks && task(end).node == task(begin).node) ++end;
      uses_.push_back(uses_of(begin, end));
      std::string signature;
      for (const Use& use : uses_.back()) append_integer(signature, use.reads), append_integer(signature, use.writes);
      for (int t = begin; t < end; ++t) append_integer(signature, std::llround(task(t).cost_ns * 16));
      const int id = static_cast<int>(signatures.try_emplace(signature, signatures.size()).first->second);
      result_.groups.push_back({begin, end, id});
    }
  }

  std::vector<Use> uses_of(int begin, int end) {
    std::map<std::pair<int, bool>, std::vector<std::pair<int, const Region*>>> by_buffer;
    std::vector<int> order;  // buffers by first use, so that equal groups list theirs in the same order
    for (int t = begin; t < end; ++t)
      for (bool writes : {false, true})
        for (const Region& region : writes ? task(t).writes : task(t).reads) {
          if (box_empty(region.box) || (!writes && buffer(region.buffer).memory == Memory::constant)) continue;
          auto& list = by_buffer[{region.buffer, writes}];
          if (list.empty()) order.push_back(region.buffer);
          list.emplace_back(t - begin, &region);
        }
    std::vector<Use> uses;
    for (int b : order) {
      if (std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.buffer == b; })) continue;
      Use use{b};
      if (auto reads = by_buffer.find({b, false}); reads != by_buffer.end()) use.reads = pattern_of(reads->second);
      if (auto writes = by_buffer.find({b, true}); writes != by_buffer.end()) use.writes = pattern_of(writes->second);
      uses.push_back(use);
    }
    return uses;
  }

  int pattern_of(const std::vector<std::pair<int, const Region*>>& accesses) {
    std::string key;
    for (const auto& [member, region] : accesses) {
      const loop::Box& box = region->box;
      append_integer(key, member);
      for (size_t d = 0; d < box.lo.size(); ++d) append_integer(key, box.lo[d]), append_integer(key, box.hi[d]);
      append_integer(key, region->row_begin), append_integer(key, region->row_end);
    }
    append_integer(key, static_cast<int64_t>(accesses.front().second->box.lo.size()));
    auto [id, added] = patterns_.find(key);
    if (added) {
      Pattern pattern;
      for (const auto& [member, region] : accesses)
        pattern.accesses.push_back({member, region->box, region->row_begin, region->row_end});
      pattern.hull = hull_of(pattern.accesses);
      pattern.cover = cover_of(pattern.accesses, pattern.hull);
      patterns_.add(std::move(pattern));
    }
    return id;
  }

  void visit(int g, const Use& use, int iteration) {
    std::vector<Past>& past = past_[static_cast<size_t>(use.buffer)];
    for (const Past& entry : past) {
      if (entry.iteration < iteration || iteration == 0) {
        const bool carried = entry.iteration < iteration;
        if (use.writes >= 0)
          relate(entry.group, entry.pattern, g, use.writes, carried ? result_.carried : result_.within);
        // What an exchange hands on waits for itself; what it held an iteration ago nobody reads.
        const bool exchange = buffer(use.buffer).memory == Memory::exchange;
        if (use.reads >= 0 && entry.writes && !(exchange && carried))
          relate(entry.group, entry.pattern, g, use.reads,
                 exchange ? result_.words : (carried ? result_.carried : result_.within));
      }
    }
    if (use.writes >= 0) {
      if (iteration == 0) {
        relate_inside(g, use.writes, use.writes);
        if (use.reads >= 0) relate_inside(g, use.writes, use.reads), relate_inside(g, use.reads, use.writes);
      }
      std::erase_if(past, [&](const Past& entry) { return hides(use.writes, entry.pattern); });
    }
    if (use.reads >= 0) past.push_back({g, use.reads, false, iteration});
    if (use.writes >= 0) past.push_back({g, use.writes, true, iteration});
  }

  bool hides(int later, int earlier) {
    if (!box_contains(patterns_[later].hull, patterns_[earlier].hull)) return false;
    auto [entry, added] = hides_.try_emplace({later, earlier}, false);
    if (added) {
      const std::vector<loop::Box>& cover = patterns_[later].cover;
      const std::vector<loop::Box>& covered = patterns_[earlier].cover;
      entry->second = std::all_of(covered.begin(), covered.end(), [&](const loop::Box& inner) {
        return std::any_of(cover.begin(), cover.end(),
                           [&](const loop::Box& outer) { return box_contains(outer, inner); });
      });
    }
    return entry->second;
  }

  using Lists = std::vector<std::vector<int>>;  // sets, per task

  void relate(int earlier_group, int earlier, int later_group, int later, Lists& lists) {
    if (box_intersects(patterns_[earlier].hull, patterns_[later].hull))
      add(relation(earlier, later, false), earlier_group, later_group, lists);
  }
  void relate_inside(int g, int earlier, int later) { add(relation(earlier, later, true), g, g, result_.within); }

  const Relation& relation(int earlier, int later, bool inside) {
    auto [entry, added] = relations_.try_emplace({earlier, later, inside});
    ++(added ? result_.num_relations : result_.num_relations_shared);
    if (added) {
      const Sweep sweep(patterns_[earlier]);
      std::map<int, std::vector<int>> met;  // member of the later group -> members of the earlier one
      for (const Access& access : patterns_[later].accesses)
        sweep.meet(access.box, [&](const Access& other) {
          if (!inside || (other.member < access.member && !scatter_apart(other, access)))
            met[access.member].push_back(other.member);
        });
      if (!met.empty()) entry->second.set_of_member.resize(static_cast<size_t>(met.rbegin()->first) + 1, -1);
      for (auto& [member, set] : met) {
        std::sort(set.begin(), set.end());
        set.erase(std::unique(set.begin(), set.end()), set.end());
        auto [id, is_new] = relative_sets_.find({reinterpret_cast<const char*>(set.data()), set.size() * sizeof(int)});
        if (is_new) relative_sets_.add(set);
        entry->second.set_of_member[static_cast<size_t>(member)] = id;
      }
    }
    return entry->second;
  }

  void add(const Relation& relation, int earlier_group, int later_group, Lists& lists) {
    const int earlier_begin = result_.groups[static_cast<size_t>(earlier_group)].begin;
    const int later_begin = result_.groups[static_cast<size_t>(later_group)].begin;
    int last_relative = -1, last_set = -1;  // neighbours mostly share their set
    for (size_t member = 0; member < relation.set_of_member.size(); ++member) {
      const int relative = relation.set_of_member[member];
      if (relative < 0) continue;
      if (relative != last_relative) last_set = absolute_set(earlier_begin, relative), last_relative = relative;
      std::vector<int>& list = lists[static_cast<size_t>(later_begin) + member];
      if (std::find(list.begin(), list.end(), last_set) == list.end()) list.push_back(last_set);
    }
  }

  int absolute_set(int begin, int relative) {
    const uint64_t key = static_cast<uint64_t>(begin) << 32 | static_cast<uint32_t>(relative);
    auto [entry, added] = absolute_sets_.try_emplace(key, static_cast<int>(result_.sets.size()));
    if (added) {
      std::vector<int> set = relative_sets_[relative];
      for (int& member : set) member += begin;
      result_.sets.push_back(std::move(set));
    }
    return entry->second;
  }

  const Task& task(int t) const { return tasks_[static_cast<size_t>(t)]; }
  const Buffer& buffer(int b) const { return buffers_[static_cast<size_t>(b)]; }

  const std::vector<Task>& tasks_;
  const std::vector<Buffer>& buffers_;
  Dependences result_;
  std::vector<std::vector<Use>> uses_;   // per group
  std::vector<std::vector<Past>> past_;  // per buffer
  Interned<Pattern> patterns_;
  Interned<std::vector<int>> relative_sets_;
  std::map<std::tuple<int, int, bool>, Relation> relations_;
  std::map<std::pair<int, int>, bool> hides_;
  std::unordered_map<uint64_t, int> absolute_sets_;
};

}  // namespace

Dependences find_dependences(const std::vector<Task>& tasks, const std::vector<Buffer>& buffers) {
  return Finder(tasks, buffers).run();
}

}  // namespace megalith::task
