#include "megalith/task/verify_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "megalith/task/verify_parts.h"

namespace megalith::task {

namespace {

using verifier::Findings;

size_t at(int index) { return static_cast<size_t>(index); }

/// What of a buffer nobody has written yet, as boxes without a common element.
class Unwritten {
 public:
  explicit Unwritten(const Buffer& buffer) {
    loop::Box all{loop::Corner(buffer.shape.size(), 0), loop::Corner(buffer.shape)};
    if (!verifier::touches_nothing(all)) boxes_.push_back(std::move(all));
  }
  void write(const loop::Box& box) {
    if (verifier::touches_nothing(box)) return;
    std::vector<loop::Box> left;
    for (loop::Box& old : boxes_)
      if (verifier::meet(old, box))
        cut(std::move(old), box, left);
      else
        left.push_back(std::move(old));
    boxes_ = std::move(left);
  }
  bool meets(const loop::Box& box) const {
    return !verifier::touches_nothing(box) &&
           std::ranges::any_of(boxes_, [&](const loop::Box& old) { return verifier::meet(old, box); });
  }
  size_t size() const { return boxes_.size(); }

 private:
  static void cut(loop::Box old, const loop::Box& box, std::vector<loop::Box>& left) {
    for (size_t d = 0; d < box.lo.size(); ++d) {
      if (old.lo[d] < box.lo[d]) {
        left.push_back(old);
        left.back().hi[d] = old.lo[d] = box.lo[d];
      }
      if (old.hi[d] > box.hi[d]) {
        left.push_back(old);
        left.back().lo[d] = old.hi[d] = box.hi[d];
      }
    }
  }

  std::vector<loop::Box> boxes_;
};

class Changes {
 public:
  Changes(std::span<const Turn> turns, const ChangeTables& tables, Findings& findings)
      : turns_(turns), tables_(tables), findings_(findings), uses_(turns.size()), resized_(turns.size()) {}

  void check() {
    for (size_t k = 0; k < turns_.size(); ++k) note_uses(k);
    check_loads();
    for (size_t k = 0; k < turns_.size(); ++k) {
      check_border(k);
      if (k + 1 < turns_.size()) check_shared(k);
    }
    for (size_t k = 0; k < turns_.size(); ++k) {
      check_rows(k);
      check_carried(k);
    }
  }

 private:
  static constexpr size_t kMaxBoxes = 1 << 14;  // that a buffer may be cut into
  struct Use {
    std::vector<char> is_read, is_written;              // per buffer
    std::unordered_map<std::string_view, int> lasting;  // states and constants
    int ending = -1;                                    // the task that signals the gate
  };

  template <class... Args>
  void add(int buffer, std::vector<int> tasks, fmt::format_string<Args...> format, Args&&... args) {
    findings_.add(FindingKind::change, std::move(tasks), -1, buffer, fmt::format(format, std::forward<Args>(args)...));
  }
  const TaskGraph& graph(size_t k) const { return *turns_[k].tasks; }
  std::string name(size_t k) const { return fmt::format("the kernel for {} tokens", turns_[k].rows); }
  const Buffer* find(size_t k, const std::string& state, int* index = nullptr) const {
    const auto found = uses_[k].lasting.find(state);
    if (found == uses_[k].lasting.end()) return nullptr;
    if (index != nullptr) *index = found->second;
    return &graph(k).buffers[at(found->second)];
  }
  static int64_t lines(const Buffer& buffer) { return buffer.shape.empty() ? 1 : buffer.shape[0]; }
  bool is_laid_out(const std::string& state) const { return std::ranges::count(tables_.laid_out, state) != 0; }

  void note_uses(size_t k) {
    Use& use = uses_[k];
    const TaskGraph& g = graph(k);
    use.is_read.resize(g.buffers.size());
    use.is_written.resize(g.buffers.size());
    for (const Task& task : g.tasks) {
      for (const Region& region : task.reads) use.is_read[at(region.buffer)] = 1;
      for (const Region& region : task.writes) use.is_written[at(region.buffer)] = 1;
    }
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (is_lasting(g.buffers[b])) use.lasting[g.buffers[b].name] = static_cast<int>(b);
    resized_[k].resize(g.buffers.size());
  }
  static bool is_lasting(const Buffer& buffer) {
    return buffer.memory == Memory::state || buffer.memory == Memory::constant;
  }

  void check_loads() {
    for (size_t k = 0; k < turns_.size(); ++k) {
      const Turn& turn = turns_[k];
      if (turn.least >= turn.most) {
        add(-1, {}, "{} works while more than {} tokens wait and at most {}, which is never", name(k), turn.least,
            turn.most);
        continue;
      }
      const int64_t before = k == 0 ? 0 : turns_[k - 1].most;
      const std::string behind = k == 0 ? "" : fmt::format(", and {} ends with {}", name(k - 1), before);
      if (k > 0 && turns_[k - 1].rows >= turn.rows)
        add(-1, {}, "{} stands behind {}, want more and more", name(k), name(k - 1));
      if (turn.least > before)
        add(-1, {}, "no kernel works while {} tokens wait: {} begins with {}{}", before + 1, name(k), turn.least + 1,
            behind);
      if (turn.least < before)
        add(-1, {}, "two kernels work while {} tokens wait: {} begins with {}{}", before, name(k), turn.least + 1,
            behind);
      if (k + 1 < turns_.size() && turn.most > turn.rows)
        add(-1, {}, "{} works while {} tokens wait, which are more than it has rows", name(k), turn.most);
    }
    if (turns_.back().most < kAnyLoad)
      add(-1, {}, "no kernel works while more than {} tokens wait: {} ends there", turns_.back().most,
          name(turns_.size() - 1));
  }

  void check_rows(size_t k) {
    const Turn& turn = turns_[k];
    const Buffer* const rows = find(k, tables_.rows);
    const Buffer* const samples = find(k, tables_.samples);
    const Buffer* const requests = find(k, tables_.requests);
    for (const auto& [table, state] :
         {std::pair(rows, &tables_.rows), std::pair(samples, &tables_.samples), std::pair(requests, &tables_.requests)})
      if (table == nullptr) add(-1, {}, "{} has no state \"{}\"", name(k), *state);
    if (rows == nullptr || samples == nullptr || requests == nullptr) return;
    if (lines(*rows) != turn.rows) add(-1, {}, "{} has {} rows in \"{}\"", name(k), lines(*rows), rows->name);
    if (const int64_t wanted = std::min(turn.rows, lines(*requests)); lines(*samples) < wanted)
      add(-1, {}, "{} has {} lines in \"{}\", want one for each of {} sequences", name(k), lines(*samples),
          samples->name, wanted);
    if (k + 1 == turns_.size() && turn.rows < lines(*requests))
      add(-1, {}, "no kernel has a row for each of the {} sequences of \"{}\": {} has the most", lines(*requests),
          requests->name, name(k));
  }

  void check_border(size_t k) {
    const TaskGraph& g = graph(k);
    if (!g.gate) {
      add(-1, {}, "{} has no gate, so its workers would not end together", name(k));
      return;
    }
    std::vector<int> ending;
    for (size_t t = 0; t < g.tasks.size(); ++t)
      if (std::ranges::count(g.tasks[t].signals, *g.gate) != 0) ending.push_back(static_cast<int>(t));
    if (ending.size() != 1) {
      add(-1, ending, "{} tasks of {} signal its gate \"{}\", want one that ends an iteration", ending.size(), name(k),
          g.events[at(*g.gate)].name);
      return;
    }
    uses_[k].ending = ending[0];
    const Task& ends = g.tasks[at(ending[0])];
    for (const std::string& state : tables_.laid_out) {
      int b = -1;
      const Buffer* const buffer = find(k, state, &b);
      if (buffer == nullptr) {
        add(-1, {}, "{} has no state \"{}\", which a change lays out", name(k), state);
        continue;
      }
      Unwritten left(*buffer);
      for (const Region& region : ends.writes)
        if (region.buffer == b && !region.is_scatter()) left.write(region.box);
      if (left.size() > 0)
        add(b, {ending[0]},
            "task \"{}\" of {} ends an iteration and does not write all of \"{}\", which a change lays out", ends.name,
            name(k), state);
      for (size_t t = 0; t < g.tasks.size(); ++t)
        if (static_cast<int>(t) > ending[0] && std::ranges::count(g.tasks[t].writes, b, &Region::buffer) != 0)
          add(b, {static_cast<int>(t)}, "task \"{}\" of {} writes \"{}\" behind \"{}\", which ends an iteration",
              g.tasks[t].name, name(k), state, ends.name);
    }
    if (!is_laid_out(tables_.stop))
      add(-1, {}, "a change does not lay out \"{}\", so the next kernel ends as it begins", tables_.stop);
  }

  // With the last kernel, whose memory it is; what both have in the same way any two have.
  void check_shared(size_t k) {
    const size_t last = turns_.size() - 1;
    for (size_t b = 0; b < graph(last).buffers.size(); ++b)
      if (const Buffer& theirs = graph(last).buffers[b]; is_lasting(theirs) && find(k, theirs.name) == nullptr)
        add(static_cast<int>(b), {}, "only {} has the {} \"{}\", {} does not", name(last), kind_of(theirs), theirs.name,
            name(k));
    for (size_t b = 0; b < graph(k).buffers.size(); ++b) {
      const Buffer& ours = graph(k).buffers[b];
      if (!is_lasting(ours)) continue;
      int other = -1;
      const Buffer* const theirs = find(last, ours.name, &other);
      if (theirs == nullptr)
        add(static_cast<int>(b), {}, "only {} has the {} \"{}\", {} does not", name(k), kind_of(ours), ours.name,
            name(last));
      else
        check_shared(k, b, *theirs, at(other));
    }
  }
  static const char* kind_of(const Buffer& buffer) { return kMemoryNames[static_cast<size_t>(buffer.memory)]; }

  void check_shared(size_t k, size_t b, const Buffer& theirs, size_t other) {
    const size_t last = turns_.size() - 1;
    const Buffer& ours = graph(k).buffers[b];
    const int index = static_cast<int>(b);
    const auto text = [](const Buffer& buffer) {
      return fmt::format("{} {} [{}]", kind_of(buffer), dtype_name(buffer.dtype), fmt::join(buffer.shape, ", "));
    };
    const auto line = [](const Buffer& buffer) {
      return std::span(buffer.shape).subspan(std::min<size_t>(1, buffer.shape.size()));
    };
    const bool is_resized = lines(ours) != lines(theirs);
    if (ours.memory != theirs.memory || ours.dtype != theirs.dtype || ours.shape.size() != theirs.shape.size() ||
        !std::ranges::equal(line(ours), line(theirs)) || (is_resized && ours.memory == Memory::constant)) {
      add(index, {}, "\"{}\" is {} in {} and {} in {}", ours.name, text(ours), name(k), text(theirs), name(last));
      return;
    }
    if (lines(ours) > lines(theirs))
      add(index, {}, "\"{}\" has {} lines in {}, and memory for {}: it is that of {}", ours.name, lines(ours), name(k),
          lines(theirs), name(last));
    const bool is_of_lines = std::ranges::any_of(tables_.lines, [&](const std::string& table) {
      const Buffer *const here = find(k, table), *const there = find(last, table);
      return here != nullptr && there != nullptr && lines(*here) == lines(ours) && lines(*there) == lines(theirs);
    });
    if (is_resized && !is_of_lines)
      add(index, {}, "\"{}\" has {} lines in {} and {} in {}, as none of \"{}\"", ours.name, lines(ours), name(k),
          lines(theirs), name(last), fmt::join(tables_.lines, "\", \""));
    resized_[k][b] |= is_resized;
    resized_[last][other] |= is_resized;
    const graph::Layout layout = turns_[k].layouts[b], wanted = turns_[last].layouts[other];
    if (ours.memory == Memory::state && layout != wanted)
      add(index, {}, "\"{}\" lies in {} for {} and in {} for {}", ours.name,
          graph::kLayoutNames[static_cast<size_t>(layout)], name(k), graph::kLayoutNames[static_cast<size_t>(wanted)],
          name(last));
    for (const bool writes : {false, true}) {
      const auto uses = [&](size_t kernel, size_t buffer) {
        return (writes ? uses_[kernel].is_written : uses_[kernel].is_read)[buffer] != 0;
      };
      if (uses(k, b) == uses(last, other)) continue;
      const size_t does = uses(k, b) ? k : last, does_not = uses(k, b) ? last : k;
      add(index, {}, "{} {} \"{}\" and {} does not", name(does), writes ? "writes" : "reads", ours.name,
          name(does_not));
    }
  }

  // What a node both writes and reads, as one operand, it makes: its loop kernel says in which order.
  static bool reads_unwritten(const Unwritten& unwritten, const Task& task, const Region& read) {
    if (!unwritten.meets(read.box)) return false;
    Unwritten left = unwritten;
    for (const Region& write : task.writes)
      if (write.buffer == read.buffer && write.operand >= 0 && write.operand == read.operand) left.write(write.box);
    return left.meets(read.box);
  }

  void check_carried(size_t k) {
    const TaskGraph& g = graph(k);
    std::vector<int> number(g.buffers.size(), -1);
    std::vector<Unwritten> unwritten;
    for (size_t b = 0; b < g.buffers.size(); ++b) {
      const bool is_lost = !is_lasting(g.buffers[b]);
      if (!is_lost && (!resized_[k][b] || is_laid_out(g.buffers[b].name))) continue;
      number[b] = static_cast<int>(unwritten.size());
      unwritten.emplace_back(g.buffers[b]);
    }
    for (size_t t = 0; t < g.tasks.size(); ++t) {
      for (const Region& region : g.tasks[t].reads) {
        const int n = number[at(region.buffer)];
        if (n < 0 || !reads_unwritten(unwritten[at(n)], g.tasks[t], region)) continue;
        const Buffer& buffer = g.buffers[at(region.buffer)];
        add(region.buffer, {static_cast<int>(t)},
            "task \"{}\" of {} reads \"{}\" {}, which nothing has written before in its iteration: what another kernel "
            "left {}",
            g.tasks[t].name, name(k), buffer.name, verifier::box_text(region.box),
            is_lasting(buffer) ? "has other rows" : "is not there");
        number[at(region.buffer)] = -1;  // once is enough
      }
      for (const Region& region : g.tasks[t].writes) {
        const int n = number[at(region.buffer)];
        if (n < 0 || region.is_scatter()) continue;
        unwritten[at(n)].write(region.box);
        if (unwritten[at(n)].size() <= kMaxBoxes) continue;
        add(region.buffer, {}, "\"{}\" of {} is written in too many pieces to be looked at",
            g.buffers[at(region.buffer)].name, name(k));
        number[at(region.buffer)] = -1;
      }
    }
  }

  const std::span<const Turn> turns_;
  const ChangeTables& tables_;
  Findings& findings_;
  std::vector<Use> uses_;
  std::vector<std::vector<char>> resized_;  // per kernel and buffer: another kernel has another number of rows of it
};

}  // namespace

VerifyResult verify_changes(std::span<const Turn> turns, const ChangeTables& tables) {
  Findings findings;
  if (!turns.empty()) Changes(turns, tables, findings).check();
  return {.findings = findings.take()};
}

}  // namespace megalith::task
