#include <algorithm>
#include <chrono>
#include <thread>

#include "megalith/engine/machine.h"
#include "megalith/runtime/program.h"

namespace megalith::engine {

namespace {

// Records that the mailbox holds: so many tokens may be made while the host is not looking.
constexpr uint64_t kMailboxTimeoutNanoseconds = 50'000'000;

// Tokens that follow each other faster than this are fetched by looking, every so often, instead of waking whoever
// waits for them: a wake-up costs the kernel 5 us of the one task that runs then, and a worker its core.
constexpr uint64_t kFastTokenNanoseconds = 2'000'000;
constexpr std::chrono::microseconds kLookEvery(500);

class CpuMachine : public Machine {
 public:
  CpuMachine(const graph::Graph& graph, const jit::CompiledKernel& kernel, const MemoryMap& memory, bool last)
      : mailbox_(memory.get<runtime::Mailbox>("mailbox")),
        masks_(memory.get<uint32_t>("masks")),
        mask_lengths_(memory.get<uint32_t>("mask_lengths")),
        mail_(kMailboxCapacity),
        program_(graph, kernel, memory.addresses(),
                 {.num_threads = static_cast<int>(kernel.tasks.workers.size()),
                  .release =
                      [&memory, last](const std::byte* begin, int64_t bytes) {
                        if (last) memory.release(begin, bytes);
                      }}),
        launcher_(program_.entry(), program_.image(), {.mailbox = mailbox_}) {}

  void start(const std::vector<std::string>&, RunKind kind) override {
    if (kind != RunKind::goes_on) runtime::mailbox_init(mailbox_, mail_.data(), kMailboxCapacity);
    if (kind == RunKind::serving) {
      commands_.resize(kCommandCapacity);
      runtime::mailbox_serve(mailbox_, commands_.data(), kCommandCapacity);
    }
    program_.profile_begin();
    launcher_.start();
  }
  void send(const std::string&, int64_t, int64_t) override {}
  bool post(const runtime::Command& command) override { return runtime::command_post(mailbox_, command); }
  bool finished() override { return launcher_.is_over(); }
  runtime::RunEnd wait() override { return launcher_.wait(); }
  void cancel() noexcept override { launcher_.cancel(); }
  bool take(runtime::MailRecord* record) override {
    if (take_now(record)) return true;
    if (are_fast_) {
      std::this_thread::sleep_for(kLookEvery);
      if (take_now(record)) return true;
    }
    are_fast_ = false;
    return noted(runtime::mailbox_take(mailbox_, record, kMailboxTimeoutNanoseconds), record);
  }
  bool take_now(runtime::MailRecord* record) override {
    return noted(runtime::mailbox_take(mailbox_, record, 0), record);
  }
  void nudge() override { runtime::mailbox_ring(mailbox_); }
  void profile(uint32_t iterations) override { program_.profile(iterations); }
  runtime::Profile profile_take() override { return program_.profile_take(); }
  Shared shared() override { return {masks_, mask_lengths_, mailbox_}; }
  void fetch(const std::string&) override {}
  int64_t weights_held() const override { return program_.packed_bytes(); }

 private:
  bool noted(bool taken, const runtime::MailRecord* record) {
    if (!taken) return false;
    are_fast_ = record->posted_ns - last_posted_ns_ < kFastTokenNanoseconds;
    last_posted_ns_ = record->posted_ns;
    return true;
  }

  uint64_t last_posted_ns_ = 0;
  bool are_fast_ = false;  // the last two records
  runtime::Mailbox* mailbox_;
  uint32_t *const masks_, *const mask_lengths_;
  std::vector<runtime::MailRecord> mail_;
  std::vector<runtime::Command> commands_;
  runtime::Program program_;
  runtime::Launcher launcher_;
};

}  // namespace

std::unique_ptr<Machine> make_cpu_machine(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                          const MemoryMap& memory, bool last) {
  return std::make_unique<CpuMachine>(graph, kernel, memory, last);
}

}  // namespace megalith::engine
