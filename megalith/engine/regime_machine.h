// A machine of several kernels of one model that share its states, each for another number of tokens at a time. A run
// begins with the one for its load (engine/regimes.h). When its `advance` ends it, because the next iteration's load is
// another one's, that one goes on: the requests are brought here, their rows laid out and sent. The reader of the mail does
// this, so a kernel whose mail nobody takes is not followed by another.
//
// That takes a fifth of a millisecond. So where the load is seen to change, the kernel for what it will be is launched before,
// behind the one that works (Machine::follow): a GPU changes over by itself then, in microseconds. Whether it was foreseen
// rightly changes nothing else: a kernel whose turn it is not is over as it begins.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megalith/engine/machine.h"
#include "megalith/engine/memory_map.h"
#include "megalith/engine/regimes.h"
#include "megalith/runtime/first_rows.h"

namespace megalith::engine {

class RegimeMachine : public Machine {
 public:
  struct Kernel {
    int64_t rows;
    std::unique_ptr<Machine> machine;
  };
  /// `kernels`: by rows, ascending; the last one owns the states that all use. `base`: the one that does all of a run
  /// while tasks are recorded. `tables`: the last one's graph, whose states are in `memory`.
  RegimeMachine(std::vector<Kernel> kernels, size_t base, const graph::Graph& tables, const MemoryMap& memory);
  ~RegimeMachine() override;

  /// With requests in the batch block whose rows have not been laid out.
  void start(const std::vector<std::string>& changed, RunKind kind = RunKind::whole) override;
  void send(const std::string& state, int64_t begin, int64_t bytes) override { owner().send(state, begin, bytes); }
  bool post(const runtime::Command& command) override;
  bool finished() override;
  runtime::RunEnd wait() override;
  void cancel() noexcept override;
  bool take(runtime::MailRecord* record) override { return note(now().take(record), *record); }
  bool take_now(runtime::MailRecord* record) override { return note(now().take_now(record), *record); }
  /// Which of them runs only the reader of the mail knows; they have one mailbox.
  void nudge() override {
    for (const Kernel& kernel : kernels_) kernel.machine->nudge();
  }
  void profile(uint32_t iterations) override;
  runtime::Profile profile_take() override { return kernels_[base_].machine->profile_take(); }
  int64_t weights_held() const override;
  Shared shared() override { return owner().shared(); }
  void fetch(const std::string& state) override { owner().fetch(state); }

  /// Rows of the kernels that worked on the last run of RunKind::whole, one behind the other.
  const std::vector<int64_t>& worked() const { return worked_; }

 private:
  Machine& now() { return *kernels_[now_].machine; }
  Machine& owner() { return *kernels_.back().machine; }
  /// Starts the kernel for the load, on rows that are laid out for it: those of what is known, without drafts.
  void begin(int64_t load, const std::vector<std::string>& changed, RunKind kind);
  /// Waits for the end of the kernel that works, and does what follows from it.
  void take_end();
  /// Another one's begin, or the end of the run.
  void go_on(runtime::RunEnd end);
  bool note(bool is_there, const runtime::MailRecord& record);

  // With mutex_ held.
  /// Launches kernels for what the load may soon be.
  void foresee();
  void follow(size_t kernel);
  /// Ends kernels that were launched.
  void end_following() noexcept;

  std::vector<Kernel> kernels_;
  const Regimes regimes_;
  const size_t base_;
  runtime::RowTables tables_;
  int32_t* const stop_;
  std::mutex mutex_;  // posts come from any thread
  size_t now_ = 0;
  std::deque<size_t> following_;  // launched behind it, one behind the other
  int64_t active_ = 0;            // sequences
  bool is_profiled_ = false, serves_ = false;
  std::vector<int64_t> worked_;
  std::optional<runtime::RunEnd> end_;
  std::exception_ptr failure_;  // of finished(), for wait() to throw: mail that came before it is read first
  std::atomic<bool> cancelled_{false};
  pid_t process_ = 0;  // the one that started the run
};

/// Why two decoders' kernels cannot share states, "" if they can: those of `larger` are there for both, and what `smaller`
/// has must lie in them in the same way, the first of as many rows or more.
std::string why_not_shared(const graph::Graph& smaller, const graph::Schedule& of_smaller, const graph::Graph& larger,
                           const graph::Schedule& of_larger);

}  // namespace megalith::engine
