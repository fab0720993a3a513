#include "megalith/task/place.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "megalith/base/error.h"

namespace megalith::task {

namespace {

// Length of the longest chain of dependences that ends before each task. A task that nobody waits for until much later
// is of no earlier level than the group that stands before it in the program: it runs when that does.
std::vector<int> find_levels(const Dependences& dependences) {
  constexpr int kMuchLater = 4, kNever = std::numeric_limits<int>::max();
  const size_t num_tasks = dependences.within.size(), num_sets = dependences.sets.size();
  std::vector<int> level(num_tasks, 0), awaited(num_tasks, kNever);  // of a task: its level, and who waits for it
  std::vector<int> after_set(num_sets, -1), set_awaited(num_sets, kNever);  // the first level that waits for a set
  for (size_t t = 0; t < num_tasks; ++t) {
    const auto each_set = [&](auto action) {
      for (const std::vector<int>* sets : {&dependences.within[t], &dependences.words[t]})
        for (int set : *sets) action(static_cast<size_t>(set));
    };
    each_set([&](size_t set) {
      int& after = after_set[set];
      if (after < 0)
        for (int producer : dependences.sets[set]) after = std::max(after, level[static_cast<size_t>(producer)] + 1);
      level[t] = std::max(level[t], after);
    });
    each_set([&](size_t set) { set_awaited[set] = std::min(set_awaited[set], level[t]); });
  }
  for (size_t set = 0; set < num_sets; ++set)
    for (int producer : dependences.sets[set]) {
      int& first = awaited[static_cast<size_t>(producer)];
      first = std::min(first, set_awaited[set]);
    }
  for (size_t g = 1; g < dependences.groups.size(); ++g) {
    const int before = level[static_cast<size_t>(dependences.groups[g - 1].begin)];
    for (int t = dependences.groups[g].begin; t < dependences.groups[g].end; ++t) {
      int& own = level[static_cast<size_t>(t)];
      const int first = awaited[static_cast<size_t>(t)];
      if (first - own > kMuchLater) own = std::max(own, std::min(before, first - 1));
    }
  }
  return level;
}

class Placer {
 public:
  Placer(std::vector<Task>& tasks, const Dependences& dependences, int num_workers, bool warm_caches)
      : tasks_(tasks),
        dependences_(dependences),
        warm_caches_(warm_caches),
        total_(static_cast<size_t>(num_workers), 0.0),
        load_(total_) {
    twins_.resize(tasks.size(), -1);
    std::unordered_map<int, int> last_of_signature;
    for (const Group& group : dependences.groups) {
      auto [last, first_time] = last_of_signature.try_emplace(group.signature, group.begin);
      if (!first_time)
        for (int t = group.begin; t < group.end; ++t) twins_[static_cast<size_t>(t)] = last->second + (t - group.begin);
      last->second = group.begin;
    }
  }

  // One level: no two of its tasks depend on each other.
  void place_level(std::vector<int>& level) {
    std::stable_sort(level.begin(), level.end(), [&](int a, int b) { return cost(a) > cost(b); });
    std::fill(load_.begin(), load_.end(), 0.0);
    for (int t : level) {
      const int partner = tasks_[static_cast<size_t>(t)].partner;
      if (partner < 0) {
        put(t, choose(t, level.size() == 1));
      } else if (t < partner) {  // the first of both, for both
        const size_t pair = choose_pair();
        put(t, pair);
        put(partner, pair + 1);
      }
    }
    levels_ns_ += *std::max_element(load_.begin(), load_.end());
  }

  const std::vector<double>& total() const { return total_; }
  double levels_ns() const { return levels_ns_; }
  double affinity() const { return num_twins_ ? static_cast<double>(num_kept_) / static_cast<double>(num_twins_) : 1; }

 private:
  void put(int t, size_t worker) {
    tasks_[static_cast<size_t>(t)].worker = static_cast<int>(worker);
    load_[worker] += cost(t);
    total_[worker] += cost(t);
  }

  // The first of two neighbours: of those that are least loaded in this level, least loaded so far.
  size_t choose_pair() const {
    MEGALITH_CHECK(load_.size() >= 2,
                   "[place] two workers multiply a group of weights together, and there is one: take two or more");
    const auto loaded = [&](size_t w) {
      return std::pair(std::max(load_[w], load_[w + 1]), std::max(total_[w], total_[w + 1]));
    };
    size_t best = 0;
    for (size_t w = 2; w + 1 < load_.size(); w += 2)
      if (loaded(w) < loaded(best)) best = w;
    return best;
  }

  size_t choose(int t, bool is_alone) {
    // Least loaded in this level, by more than rounding; of those, near what the task reads; of those, least loaded so far. Ties go
    // to the lowest number.
    const double least = *std::min_element(load_.begin(), load_.end()) + kLevelSlack * cost(t);
    const int side = tasks_[static_cast<size_t>(t)].side;
    const auto is_better = [&](size_t w, size_t than) {
      const bool is_near = static_cast<int>(w % 2) == side, was_near = static_cast<int>(than % 2) == side;
      return is_near != was_near ? is_near : total_[w] < total_[than];
    };
    size_t best = load_.size();
    for (size_t w = 0; w < load_.size(); ++w)
      if (load_[w] <= least && (best == load_.size() || is_better(w, best))) best = w;
    const int near = near_worker(t);
    // Everybody waits for a task that is alone: an event less is worth more than who has done the least.
    if (!warm_caches_) return is_alone && near >= 0 ? static_cast<size_t>(near) : best;
    // The twin goes first: its layer was placed near its producers, and so the whole layer is placed alike again.
    const int twin = twin_worker(t);
    for (int warm : {twin, near})
      if (warm >= 0 && fits(t, static_cast<size_t>(warm), best)) {
        best = static_cast<size_t>(warm);
        break;
      }
    if (twin >= 0) ++num_twins_, num_kept_ += static_cast<int>(best) == twin;
    return best;
  }

  // A warm cache, or a wait saved, is worth a little imbalance, not a lot: within the level nothing beyond rounding,
  // and over the whole iteration no more than one task like this one on top of what is small against all placed so far.
  static constexpr double kLevelSlack = 0.02, kTotalSlack = 0.02;
  bool fits(int t, size_t warm, size_t best) const {
    return load_[warm] <= load_[best] + kLevelSlack * cost(t) &&
           total_[warm] <= total_[best] * (1 + kTotalSlack) + cost(t);
  }

  // Where the latest of the few tasks ran that this one consumes: there it needs no event. A task that consumes from
  // everywhere (a large set) is near to nobody.
  int near_worker(int t) const {
    constexpr size_t kFew = 4;
    int latest = -1;
    for (int id : dependences_.within[static_cast<size_t>(t)]) {
      const std::vector<int>& set = dependences_.sets[static_cast<size_t>(id)];
      if (set.size() <= kFew) latest = std::max(latest, set.back());
    }
    return latest < 0 ? -1 : tasks_[static_cast<size_t>(latest)].worker;
  }

  int twin_worker(int t) const {
    const int twin = twins_[static_cast<size_t>(t)];
    return twin < 0 ? -1 : tasks_[static_cast<size_t>(twin)].worker;
  }

  // Tasks without an estimate count as something, or they would all go to one worker.
  double cost(int t) const {
    const auto task = static_cast<size_t>(t);
    return std::max(1.0, tasks_[task].cost_ns);
  }

  std::vector<Task>& tasks_;
  const Dependences& dependences_;
  const bool warm_caches_;
  std::vector<double> total_, load_;  // per worker: over all levels, in this level
  std::vector<int> twins_;            // per task: the same tile of the previous identical group, or -1
  double levels_ns_ = 0;
  int64_t num_twins_ = 0, num_kept_ = 0;
};

}  // namespace

std::vector<std::vector<int>> place(std::vector<Task>& tasks, const Dependences& dependences, int num_workers,
                                    bool warm_caches, PlaceReport* report) {
  MEGALITH_CHECK(num_workers >= 1, "[place] the number of workers is {}, want at least 1", num_workers);
  const std::vector<int> level_of = find_levels(dependences);
  std::vector<std::vector<int>> levels;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const size_t level = static_cast<size_t>(level_of[t]);
    if (level >= levels.size()) levels.resize(level + 1);
    levels[level].push_back(static_cast<int>(t));
  }

  Placer placer(tasks, dependences, num_workers, warm_caches);
  for (std::vector<int>& level : levels) placer.place_level(level);

  std::vector<std::vector<int>> workers(static_cast<size_t>(num_workers));
  for (size_t t = 0; t < tasks.size(); ++t)
    workers[static_cast<size_t>(tasks[t].worker)].push_back(static_cast<int>(t));

  if (report) {
    report->worker_cost_ns = placer.total();
    const double sum = std::accumulate(placer.total().begin(), placer.total().end(), 0.0);
    const double largest = *std::max_element(placer.total().begin(), placer.total().end());
    report->imbalance = sum > 0 ? largest / (sum / num_workers) - 1 : 0;
    report->levels_ns = placer.levels_ns();
    report->num_levels = static_cast<int>(levels.size());
    report->affinity = placer.affinity();
  }
  return workers;
}

}  // namespace megalith::task
