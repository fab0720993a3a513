// Requests that come while a graph runs that was built by hand: the host's side of a token loop with `serve_batch`
// (kernels/cpu/serve_batch.h). Each has a slot, which the caller chooses: whoever has slots and requests knows what keys their
// pages hold. For engines of whole models there is more (engine/async_engine.h).
//
//   GraphService service(runner);
//   service.open();                                  // then runner.run(0), in another thread
//   service.begin(0, prompt, 0, prompt.size() + 20);
//   while (service.take(records, 50ms)) ...
//   service.end();
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "megalith/engine/graph_runner.h"
#include "megalith/runtime/mailbox.h"

namespace megalith::engine {

class GraphService {
 public:
  /// UserError unless the graph has a node of the operator `serve_batch` on a mailbox that is the runner's.
  explicit GraphService(GraphRunner& runner);

  /// Readies the mailbox for the next run(0), while there is none.
  void open();
  /// A request begins in a slot that nobody has: `step` tokens of its prompt have keys there, and it ends at `limit` tokens. Any
  /// thread may call this and the two below. UserError for a slot that is not there, or if it is to end before it makes a
  /// token or would have no room.
  void begin(int64_t slot, std::span<const int32_t> prompt, int64_t step, int64_t limit);
  /// Ends it, if it has not ended; a record says so.
  void cancel(int64_t slot);
  /// The run ends as soon as all requests have.
  void end();
  /// What the kernel has told since; waits for something for so long at most. By one thread at a time. Empty, and the run is
  /// over: no more comes.
  std::vector<runtime::MailRecord> take(std::chrono::milliseconds longest);

 private:
  void post(runtime::CommandKind kind, int64_t slot, const std::vector<int32_t>& fields = {});

  GraphRunner& runner_;
  const GraphRunner::Mail mail_;
  std::mutex mutex_;
};

}  // namespace megalith::engine
