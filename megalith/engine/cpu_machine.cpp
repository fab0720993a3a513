#include "megalith/engine/machine.h"
#include "megalith/runtime/program.h"

namespace megalith::engine {

namespace {

// Records that the mailbox holds: so many tokens may be made while the host is not looking.
constexpr uint32_t kMailboxCapacity = 4096;
constexpr uint64_t kMailboxTimeoutNanoseconds = 50'000'000;

class CpuMachine : public Machine {
 public:
  CpuMachine(const graph::Graph& graph, const jit::CompiledKernel& kernel, const MemoryMap& memory)
      : mailbox_(memory.get<runtime::Mailbox>("mailbox")),
        mail_(kMailboxCapacity),
        program_(graph, kernel, memory.addresses()),
        launcher_(program_.entry(), program_.image(), {.mailbox = mailbox_}) {}

  void start(const std::vector<std::string>&) override {
    runtime::mailbox_init(mailbox_, mail_.data(), kMailboxCapacity);
    launcher_.start();
  }
  bool finished() const override { return launcher_.finished(); }
  runtime::RunEnd wait() override { return launcher_.wait(); }
  void cancel() noexcept override { launcher_.cancel(); }
  bool take(runtime::MailRecord* record) override {
    return runtime::mailbox_take(mailbox_, record, kMailboxTimeoutNanoseconds);
  }
  bool take_now(runtime::MailRecord* record) override { return runtime::mailbox_take(mailbox_, record, 0); }
  void fetch(const std::string&) override {}

 private:
  runtime::Mailbox* mailbox_;
  std::vector<runtime::MailRecord> mail_;
  runtime::Program program_;
  runtime::Launcher launcher_;
};

}  // namespace

std::unique_ptr<Machine> make_cpu_machine(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                                          const MemoryMap& memory) {
  return std::make_unique<CpuMachine>(graph, kernel, memory);
}

}  // namespace megalith::engine
