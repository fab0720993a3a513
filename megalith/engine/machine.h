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
#include "megalith/runtime/launcher.h"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/profile_rings.h"

namespace megalith::engine {

/// Records that the mailbox has room for: so far a kernel may be ahead of its reader.
constexpr uint32_t kMailboxCapacity = 4096;

class Machine {
 public:
  virtual ~Machine() = default;
  /// Starts a run. `changed`: tensors whose bytes in the memory map the caller has changed since the last one.
  virtual void start(const std::vector<std::string>& changed) = 0;
  /// Whether wait() will not block.
  virtual bool finished() const = 0;
  virtual runtime::RunEnd wait() = 0;
  virtual void cancel() noexcept = 0;
  /// The next record, if there is one within a few milliseconds.
  virtual bool take(runtime::MailRecord* record) = 0;
  /// The same without waiting.
  virtual bool take_now(runtime::MailRecord* record) = 0;
  /// Asks the next runs to record when their tasks ran, the newest `iterations` of each run at least;
  /// 0: no longer.
  virtual void profile(uint32_t iterations) = 0;
  /// The records of the last run.
  virtual runtime::Profile profile_take() = 0;
  /// Bytes of weights in memory of its own, on the host: packed.
  virtual int64_t weights_held() const { return 0; }
  /// Brings a state's bytes in the memory map up to date, after a run.
  virtual void fetch(const std::string& state) = 0;
};

/// Threads of this process.
std::unique_ptr<Machine> make_cpu_machine(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                          const MemoryMap& memory);
/// The GPU. `options`: what build_decoder() made the graph from; an error says which others would fit.
std::unique_ptr<Machine> make_cuda_machine(const graph::Graph& graph, const DecoderOptions& options,
                                           const jit::CompiledKernel& kernel, const MemoryMap& memory);

}  // namespace megalith::engine
