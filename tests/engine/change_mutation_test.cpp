// The mutation campaign over changes from one kernel to another: those of the bundled model on a CPU, and of a larger one's
// layer on a GPU. Every plan of them by itself, and every change, must be accepted; every mutant must be refused, in words
// that name what was changed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/engine/batch_block.h"
#include "megalith/engine/regimes.h"
#include "megalith/jit/compile.h"
#include "megalith/model/decoder.h"
#include "megalith/runtime/image.h"
#include "megalith/runtime/launch_state.h"
#include "megalith/task/verify.h"
#include "megalith/task/verify_changes.h"
#include "support/configurations.h"
#include "support/default_regimes.h"
#include "support/models.h"

namespace megalith::test {
namespace {

using task::Memory;

/// A kernel of a model as a value that a mutation may change.
struct Kernel {
  task::TaskGraph tasks;
  std::vector<graph::Layout> layouts;
  int64_t rows, least, most;
};
using Kernels = std::vector<Kernel>;

Kernels kernels_of(const ModelConfig& config, DecoderOptions options, const std::vector<int64_t>& rows, int workers) {
  const engine::Regimes regimes(rows);
  options.shares_caches = true;
  Kernels kernels;
  for (size_t i = 0; i < rows.size(); ++i) {
    options.max_rows = rows[i];
    const graph::Graph graph = build_decoder(config, options.resolved(config));
    jit::CompiledKernel kernel =
        jit::compile(graph, {.target = options.target, .num_workers = workers, .plan_only = true, .pipeline = {}});
    const engine::LoadRange range = regimes.range(i);
    kernels.push_back({std::move(kernel.tasks), std::move(kernel.schedule.layouts), rows[i], range.least, range.most});
  }
  return kernels;
}

struct Verdict {
  std::string alone, change;  // what is said of a kernel by itself, and of the changes
};

Verdict verdict_of(const Kernels& kernels, const std::vector<size_t>& changed) {
  Verdict verdict;
  for (const size_t k : changed) verdict.alone += task::verify(kernels[k].tasks).text();
  if (!verdict.alone.empty()) return verdict;
  std::vector<task::Turn> turns;
  for (const Kernel& kernel : kernels)
    turns.push_back({&kernel.tasks, kernel.layouts, kernel.rows, kernel.least, kernel.most});
  verdict.change = task::verify_changes(turns, engine::change_tables()).text();
  return verdict;
}

struct Mutation {
  std::string kind;
  std::string text;  // what exactly
  std::string name;  // that a message about it must have
  size_t kernel;     // whose tasks change
  std::function<void(Kernels&)> change;
};

class Mutations {
 public:
  explicit Mutations(const Kernels& kernels) : kernels_(kernels) {
    of_loads();
    for (size_t k = 0; k < kernels.size(); ++k) {
      of_buffers(k);
      of_values(k);
      of_border(k);
    }
  }
  std::vector<Mutation> take() { return std::move(list_); }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }
  std::string of_kernel(size_t k) const { return fmt::format("the kernel for {} tokens", kernels_[k].rows); }
  void add(std::string kind, std::string text, std::string name, size_t kernel, std::function<void(Kernels&)> change) {
    list_.push_back(
        {std::move(kind), fmt::format("{}, {}", text, of_kernel(kernel)), std::move(name), kernel, std::move(change)});
  }
  void add_buffer(const std::string& kind, size_t k, size_t b,
                  const std::function<void(Kernel&, task::Buffer&)>& change) {
    const std::string& name = kernels_[k].tasks.buffers[b].name;
    add(kind, name, fmt::format("\"{}\"", name), k, [=](Kernels& kernels) {
      Kernel& kernel = kernels[k];
      task::Buffer& buffer = kernel.tasks.buffers[b];
      change(kernel, buffer);
      buffer.bytes = dtype_bytes(buffer.dtype);
      for (const int64_t size : buffer.shape) buffer.bytes *= size;
    });
  }

  void of_loads() {
    for (size_t k = 0; k < kernels_.size(); ++k) {
      for (const int64_t by : {-1, 1}) {
        const bool is_first = k == 0, is_last = k + 1 == kernels_.size();
        if (!is_first || by > 0)
          add(by > 0 ? "hole between loads" : "loads of two kernels", fmt::format("least by {}", by), of_kernel(k), k,
              [=](Kernels& kernels) { kernels[k].least += by; });
        if (!is_last || by < 0)
          add(by < 0 ? "hole between loads" : "loads of two kernels", fmt::format("most by {}", by), of_kernel(k), k,
              [=](Kernels& kernels) { kernels[k].most += by; });
      }
      add("no load at all", "", of_kernel(k), k, [=](Kernels& kernels) { kernels[k].most = kernels[k].least; });
      if (k + 1 == kernels_.size()) continue;
      // The border moves for both of them: loads are whole, and this one has no rows for them.
      add("more load than rows", "", of_kernel(k), k,
          [=](Kernels& kernels) { kernels[k].most = ++kernels[k + 1].least; });
      add("change places", fmt::format("with {}", of_kernel(k + 1)), "the kernel for", k, [=](Kernels& kernels) {
        std::swap(kernels[k].tasks, kernels[k + 1].tasks);
        std::swap(kernels[k].layouts, kernels[k + 1].layouts);
      });
    }
    for (size_t k = 0; k < kernels_.size(); ++k)
      for (const int64_t by : {-1, 1})
        add("said to have other rows", fmt::format("by {}", by), fmt::format("{} tokens", kernels_[k].rows + by), k,
            [=](Kernels& kernels) { kernels[k].rows += by; });
  }

  void of_buffers(size_t k) {
    const std::vector<task::Buffer>& buffers = kernels_[k].tasks.buffers;
    for (size_t b = 0; b < buffers.size(); ++b) {
      const task::Buffer& buffer = buffers[b];
      if (buffer.memory != Memory::state && buffer.memory != Memory::constant) continue;
      const bool is_state = buffer.memory == Memory::state;
      const std::string kind = is_state ? "state" : "weights";
      add_buffer(kind + " under another name", k, b, [](Kernel&, task::Buffer& changed) { changed.name += "'"; });
      add_buffer(kind + " of another dtype", k, b, [](Kernel&, task::Buffer& changed) {
        changed.dtype = changed.dtype == DType::f32    ? DType::i32
                        : changed.dtype == DType::i32  ? DType::f32
                        : changed.dtype == DType::bf16 ? DType::f16
                                                       : DType::bf16;
      });
      add_buffer(kind + " in the arena", k, b, [](Kernel& kernel, task::Buffer& changed) {
        changed.memory = Memory::arena;
        changed.offset = (kernel.tasks.arena_bytes + 63) / 64 * 64;
        kernel.tasks.arena_bytes = changed.offset + changed.bytes;
      });
      if (buffer.shape.empty()) continue;
      for (const int64_t by : {-1, 1})
        add_buffer(fmt::format("{} with {} line", kind, by < 0 ? "no last" : "one more"), k, b,
                   [=](Kernel&, task::Buffer& changed) { changed.shape[0] += by; });
      if (buffer.shape.size() > 1) {
        add_buffer(kind + " with longer lines", k, b, [](Kernel&, task::Buffer& changed) { ++changed.shape.back(); });
        add_buffer(kind + " with lines of lines", k, b,
                   [](Kernel&, task::Buffer& changed) { changed.shape.push_back(1); });
      }
      if (is_state)
        for (const graph::Layout layout : {graph::Layout::rows, graph::Layout::head_pairs, graph::Layout::fragments})
          if (layout != kernels_[k].layouts[b])
            add_buffer("state in another layout", k, b,
                       [=](Kernel& kernel, task::Buffer&) { kernel.layouts[b] = layout; });
      add("neither read nor written", buffer.name, fmt::format("\"{}\"", buffer.name), k, [=](Kernels& kernels) {
        for (task::Task& task : kernels[k].tasks.tasks)
          for (std::vector<task::Region>* regions : {&task.reads, &task.writes})
            std::erase_if(*regions, [&](const task::Region& region) { return region.buffer == static_cast<int>(b); });
      });
    }
  }

  // What a task finds there that nothing of its own iteration has made.
  void of_values(size_t k) {
    const task::TaskGraph& graph = kernels_[k].tasks;
    std::vector<char> is_read(graph.buffers.size());
    for (const task::Task& task : graph.tasks)
      for (const task::Region& region : task.reads) is_read[at(region.buffer)] = 1;
    for (size_t t = 0; t < graph.tasks.size(); ++t)
      for (size_t w = 0; w < graph.tasks[t].writes.size(); ++w) {
        const task::Region& region = graph.tasks[t].writes[w];
        const task::Buffer& buffer = graph.buffers[at(region.buffer)];
        if (buffer.memory != Memory::arena || !is_read[at(region.buffer)]) continue;
        if (std::ranges::count(graph.tasks[t].reads, region.buffer, &task::Region::buffer) != 0) continue;  // in place
        add("value of the iteration before", fmt::format("\"{}\" of \"{}\"", buffer.name, graph.tasks[t].name),
            fmt::format("\"{}\"", buffer.name), k, [=](Kernels& kernels) {
              auto& writes = kernels[k].tasks.tasks[t].writes;
              writes.erase(writes.begin() + static_cast<std::ptrdiff_t>(w));
            });
      }
  }

  void of_border(size_t k) {
    const task::TaskGraph& graph = kernels_[k].tasks;
    const int gate = graph.gate.value();
    size_t ending = 0;
    while (std::ranges::count(graph.tasks[ending].signals, gate) == 0) ++ending;
    const task::Task& ends = graph.tasks[ending];
    add("no gate", "", of_kernel(k), k, [=](Kernels& kernels) { kernels[k].tasks.gate.reset(); });
    add("gate that nothing signals", "", "gate", k,
        [=](Kernels& kernels) { kernels[k].tasks.tasks[ending].signals.clear(); });
    for (size_t t = 0; t < graph.tasks.size(); ++t) {
      if (t == ending) continue;
      const std::string& name = graph.tasks[t].name;
      add("gate of two tasks", name, fmt::format("\"{}\"", graph.events[at(gate)].name), k, [=](Kernels& kernels) {
        kernels[k].tasks.tasks[t].signals.push_back(gate);
        ++kernels[k].tasks.events[at(gate)].arrivals;
      });
      add("gate of another task", name, "", k, [=](Kernels& kernels) {
        std::erase(kernels[k].tasks.tasks[ending].signals, gate);
        kernels[k].tasks.tasks[t].signals.push_back(gate);
      });
    }
    for (const std::string& state : engine::change_tables().laid_out) {
      const auto b =
          static_cast<int>(std::ranges::find(graph.buffers, state, &task::Buffer::name) - graph.buffers.begin());
      const std::string quoted = fmt::format("\"{}\"", state);
      add("table not laid out", state, quoted, k, [=](Kernels& kernels) {
        std::erase_if(kernels[k].tasks.tasks[ending].writes,
                      [&](const task::Region& region) { return region.buffer == b; });
      });
      if (graph.buffers[at(b)].shape[0] > 1)
        add("table laid out in part", state, quoted, k, [=](Kernels& kernels) {
          for (task::Region& region : kernels[k].tasks.tasks[ending].writes)
            if (region.buffer == b) --region.box.hi[0];
        });
      // By a task behind the ending one, in program order and in its worker's list.
      add("table written behind the border", state, quoted, k, [=](Kernels& kernels) {
        task::TaskGraph& g = kernels[k].tasks;
        task::Task late;
        late.name = "late", late.node = g.tasks.back().node + 1, late.worker = g.tasks[ending].worker;
        const std::vector<int64_t>& shape = g.buffers[at(b)].shape;
        late.writes.push_back({b, {loop::Corner(shape.size(), 0), loop::Corner(shape)}});
        g.workers[at(late.worker)].push_back(static_cast<int>(g.tasks.size()));
        g.tasks.push_back(late);
      });
    }
    for (size_t w = 0; w < ends.waits.size(); ++w) {
      const std::string& event = graph.events[at(ends.waits[w].event)].name;
      add("no wait before the border", event, fmt::format("\"{}\"", ends.name), k, [=](Kernels& kernels) {
        auto& waits = kernels[k].tasks.tasks[ending].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      });
    }
  }

  const Kernels& kernels_;
  std::vector<Mutation> list_;
};

/// Counts of a kind.
struct Counts {
  int64_t mutants = 0, alone = 0, change = 0, others = 0;
};

class Campaign {
 public:
  void run(const Kernels& kernels, const std::string& label, size_t most_per_kind) {
    std::vector<size_t> all(kernels.size());
    for (size_t k = 0; k < all.size(); ++k) all[k] = k;
    const Verdict sound = verdict_of(kernels, all);
    ASSERT_EQ(sound.alone + sound.change, "") << label;
    std::vector<Mutation> mutations = Mutations(kernels).take();
    std::mt19937_64 random(1);
    std::ranges::shuffle(mutations, random);
    std::map<std::pair<std::string, size_t>, size_t> taken;
    for (const Mutation& mutation : mutations) {
      if (++taken[{mutation.kind, mutation.kernel}] > most_per_kind) continue;
      Kernels mutant = kernels;
      mutation.change(mutant);
      judge(mutant, mutation, label);
    }
    changes_ += static_cast<int64_t>(kernels.size() * (kernels.size() - 1));
  }
  /// What a launch of a kernel begins with, whether for the first time or behind another one.
  void run_launches(const Kernels& kernels, const std::string& label) {
    for (const Kernel& kernel : kernels) {
      const size_t num_tasks = kernel.tasks.tasks.size();
      runtime::LaunchImage image(kernel.tasks, {.bodies = std::vector<runtime::u32>(num_tasks),
                                                .first_operands = std::vector<runtime::u32>(num_tasks),
                                                .operands = {nullptr}});
      for (const runtime::u32 first : {0u, 7u}) {
        const auto why_not = [&] {
          const runtime::Launch& launch = image.launch();
          return runtime::why_not_ready(image, launch.events, launch.status, *launch.control, first);
        };
        const auto judge = [&](const std::string& kind, const std::string& name, const std::function<void()>& change) {
          image.reset(first);
          ASSERT_EQ(why_not(), "") << label;
          change();
          Counts& counts = by_kind_[kind];
          ++counts.mutants;
          const std::string said = why_not();
          ++(said.empty() ? counts.others : counts.change);
          EXPECT_THAT(said, ::testing::HasSubstr(name)) << label << ", " << kind;
        };
        for (runtime::u32 e = 0; e < image.num_events(); ++e) {
          runtime::u64& word = image.launch().events[e].word;
          const std::string name = fmt::format("\"{}\"", image.event_name(e));
          for (const runtime::u32 more : {1u, image.event_arrivals(e), ~0u})
            judge("counter of an earlier run", name, [&] { word += runtime::kOneArrival * more; });
          judge("sleeper of an earlier run", name, [&] { ++word; });
        }
        for (runtime::u32 w = 0; w < image.launch().num_workers; ++w) {
          runtime::WorkerStatus& status = image.launch().status[w];
          const std::string name = fmt::format("worker {}", w);
          judge("status of an earlier run", name,
                [&] { status.state = static_cast<runtime::u32>(runtime::WorkerState::finished); });
          judge("status of an earlier run", name, [&] { status.tasks_done = 3; });
          judge("status of an earlier run", name, [&] { status.fault.found = 1; });
          judge("status of an earlier run", name, [&] { status.flag = runtime::flag_wanted(64, 1); });
        }
        judge("abort of an earlier run", "abort", [&] { image.launch().control->abort = runtime::kAbortCancel; });
        judge("iterations of an earlier run", "", [&] { image.reset(first + 1); });
      }
    }
  }
  void print() const {
    Counts all;
    std::printf("%-32s %8s %26s %22s %9s\n", "mutation of a change", "mutants", "refused: a kernel by itself",
                "the change", "survivors");
    for (const auto& [kind, counts] : by_kind_) {
      print_row(kind, counts);
      all.mutants += counts.mutants, all.alone += counts.alone, all.change += counts.change,
          all.others += counts.others;
    }
    print_row("all", all);
    std::printf("%ld changes\n", changes_);
  }
  const std::map<std::string, Counts>& by_kind() const { return by_kind_; }

 private:
  static void print_row(const std::string& kind, const Counts& counts) {
    std::printf("%-32s %8ld %26ld %22ld %9ld\n", kind.c_str(), counts.mutants, counts.alone, counts.change,
                counts.others);
  }
  void judge(const Kernels& mutant, const Mutation& mutation, const std::string& label) {
    Counts& counts = by_kind_[mutation.kind];
    ++counts.mutants;
    const Verdict verdict = verdict_of(mutant, {mutation.kernel});
    const std::string said = verdict.alone + verdict.change;
    ++(!verdict.alone.empty() ? counts.alone : !verdict.change.empty() ? counts.change : counts.others);
    EXPECT_NE(said, "") << label << ", " << mutation.kind << ": " << mutation.text << ": is accepted";
    // Of a kernel by itself the verifier names what is wrong with its order: tasks or events.
    if (said.empty()) return;
    const std::string name = verdict.change.empty() ? "\"" : mutation.name;
    EXPECT_THAT(said, ::testing::HasSubstr(name)) << label << ", " << mutation.kind << ": " << mutation.text;
  }

  std::map<std::string, Counts> by_kind_;
  int64_t changes_ = 0;
};

TEST(ChangeMutations, EveryMutantIsRefused) {
  const size_t most = all_configurations() ? 1000 : 12;
  Campaign campaign;
  {
    const DecoderOptions options{.max_requests = 8, .max_seq_len = 128};
    const Kernels kernels = kernels_of(config_read(kStoryteller), options, {2, 8, 32}, 2);
    campaign.run(kernels, "cpu", most);
    campaign.run_launches(kernels, "cpu");
  }
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/shapes/Qwen3-8B");
  config.num_layers = 1;
  const DecoderOptions options{.max_requests = 64, .max_seq_len = 512, .target = "cuda:sm_90a"};
  const Kernels kernels = kernels_of(config, options, {2, 8, 64, 256, 512, 2048}, 8);
  campaign.run(kernels, "cuda", most);
  campaign.run_launches(kernels, "cuda");
  campaign.print();
}

// Those that an engine has by default, of other models and options.
TEST(Changes, AreSoundForAllSortsOfModels) {
  struct Case {
    std::string model;
    DecoderOptions options;
    bool has_draft_model = false;
  };
  std::vector<Case> rest;
  for (const char* const model : {"Llama-3.2-1B", "Qwen2.5-7B", "Qwen3-8B"})
    for (const int64_t requests : {1, 8, 9, 64, 65, 128, 256})
      for (const char* const target : {"cuda:sm_80", "cuda:sm_86", "cuda:sm_90a", "cuda:sm_100a"})
        rest.push_back({model, {.max_requests = requests, .target = target}});
  const std::vector<Case> cases =
      some_of<Case>({{"Qwen2.5-0.5B", {.max_requests = 1, .target = "cuda:sm_90a"}},
                     {"Qwen3-0.6B", {.max_requests = 65, .draft_tokens = 7, .target = "cuda:sm_90a"}},
                     {"Llama-3.2-1B", {.max_requests = 16, .target = "cuda:sm_80", .quant_columns = 32}},
                     {"Qwen3-0.6B", {.max_requests = 9, .target = "cuda:sm_89"}},
                     {"Qwen3-4B", {.max_requests = 9, .draft_tokens = 3, .target = "cuda:sm_90a"}, true}},
                    rest);
  for (Case c : cases) {
    ModelConfig config = config_read(fmt::format("{}/models/shapes/{}", MEGALITH_SOURCE_DIR, c.model));
    config.num_layers = 1;
    if (c.has_draft_model) c.options.draft_model = std::make_shared<const ModelConfig>(config);
    c.options.max_seq_len = 512;
    const std::vector<int64_t> rows = testing::default_regimes(config, c.options);
    const Kernels kernels = kernels_of(config, c.options, rows, 8);
    EXPECT_GT(kernels.size(), 1u);
    std::vector<size_t> all(kernels.size());
    for (size_t k = 0; k < all.size(); ++k) all[k] = k;
    const Verdict verdict = verdict_of(kernels, all);
    EXPECT_EQ(verdict.alone + verdict.change, "")
        << c.model << ", " << c.options.max_requests << " sequences, " << c.options.target;
  }
}

}  // namespace
}  // namespace megalith::test
