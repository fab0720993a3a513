#include "megalith/task/arena.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "megalith/task/region.h"

namespace megalith::task {

namespace {

// When a buffer is in use: `last` is after all accesses, `first` before all of them, as clocks over the workers.
struct Life {
  int buffer = 0;
  int64_t bytes = 0;  // rounded up
  int first_task = std::numeric_limits<int>::max(), last_task = -1;
  std::vector<int> last;   // per worker: position of the last task that touches it
  std::vector<int> first;  // per worker: how many tasks of that list precede every task that touches it
  bool kept = false;
};

// True if some task reads what no task before it in the program has written: the value comes from the iteration before.
class ReadBeforeWrite {
 public:
  void read(const loop::Box& box) {
    if (found_ || box_empty(box)) return;
    if (covered_at_ == written_.size() && covered_ == box) return;  // the neighbour has asked just this
    std::vector<loop::Box> rest = {box};
    for (size_t i = 0; i < written_.size() && !rest.empty(); ++i)
      if (box_intersects(written_[i], box)) box_subtract(rest, written_[i]);
    found_ = !rest.empty();
    covered_ = box;
    covered_at_ = written_.size();
  }
  void write(const loop::Box& box) {
    if (!found_ && !box_empty(box)) written_.push_back(box);
  }
  bool found() const { return found_; }

 private:
  std::vector<loop::Box> written_;
  loop::Box covered_;
  size_t covered_at_ = std::numeric_limits<size_t>::max();
  bool found_ = false;
};

std::vector<Life> find_lives(const std::vector<Buffer>& buffers, const std::vector<Task>& tasks, const Order& order) {
  const int num_workers = order.num_workers();
  std::vector<Life> lives;
  std::vector<ReadBeforeWrite> values;
  std::vector<int> life_of(buffers.size(), -1);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].memory != Memory::arena) continue;
    life_of[b] = static_cast<int>(lives.size());
    Life life;
    life.buffer = static_cast<int>(b);
    life.bytes = (buffers[b].bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    life.last.assign(static_cast<size_t>(num_workers), 0);
    life.first.assign(static_cast<size_t>(num_workers), std::numeric_limits<int>::max());
    lives.push_back(std::move(life));
  }
  values.resize(lives.size());

  for (size_t t = 0; t < tasks.size(); ++t) {
    const size_t worker = static_cast<size_t>(tasks[t].worker);
    const int* clock = order.clock(static_cast<int>(t));
    for (bool writes : {false, true})
      for (const Region& region : writes ? tasks[t].writes : tasks[t].reads) {
        const int index = life_of[static_cast<size_t>(region.buffer)];
        if (index < 0) continue;
        Life& life = lives[static_cast<size_t>(index)];
        ReadBeforeWrite& value = values[static_cast<size_t>(index)];
        writes ? value.write(region.box) : value.read(region.box);
        if (life.last_task == static_cast<int>(t)) continue;
        life.first_task = std::min(life.first_task, static_cast<int>(t));
        life.last_task = static_cast<int>(t);
        life.last[worker] = order.position(static_cast<int>(t));
        for (int w = 0; w < num_workers; ++w) {
          // What strictly precedes this task: a task that touches both buffers keeps them apart.
          const int before = clock[w] - (w == static_cast<int>(worker) ? 1 : 0);
          life.first[static_cast<size_t>(w)] = std::min(life.first[static_cast<size_t>(w)], before);
        }
      }
  }
  for (size_t i = 0; i < lives.size(); ++i) lives[i].kept = values[i].found();
  return lives;
}

bool entirely_before(const Life& a, const Life& b) {
  if (a.last_task >= b.first_task) return false;  // cheap, and nearly always enough: happens-before follows the program
  for (size_t w = 0; w < a.last.size(); ++w)
    if (a.last[w] > b.first[w]) return false;
  return true;
}

bool may_share(const Life& a, const Life& b) {
  return !a.kept && !b.kept && (entirely_before(a, b) || entirely_before(b, a));
}

struct Fit {
  std::vector<int64_t> offsets;  // per life
  int64_t bytes = 0;
};

Fit first_fit(const std::vector<Life>& lives, const std::vector<size_t>& sequence,
              const std::vector<std::vector<size_t>>& conflicts) {
  Fit fit;
  fit.offsets.assign(lives.size(), -1);
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t i : sequence) {
    taken.clear();
    for (size_t other : conflicts[i])
      if (fit.offsets[other] >= 0) taken.emplace_back(fit.offsets[other], fit.offsets[other] + lives[other].bytes);
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - offset >= lives[i].bytes) break;
      offset = std::max(offset, end);
    }
    fit.offsets[i] = offset;
    fit.bytes = std::max(fit.bytes, offset + lives[i].bytes);
  }
  return fit;
}

}  // namespace

int64_t assign_arena(std::vector<Buffer>& buffers, const std::vector<Task>& tasks, const Order& order,
                     ArenaReport* report, bool reuse) {
  const std::vector<Life> lives = find_lives(buffers, tasks, order);
  std::vector<std::vector<size_t>> conflicts(lives.size());
  for (size_t i = 0; i < lives.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!reuse || !may_share(lives[i], lives[j])) conflicts[i].push_back(j), conflicts[j].push_back(i);

  std::vector<size_t> by_time(lives.size());
  for (size_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](size_t a, size_t b) { return lives[a].first_task < lives[b].first_task; });
  std::vector<size_t> by_size = by_time;
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });
  const Fit in_time = first_fit(lives, by_time, conflicts);
  const Fit in_size = first_fit(lives, by_size, conflicts);
  const Fit& best = in_size.bytes < in_time.bytes ? in_size : in_time;

  for (Buffer& buffer : buffers) buffer.offset = 0;
  ArenaReport counts;
  for (size_t i = 0; i < lives.size(); ++i) {
    buffers[static_cast<size_t>(lives[i].buffer)].offset = best.offsets[i];
    counts.bytes_without_reuse += lives[i].bytes;
    counts.num_kept += lives[i].kept;
  }
  counts.bytes = best.bytes;
  counts.num_buffers = static_cast<int>(lives.size());
  if (report) *report = counts;
  return best.bytes;
}

}  // namespace megalith::task
