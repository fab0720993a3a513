// What a compiled decoder runs on, as the engine sees it: the memory that it and the kernel share, a run, and the mail.
// One implementation per target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/engine/memory_map.h"
#include "megalith/graph/graph.h"
#include "megalith/jit/compile.h"
#include "megalith/model/decoder.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/profile_rings.h"

namespace megalith::engine {

/// Records that the mailbox has room for: so far a kernel may be ahead of its reader. Commands: for a place there are seldom more
/// than three under way, a cancel that comes too late, a request that begins there, and its cancel; the service keeps those for
/// which there is no room.
constexpr uint32_t kMailboxCapacity = 4096, kCommandCapacity = 512;

enum class RunKind {
  whole,    // of what is in the batch block, until all of it has ended
  serving,  // until it is cancelled: requests come as commands
  goes_on,  // of either, that another machine of the same memory ended; its mail is still there
};

/// Memory of a machine that the host writes while its kernel runs (batch.h, mailbox.h).
struct Shared {
  uint32_t *masks = nullptr, *mask_lengths = nullptr;
  runtime::Mailbox* mailbox = nullptr;
};

class Machine {
 public:
  virtual ~Machine() = default;
  /// Starts a run. `changed`: tensors whose bytes in the memory map the caller has changed since the last one.
  virtual void start(const std::vector<std::string>& changed, RunKind kind = RunKind::whole) = 0;
  /// During a run that serves, by one thread at a time: brings bytes of a state from the memory map to the kernel, which does
  /// not look at them before a command that is posted later.
  virtual void send(const std::string& state, int64_t begin, int64_t bytes) = 0;
  /// Likewise: a command (runtime/mailbox.h). False if there is no room before the kernel has taken some.
  virtual bool post(const runtime::Command& command) = 0;
  /// Likewise, by whoever has posted: a kernel that waited for it may end soon.
  virtual void wake() {}
  /// Whether wait() will not block. By whoever takes the mail.
  virtual bool finished() = 0;
  virtual runtime::RunEnd wait() = 0;
  /// Launches a run of RunKind::goes_on behind that of another machine of the same memory, which is in progress: it begins by
  /// itself if that one ends because of a load in `range`, and is over as it begins otherwise. False if there is no such thing.
  virtual bool follow(batch::LoadRange) { return false; }
  /// Of such a run, when the one before it is over.
  virtual void attend() {}
  /// Of a run that is over: whether it did anything.
  virtual bool has_worked() const { return true; }
  virtual void cancel() noexcept = 0;
  /// The next record, if there is one within a few milliseconds.
  virtual bool take(runtime::MailRecord* record) = 0;
  /// The same without waiting.
  virtual bool take_now(runtime::MailRecord* record) = 0;
  /// From any thread: a take() that waits returns, with a record or without.
  virtual void nudge() {}
  /// Asks the next runs to record when their tasks ran, the newest `iterations` of each run at least;
  /// 0: no longer.
  virtual void profile(uint32_t iterations) = 0;
  /// The records of the last run.
  virtual runtime::Profile profile_take() = 0;
  /// Bytes of weights in memory of its own, on the host: packed.
  virtual int64_t weights_held() const { return 0; }
  /// What the kernel and the host share.
  virtual Shared shared() { return {}; }
  /// Brings a state's bytes in the memory map up to date, after a run.
  virtual void fetch(const std::string& state) = 0;
};

/// Threads of this process. `last`: nobody else will read weights of which it keeps a copy.
std::unique_ptr<Machine> make_cpu_machine(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                          const MemoryMap& memory, bool last = true);
/// What a machine of the GPU is made from; `options`: what build_decoder() made the graph from.
struct CudaMachineParts {
  const graph::Graph& graph;
  const DecoderOptions& options;
  const jit::CompiledKernel& kernel;
};
/// The GPU, a machine for each kernel of a model. The last one outlives the others, which use its states and weights where
/// they are. SystemError if there is no memory for it, which says what other options would fit.
std::vector<std::unique_ptr<Machine>> make_cuda_machines(const std::vector<CudaMachineParts>& parts,
                                                         const MemoryMap& memory);
/// The GPU's context, for as long as somebody has it; to make it takes a fifth of a second.
std::shared_ptr<const void> hold_gpu();
/// What of `kernels`, the last of which is made from `owner` and has the states that all use, would not fit into the GPU's
/// free memory; "" if all do.
std::string cuda_memory_report(const graph::Graph& owner, const DecoderOptions& options,
                               const std::vector<const jit::CompiledKernel*>& kernels);

}  // namespace megalith::engine
