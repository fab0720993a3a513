#include "megalith/task/plan.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/task/dependence.h"
#include "megalith/task/order.h"

namespace megalith::task {

namespace {

// What the steps rely on; the verifier looks at everything else.
void check_input(const std::vector<Task>& tasks, const std::vector<Buffer>& buffers, const PlanOptions& options) {
  for (const Task& task : tasks)
    for (bool writes : {false, true})
      for (const Region& region : writes ? task.writes : task.reads) {
        MEGALITH_ASSERT(region.buffer >= 0 && region.buffer < static_cast<int>(buffers.size()),
                        "[plan] task \"{}\" touches buffer {} of {}", task.name, region.buffer, buffers.size());
        const Buffer& buffer = buffers[static_cast<size_t>(region.buffer)];
        MEGALITH_ASSERT(region.box.lo.size() == buffer.shape.size() && region.box.hi.size() == buffer.shape.size(),
                        "[plan] task \"{}\" touches buffer \"{}\" of rank {} with a box of rank {}", task.name,
                        buffer.name, buffer.shape.size(), region.box.lo.size());
      }
  MEGALITH_ASSERT(
      !options.gate_task || (*options.gate_task >= 0 && *options.gate_task < static_cast<int>(tasks.size())),
      "[plan] the gate's task is {} of {}", *options.gate_task, tasks.size());
}

void set_bytes(std::vector<Buffer>& buffers) {
  for (Buffer& buffer : buffers) {
    buffer.bytes = dtype_bytes(buffer.dtype) * (buffer.memory == Memory::exchange ? 2 : 1);
    for (int64_t size : buffer.shape) buffer.bytes *= size;
  }
}

// Who waits for words gets no event, so nothing but the gate may keep it from being an iteration ahead of the counters
// of those that read beside it. Where the gate does not (there is none, or it stands too early) words get events, too.
bool only_overruns(const VerifyResult& proof) {
  auto is_overrun = [](const Finding& finding) { return finding.kind == FindingKind::overrun; };
  return !proof.ok() && std::all_of(proof.findings.begin(), proof.findings.end(), is_overrun);
}

bool wait_for_words(Dependences& dependences) {
  bool any = false;
  for (size_t t = 0; t < dependences.words.size(); ++t) {
    std::vector<int>&words = dependences.words[t], &within = dependences.within[t];
    any |= !words.empty();
    within.insert(within.end(), words.begin(), words.end());
    words.clear();
  }
  return any;
}

class Steps {
 public:
  explicit Steps(PlanReport& report) : report_(report) {}
  template <class Step>
  auto operator()(const char* name, Step&& step) {
    const auto start = std::chrono::steady_clock::now();
    auto result = step();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    report_.steps.push_back({name, elapsed.count()});
    return result;
  }

 private:
  PlanReport& report_;
};

}  // namespace

TaskGraph plan(std::vector<Task> tasks, std::vector<Buffer> buffers, const PlanOptions& options, PlanReport* report) {
  PlanReport unused;
  PlanReport& r = report ? *report : unused;
  r = {};
  Steps step(r);
  check_input(tasks, buffers, options);
  set_bytes(buffers);

  TaskGraph graph{.name = options.name, .tasks = std::move(tasks), .buffers = std::move(buffers)};
  Dependences dependences = step("dependences", [&] { return find_dependences(graph.tasks, graph.buffers); });
  graph.workers = step(
      "placement", [&] { return place(graph.tasks, dependences, options.num_workers, options.warm_caches, &r.place); });
  if (options.gate_task) add_gate_dependence(dependences, graph.workers, *options.gate_task);
  auto connect = [&] {
    const Order order = step("order", [&] { return Order(graph.tasks, graph.workers, dependences); });
    graph.arena_bytes =
        step("arena", [&] { return assign_arena(graph.buffers, graph.tasks, order, &r.arena, options.reuse_arena); });
    step("events", [&] { return make_events(graph, dependences, order, options.gate_task, &r.events), 0; });
    return step("verify", [&] { return verify(graph); });
  };
  VerifyResult proof = connect();
  if (only_overruns(proof) && wait_for_words(dependences)) proof = connect();
  r.num_relations = dependences.num_relations;
  r.num_relations_shared = dependences.num_relations_shared;
  MEGALITH_ASSERT(proof.ok(), "[plan] the task graph \"{}\" is not sound:\n{}", graph.name, proof.text());
  return graph;
}

std::string PlanReport::text() const {
  std::string text;
  for (const Step& step : steps) text += fmt::format("{:<12} {:9.2f} ms\n", step.name, step.ms);
  text += fmt::format("relations    {} worked out, {} shared\n", num_relations, num_relations_shared);
  text +=
      fmt::format("workers      {}, imbalance {:.2f} %, {} levels, {:.1f} us an iteration if levels were barriers\n",
                  place.worker_cost_ns.size(), 100 * place.imbalance, place.num_levels, place.levels_ns / 1e3);
  text += fmt::format("arena        {} bytes, {} without reuse, {} buffers\n", arena.bytes, arena.bytes_without_reuse,
                      arena.num_buffers);
  text += fmt::format("events       {}, {} waits ({} on the iteration before), {} signals, from {} candidates\n",
                      events.num_events, events.num_waits, events.num_waits_carried, events.num_signals,
                      events.num_candidates);
  return text;
}

}  // namespace megalith::task
