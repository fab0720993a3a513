#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/threads.h"
#include "megalith/engine/machine.h"
#include "megalith/engine/memory_report.h"
#include "megalith/runtime/cuda/launcher.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/cuda/program.h"

namespace megalith::engine {

namespace {

/// The kernel cannot wake the host, so the host looks: often enough that a token is not held up, seldom enough that a
/// core is mostly free.
constexpr std::chrono::microseconds kPoll(20);
constexpr int kPollsPerTake = 250;

/// Copies to the GPU on a stream.
class Sender {
 public:
  explicit Sender(jit::CudaStream stream) : stream_(stream) {}
  void send(jit::CudaAddress to, const std::byte* from, int64_t bytes) {
    const jit::CudaDriver& driver = jit::CudaDriver::get();
    while (bytes > 0) {
      if (staged_ == kStaged) wait();
      const int64_t part = std::min(bytes, kStaged - staged_);
      std::byte* const at = staging_.data<std::byte>() + staged_;
      std::memcpy(at, from, static_cast<size_t>(part));
      driver.check(driver.copy_to_device_async(to, at, static_cast<size_t>(part), stream_), "sending a request");
      staged_ += part;
      to += static_cast<jit::CudaAddress>(part);
      from += part;
      bytes -= part;
    }
  }
  /// Until all is there.
  void wait() {
    const jit::CudaDriver& driver = jit::CudaDriver::get();
    if (staged_ > 0) driver.check(driver.stream_synchronize(stream_), "sending a request");
    forget();
  }
  /// The same of who knows that it is.
  void forget() { staged_ = 0; }

 private:
  static constexpr int64_t kStaged = 1 << 20;
  const jit::CudaStream stream_;
  runtime::PinnedMemory staging_{kStaged, "requests on their way"};
  int64_t staged_ = 0;
};

class CudaMachine : public Machine {
 public:
  CudaMachine(const graph::Graph& graph, const jit::CompiledKernel& kernel, const MemoryMap& memory, CudaMachine* owner)
      : program_(graph, kernel, memory.addresses(), {"mailbox", "masks", "mask_lengths"},
                 owner ? owner->program_.placed() : std::map<std::string, void*>{}, true),
        owner_(owner ? owner->program_ : program_),
        clock_offset_(owner ? owner->own_clock_offset_ : own_clock_offset_),
        memory_(memory),
        mail_(kMailboxCapacity * sizeof(runtime::MailRecord), "the mail"),
        mailbox_(owner_.shared<runtime::Mailbox>("mailbox")),
        launcher_(program_, {.mailbox = mailbox_}, owner ? &owner->launcher_ : nullptr),
        ahead_(launcher_.stream()) {}
  /// Its weights are still to be loaded.
  runtime::CudaProgram& program() { return program_; }

  void start(const std::vector<std::string>& changed, RunKind kind) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    ahead_.forget();  // the kernel behind the last ones has ended
    for (const std::string& state : changed) {
      // Another kernel of the run has just ended, and whoever reads its tokens waits.
      if (kind == RunKind::goes_on)
        send_by(ahead_, state, 0, owner_.bytes(state));
      else
        owner_.upload(state);
    }
    if (kind != RunKind::goes_on) {
      clock_offset_ = std::numeric_limits<int64_t>::max();
      runtime::mailbox_init(mailbox_, mail_.data<runtime::MailRecord>(), kMailboxCapacity);
    }
    if (kind == RunKind::serving) {
      if (!commands_) commands_.emplace(kCommandCapacity * sizeof(runtime::Command), "the commands");
      runtime::mailbox_serve(mailbox_, commands_->data<runtime::Command>(), kCommandCapacity);
    }
    launcher_.start();
  }
  void send(const std::string& state, int64_t begin, int64_t bytes) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    if (!sender_) {
      constexpr unsigned kNonBlocking = 1;
      const jit::CudaDriver& driver = jit::CudaDriver::get();
      driver.check(driver.stream_create(beside_.out(), kNonBlocking), "making a stream");
      sender_.emplace(beside_.get());
    }
    send_by(*sender_, state, begin, bytes);
  }
  bool post(const runtime::Command& command) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    if (sender_) sender_->wait();
    return runtime::command_post(mailbox_, command);
  }
  void wake() override { launcher_.wake(); }
  bool finished() override { return launcher_.finished(); }
  runtime::RunEnd wait() override { return launcher_.wait(); }
  bool follow(batch::LoadRange range) override { return launcher_.follow(range); }
  void attend() override { launcher_.attend(); }
  bool has_worked() const override { return launcher_.has_worked(); }
  void cancel() noexcept override { launcher_.cancel(); }
  bool take(runtime::MailRecord* record) override {
    for (int i = 0; i < kPollsPerTake && !finished() && !is_nudged_.exchange(false, std::memory_order_relaxed); ++i) {
      if (take_now(record)) return true;
      sleep_exactly(kPoll);
    }
    return take_now(record);
  }
  bool take_now(runtime::MailRecord* record) override {
    if (!runtime::mailbox_take(mailbox_, record, 0)) return false;
    // Records carry the GPU's time. What lies between it and ours is the least that lay between posting and taking.
    const auto now = static_cast<int64_t>(runtime::monotonic_ns()), posted = static_cast<int64_t>(record->posted_ns);
    clock_offset_ = std::min(clock_offset_, now - posted);
    record->posted_ns = static_cast<uint64_t>(posted + clock_offset_);
    return true;
  }
  void nudge() override { is_nudged_.store(true, std::memory_order_relaxed); }
  void profile(uint32_t iterations) override { program_.profile(iterations); }
  runtime::Profile profile_take() override { return program_.profile_take(); }
  Shared shared() override {
    return {owner_.shared<uint32_t>("masks"), owner_.shared<uint32_t>("mask_lengths"), mailbox_};
  }
  void fetch(const std::string& state) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    owner_.download(state);
  }
  const runtime::CudaProgram& program() const { return program_; }

 private:
  void send_by(Sender& sender, const std::string& state, int64_t begin, int64_t bytes) {
    sender.send(owner_.address(state) + static_cast<jit::CudaAddress>(begin), memory_.get<std::byte>(state) + begin,
                bytes);
  }

  runtime::CudaProgram program_;
  runtime::CudaProgram& owner_;  // of states, and of weights that are read where they lie
  int64_t own_clock_offset_ = 0;
  int64_t& clock_offset_;  // the owner's: one for a run, whose records would change places otherwise
  const MemoryMap& memory_;
  runtime::PinnedMemory mail_;
  std::optional<runtime::PinnedMemory> commands_;  // of one that serves
  runtime::CudaStreamOwner beside_;
  std::optional<Sender> sender_;  // beside the kernel
  runtime::Mailbox* mailbox_;
  std::atomic<bool> is_nudged_{false};
  runtime::CudaLauncher launcher_;
  Sender ahead_;  // of its launch
};

int64_t free_bytes() {
  const jit::CudaDriver& driver = jit::CudaDriver::get();
  size_t free = 0, total = 0;
  driver.check(driver.memory_info(&free, &total), "asking for the GPU's free memory");
  return static_cast<int64_t>(free);
}

}  // namespace

std::vector<std::unique_ptr<Machine>> make_cuda_machines(const std::vector<CudaMachineParts>& parts,
                                                         const MemoryMap& memory) {
  const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
  // Before the weights are on their way. What an owner has was asked for with it.
  const CudaMachineParts& last = parts.back();
  const MemoryNeeds needs = memory_needs(last.graph, last.options, last.kernel.tasks, last.kernel.scratch_bytes);
  const std::string report = memory_report(needs, free_bytes());
  MEGALITH_CHECK(report.empty(), "[cuda] {}", report);
  std::vector<std::unique_ptr<Machine>> machines(parts.size());
  std::vector<runtime::CudaProgram*> programs(parts.size());
  CudaMachine* owner = nullptr;
  for (size_t i = parts.size(); i-- > 0;) {
    auto machine = std::make_unique<CudaMachine>(parts[i].graph, parts[i].kernel, memory, owner);
    programs[i] = &machine->program();
    if (!owner) owner = machine.get();
    machines[i] = std::move(machine);
  }
  runtime::CudaProgram::load_weights(programs);
  return machines;
}

std::shared_ptr<const void> hold_gpu() {
  const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
  return std::make_shared<const runtime::CudaContextHold>(runtime::CudaContextHold::of_current());
}

std::string cuda_memory_report(const graph::Graph& owner, const DecoderOptions& options,
                               const std::vector<const jit::CompiledKernel*>& kernels) {
  const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
  MemoryNeeds needs = memory_needs(owner, options, kernels.back()->tasks, kernels.back()->scratch_bytes);
  for (const jit::CompiledKernel* kernel : kernels)
    if (kernel != kernels.back()) needs.add_kernel(kernel->tasks, kernel->scratch_bytes);
  return memory_report(needs, free_bytes());
}

}  // namespace megalith::engine
