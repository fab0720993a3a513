// Runs a compiled graph on tensors that somebody else owns, on either target: where a graph was built by hand rather
// than from a model's files, so that there is no token loop and no mailbox. It makes what has no owner (stacked
// constants), keeps runs apart that come from several threads, and moves states to a GPU and back where they lie in the
// host's memory.
//
//   GraphRunner runner(graph, kernel, {{"x", {x.data()}}, {"weight", {weight.data()}}, {"y", {y.data()}}});
//   runner.run();
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "megalith/base/turn.h"
#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/memory.h"
#include "megalith/runtime/profile_rings.h"

namespace megalith::engine {

/// Where a constant or a state lies, row by row. It must stay there as long as the runner lives.
struct TensorMemory {
  void* address = nullptr;
  bool on_device = false;  // on the GPU; such memory is used where it is
  int64_t rows = 0;        // of a part of a stacked constant
  int device = -1;         // which GPU; -1: one that every GPU reaches as its own
};

class GraphRunner {
 public:
  /// `memory`: of every constant and state by name, but of a stacked constant its parts instead, and not of what belongs to
  /// the mail. `kernel` must
  /// outlive the runner. Weights are laid out now: later changes of constants need not be seen. UserError naming a
  /// tensor that is missing, lies on the wrong side or another GPU, is not mapped or not writable though a node writes it,
  /// or starts between elements (on a GPU: where no 16 bytes can be loaded at once), and where the kernel is not one of
  /// that graph; SystemError if memory does not suffice.
  GraphRunner(const graph::Graph& graph, const jit::CompiledKernel& kernel, std::map<std::string, TensorMemory> memory);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  /// So many iterations in one launch; a second thread waits for its turn (base/turn.h). InternalError (HangError) if the
  /// kernel makes no progress. 0: until the graph's stop word is set; UserError if it has none. What interruption_check()
  /// throws ends the run first.
  void run(uint32_t iterations = 1);
  /// Copies an activation of the last run to `to`; whole only if activations were planned without reuse of the arena.
  /// UserError for another tensor.
  void read_activation(graph::TensorId tensor, void* to);
  /// From now on workers write down when each task waited, ran and ended: the newest `iterations` of a run are kept;
  /// 0: no longer.
  void profile(uint32_t iterations);
  /// The last run's, in Chrome's trace event format, which Perfetto opens (runtime/profile_summary.h). UserError
  /// without profile().
  std::string trace();
  /// The same run as an HTML page that needs nothing else (runtime/profile_page.h).
  std::string page();
  /// Bytes that the runner holds itself: the arena, scratch of the workers, packed or streamed weights, stacked constants.
  int64_t bytes_held() const;

  /// Ends a run in progress. From any thread, and from a signal handler.
  void cancel() noexcept;

  /// What a node of `serve_batch` shares with the host: memory of the runner's own. GraphService is who knows what to do with it
  /// (graph_service.h). Without such a node there is none.
  struct Mail {
    runtime::Mailbox* mailbox = nullptr;
    int32_t* inbox = nullptr;  // a row of `longest` tokens for each of its slots
    int64_t num_slots = 0, longest = 0;
  };
  Mail mail() const;
  /// An empty mailbox, for the next run.
  void mail_open();
  /// The next record, if there is one within that time.
  bool mail_take(runtime::MailRecord* record, std::chrono::milliseconds longest);

  /// What a target does; public for the two implementations only.
  class Target;

 private:
  runtime::Profile take_profile();

  const graph::Graph graph_;  // as it was: its maker may add to it
  const jit::CompiledKernel& kernel_;
  std::deque<runtime::Mapping> mail_;  // on the host: where a CPU's kernel has it
  Turn turn_{"kernel"};
  bool is_profiled_ = false;
  std::unique_ptr<Target> target_;
};

}  // namespace megalith::engine
