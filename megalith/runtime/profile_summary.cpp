#include "megalith/runtime/profile_summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/runtime/profile_causes.h"

namespace megalith::runtime {

namespace {

constexpr const char *kGate = "gate", *kEvents = "events";
constexpr double kSlowStep = 2;  // medians; a step that takes longer says more about the machine than about the graph

double since(u64 later, u64 earlier) { return static_cast<double>(static_cast<i64>(later - earlier)); }

/// Records by iteration, and how long each took.
class Steps {
 public:
  Steps(const Profile& profile, const task::TaskGraph& graph) {
    std::map<u32, size_t> complete;  // iteration -> workers whose records of it are all there
    size_t num_busy = 0;
    MEGALITH_ASSERT(profile.workers.size() == graph.workers.size(), "[profile] records of {} workers, but {} has {}",
                    profile.workers.size(), graph.name, graph.workers.size());
    for (size_t w = 0; w < graph.workers.size(); ++w) {
      if (graph.workers[w].empty()) continue;
      ++num_busy;
      std::map<u32, size_t> counts;
      for (const ProfileRecord& record : profile.workers[w]) {
        MEGALITH_ASSERT(record.task < graph.tasks.size(), "[profile] worker {} has a record of task {} of {}", w,
                        record.task, graph.tasks.size());
        ++counts[record.iteration];
      }
      for (const auto& [iteration, count] : counts) complete[iteration] += count == graph.workers[w].size();
    }
    for (const auto& [iteration, count] : complete)
      if (count == num_busy) iterations_.push_back(iteration);
    MEGALITH_CHECK(iterations_.size() >= 2,
                   "[profile] of {} whole iterations there are records, want at least 2: run more tokens",
                   iterations_.size());
    for (const std::vector<ProfileRecord>& records : profile.workers)
      for (const ProfileRecord& record : records) {
        u64& end = iteration_ends_[record.iteration];
        end = std::max(end, record.end_ns);
      }
    for (size_t i = 1; i < iterations_.size(); ++i)
      lengths_[iterations_[i]] = since(end_of(iterations_[i]), end_of(iterations_[i] - 1));
  }

  /// How long each step took: from the end of the iteration before, so there is one less than there are iterations.
  const std::map<u32, double>& lengths() const { return lengths_; }
  /// When its last task ended, of all workers.
  u64 end_of(u32 iteration) const { return iteration_ends_.at(iteration); }

 private:
  std::vector<u32> iterations_;    // whole ones; they follow each other, since rings forget from one end
  std::map<u32, double> lengths_;  // ns, by iteration
  std::map<u32, u64> iteration_ends_;
};

struct Sums {
  std::map<std::string, ProfileSummary::Operator> operators;
  std::map<std::array<std::string, 3>, ProfileSummary::Waiting> waits;  // by waiter, cause and what came through
  std::map<std::pair<u32, int>, std::vector<double>> busy_of_node;      // (iteration, node) -> per worker
  std::map<u32, std::vector<u64>> last_end;                             // iteration -> per worker
};

void add_waiting(Sums* sums, const std::string& waiter, const std::string& cause, const std::string& through,
                 double waiting_ns, double after_signal_ns) {
  ProfileSummary::Waiting& sum = sums->waits[{waiter, cause, through}];
  sum.waiter = waiter;
  sum.cause = cause;
  sum.through = through;
  sum.waiting_ns += waiting_ns;
  sum.after_signal_ns += std::clamp(after_signal_ns, 0.0, waiting_ns);
}

void divide(ProfileSummary* summary, double steps) {
  for (ProfileSummary::Worker& worker : summary->workers)
    for (double* ns :
         {&worker.busy_ns, &worker.waiting_ns, &worker.gate_ns, &worker.idle_waiting_ns, &worker.idle_busy_ns})
      *ns /= steps;
  for (ProfileSummary::Operator& op : summary->operators)
    for (double* sum : {&op.busy_ns, &op.tasks, &op.uneven_ns, &op.idle_ns}) *sum /= steps;
  for (ProfileSummary::Waiting& waiting : summary->waits)
    for (double* ns : {&waiting.waiting_ns, &waiting.after_signal_ns}) *ns /= steps;
}

double share_of(const ProfileSummary& summary, double ProfileSummary::Worker::*part) {
  double sum = 0;
  for (const ProfileSummary::Worker& worker : summary.workers) sum += worker.*part;
  const double all = summary.step_ns * static_cast<double>(summary.workers.size());
  return all > 0 ? sum / all : 0;
}

}  // namespace

ProfileSummary profile_summarize(const Profile& profile, const task::TaskGraph& graph,
                                 const std::vector<std::string>& operators) {
  const Steps steps(profile, graph);
  const ProfileCauses causes(profile, graph);
  const size_t num_workers = graph.workers.size();
  auto operator_of = [&](u32 task) -> const std::string& {
    return operators.at(static_cast<size_t>(graph.tasks[task].node));
  };

  auto name_of = [&](const ProfileCause& cause) { return cause.task == kNone ? "?" : operator_of(cause.task); };
  // Whose signal opened the gate for the iteration after this one.
  auto gate_of = [&](u32 iteration) { return graph.gate ? causes.of_event(*graph.gate, iteration) : ProfileCause{}; };

  ProfileSummary summary;
  summary.has_streams = profile.has_streams;
  summary.clock_rate = profile.clock_rate;
  std::set<u32> kept;  // iterations that count
  std::vector<double> lengths;
  for (const auto& [iteration, ns] : steps.lengths()) lengths.push_back(ns);
  std::sort(lengths.begin(), lengths.end());
  summary.median_step_ns = lengths[lengths.size() / 2];
  summary.longest_step_ns = lengths.back();
  for (const auto& [iteration, ns] : steps.lengths())
    if (ns <= kSlowStep * summary.median_step_ns) {
      kept.insert(iteration);
      summary.step_ns += ns;
    }
  summary.steps = static_cast<int64_t>(kept.size());
  summary.slow_steps = static_cast<int64_t>(lengths.size() - kept.size());
  summary.workers.resize(num_workers);
  Sums sums;
  for (size_t w = 0; w < num_workers; ++w) {
    const ProfileRecord* previous = nullptr;
    for (const ProfileRecord& record : profile.workers[w]) {
      if (kept.contains(record.iteration)) {
        std::vector<u64>& last = sums.last_end[record.iteration];
        last.resize(num_workers);
        last[w] = record.end_ns;
        const double waiting = since(record.ready_ns, record.begin_ns), busy = since(record.end_ns, record.ready_ns);
        if (previous != nullptr && previous->iteration != record.iteration) {
          // What the worker spent at the gate before the last step was over belongs to that one: its tail.
          const u64 from = std::max(previous->end_ns, steps.end_of(record.iteration - 1));
          const double gate = std::max(0.0, since(record.begin_ns, from));
          summary.workers[w].gate_ns += gate;
          const ProfileCause cause = gate_of(record.iteration - 1);
          add_waiting(&sums, kGate, name_of(cause), kEvents, gate,
                      cause.task == kNone ? 0 : since(record.begin_ns, cause.end_ns));
        }
        summary.workers[w].waiting_ns += waiting;
        summary.workers[w].busy_ns += busy;
        summary.workers[w].idle_waiting_ns += record.idle_waiting_ns;
        summary.workers[w].idle_busy_ns += record.idle_busy_ns;
        if (const auto cause = causes.last_of(record))
          add_waiting(&sums, operator_of(record.task), name_of(*cause), causes.kind_of(*cause), waiting,
                      cause->task == kNone ? 0 : since(record.ready_ns, cause->end_ns));
        ProfileSummary::Operator& op = sums.operators[operator_of(record.task)];
        op.busy_ns += busy;
        op.tasks += 1;
        op.idle_ns += static_cast<double>(record.idle_waiting_ns) + record.idle_busy_ns;
        op.longest_ns = std::max(op.longest_ns, busy);
        std::vector<double>& of_node = sums.busy_of_node[{record.iteration, graph.tasks[record.task].node}];
        of_node.resize(num_workers);
        of_node[w] += busy;
      }
      previous = &record;
    }
  }

  for (const auto& [where, busy] : sums.busy_of_node) {
    double total = 0;
    for (double ns : busy) total += ns;
    sums.operators[operators.at(static_cast<size_t>(where.second))].uneven_ns +=
        *std::max_element(busy.begin(), busy.end()) - total / static_cast<double>(num_workers);
  }
  for (const auto& [iteration, ends] : sums.last_end) {
    for (size_t w = 0; w < num_workers; ++w) {
      if (graph.workers[w].empty()) continue;
      const double tail = since(steps.end_of(iteration), ends[w]);
      summary.tail_ns += tail / static_cast<double>(num_workers);
      summary.workers[w].gate_ns += tail;
      if (tail > 0) add_waiting(&sums, kGate, name_of(gate_of(iteration)), kEvents, tail, 0);
    }
  }
  const auto count = static_cast<double>(summary.steps);
  summary.step_ns /= count;
  summary.tail_ns /= count;
  for (auto& [name, op] : sums.operators) {
    op.name = name;
    summary.operators.push_back(op);
  }
  for (auto& [names, waiting] : sums.waits) summary.waits.push_back(waiting);
  divide(&summary, count);
  std::stable_sort(summary.operators.begin(), summary.operators.end(),
                   [](const auto& a, const auto& b) { return a.busy_ns > b.busy_ns; });
  std::stable_sort(summary.waits.begin(), summary.waits.end(),
                   [](const auto& a, const auto& b) { return a.waiting_ns > b.waiting_ns; });
  return summary;
}

double ProfileSummary::busy_share() const { return share_of(*this, &Worker::busy_ns); }
double ProfileSummary::waiting_share() const { return share_of(*this, &Worker::waiting_ns); }
double ProfileSummary::gate_share() const { return share_of(*this, &Worker::gate_ns); }
double ProfileSummary::idle_waiting_share() const { return share_of(*this, &Worker::idle_waiting_ns); }
double ProfileSummary::idle_busy_share() const { return share_of(*this, &Worker::idle_busy_ns); }

std::string ProfileSummary::bound() const {
  const double all = step_ns * static_cast<double>(workers.size());
  auto percent = [&](double ns) { return all > 0 ? 100 * ns / all : 0; };
  constexpr double kMostlyBusy = 0.8, kHardlyIdle = 0.1;
  if (has_streams) {
    const double waiting = idle_waiting_share(), busy = idle_busy_share();
    const std::string idle = fmt::format(
        "the streams of weights are idle {:.0f} % of the step, {:.0f} % while tasks wait and {:.0f} % while "
        "they run",
        100 * (waiting + busy), 100 * waiting, 100 * busy);
    if (waiting + busy < kHardlyIdle) return "bound by memory: " + idle;
    if (busy >= waiting) {
      const auto most = std::ranges::max_element(operators, {}, &Operator::idle_ns);
      return fmt::format("bound by work: {}; most, {:.0f} %, in {}", idle, percent(most->idle_ns), most->name);
    }
    if (!waits.empty())
      return fmt::format("bound by waiting: {}; the largest wait, {:.0f} % of the step, is {} for {}", idle,
                         percent(waits[0].waiting_ns), waits[0].waiter, waits[0].cause);
  }
  if (busy_share() >= kMostlyBusy && !operators.empty())
    return fmt::format("bound by work: workers are busy {:.0f} % of the step, {:.0f} % of it in {}", 100 * busy_share(),
                       percent(operators[0].busy_ns), operators[0].name);
  if (waits.empty()) return "bound by nothing that was recorded";
  return fmt::format(
      "bound by waiting: workers are busy {:.0f} % of the step; the largest wait, {:.0f} % of it, is {} for {}",
      100 * busy_share(), percent(waits[0].waiting_ns), waits[0].waiter, waits[0].cause);
}

}  // namespace megalith::runtime
