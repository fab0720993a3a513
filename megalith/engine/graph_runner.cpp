#include "megalith/engine/graph_runner.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/engine/machine.h"
#include "megalith/engine/profiled_nodes.h"
#include "megalith/runtime/cuda/launcher.h"
#include "megalith/runtime/cuda/program.h"
#include "megalith/runtime/mapped_memory.h"
#include "megalith/runtime/profile_summary.h"
#include "megalith/runtime/program.h"
#include "megalith/task/match.h"

namespace megalith::engine {

using graph::Tensor;
using graph::TensorKind;

class GraphRunner::Target {
 public:
  virtual ~Target() = default;
  virtual void run(uint32_t iterations) = 0;
  virtual void read_activation(graph::TensorId tensor, void* to) = 0;
  virtual void profile(uint32_t iterations) = 0;
  virtual runtime::Profile profile_take() = 0;
  virtual int64_t bytes_held() const = 0;
  virtual void cancel() noexcept = 0;
  virtual GraphRunner::Mail mail() const = 0;
  virtual void mail_open() = 0;
  virtual bool mail_take(runtime::MailRecord* record, std::chrono::milliseconds longest) = 0;
};

namespace {

// The tensors of a node of `serve_batch` that it shares with the host, by name, and what they have room for.
struct MailTensors {
  std::string mailbox, inbox;
  int64_t num_slots, longest;
};

std::optional<MailTensors> mail_tensors(const graph::Graph& graph) {
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->name != "serve_batch") continue;
    const auto tensor = [&](const char* operand) -> const Tensor& {
      const auto& operands = node.op->operands;
      const auto found = std::ranges::find(operands, operand, &graph::Operand::name);
      return graph.tensor(node.operands[static_cast<size_t>(found - operands.begin())]);
    };
    const Tensor& mailbox = tensor("mailbox");
    MEGALITH_CHECK(mailbox.bytes() >= static_cast<int64_t>(sizeof(runtime::Mailbox)),
                   "the mailbox \"{}\" has {} bytes, want {}", mailbox.name, mailbox.bytes(), sizeof(runtime::Mailbox));
    const int64_t rows = tensor("prompt_length").num_elements(), slots = tensor("last_length").num_elements();
    MEGALITH_CHECK(slots <= rows, "\"{}\" has {} slots, but tokens of {} requests: want a row of tokens for each slot",
                   node.name, slots, rows);
    return MailTensors{mailbox.name, tensor("inbox").name, slots, tensor("inbox").num_elements() / rows};
  }
  return std::nullopt;
}

using MemoryByName = std::map<std::string, TensorMemory>;
using Mail = GraphRunner::Mail;

// One piece of a stacked constant: `bytes` from `part` at `from` come to `to`.
struct Piece {
  std::string part;
  int64_t to, from, bytes;
};

// A stacked constant is made of its parts' rows, dealt in rounds (graph.h). Their shapes were checked when it was made.
std::vector<Piece> pieces_of(const Tensor& stacked, const std::vector<int64_t>& part_rows) {
  const int64_t row_bytes = stacked.bytes() / stacked.shape[0].size;
  std::vector<Piece> pieces;
  int64_t to = 0;
  for (int64_t group = 0; group < stacked.groups; ++group)
    for (size_t p = 0; p < stacked.parts.size(); ++p) {
      const int64_t bytes = part_rows[p] / stacked.groups * row_bytes;
      pieces.push_back({stacked.parts[p], to, group * bytes, bytes});
      to += bytes;
    }
  return pieces;
}

const TensorMemory& memory_of(const MemoryByName& memory, const std::string& name) {
  const auto found = memory.find(name);
  MEGALITH_CHECK(found != memory.end() && found->second.address, "the tensor \"{}\" has no memory: attach it", name);
  return found->second;
}

// What the caller must bring: every constant and state, or the parts of a stacked one.
std::vector<std::string> wanted_names(const Tensor& tensor) {
  if (tensor.kind == TensorKind::activation) return {};
  return tensor.parts.empty() ? std::vector{tensor.name} : tensor.parts;
}

// Bytes of a tensor, or of a part of a stacked one.
int64_t bytes_of(const Tensor& tensor, const TensorMemory& where) {
  return tensor.parts.empty() ? tensor.bytes() : tensor.bytes() / tensor.shape[0].size * where.rows;
}

// Of what lies on a GPU. Kernels load 16 bytes at once, where a tensor has that many; parts of a stacked constant are
// copied to where they may.
void check_device_memory(const Tensor& tensor, const std::string& name, const TensorMemory& where, int used) {
  constexpr int64_t kAlignment = 16;
  constexpr int kMemoryType = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(where.address));
  MEGALITH_CHECK(where.device < 0 || where.device == used,
                 "the tensor \"{}\" lies on GPU {}, but kernels run on GPU {}: bring one that lies there, or let "
                 "CUDA_VISIBLE_DEVICES say which GPU is the first",
                 name, where.device, used);
  MEGALITH_CHECK(!tensor.parts.empty() || tensor.bytes() < kAlignment || address % kAlignment == 0,
                 "the tensor \"{}\" begins at {:#x} of the GPU's memory, and kernels load {} bytes at once, from "
                 "multiples of that: bring a copy of its own (torch's .clone()) instead of a piece of a larger tensor",
                 name, address, kAlignment);
  for (const int64_t at : {address, address + std::max<int64_t>(bytes_of(tensor, where), 1) - 1}) {
    unsigned type = 0;
    const auto code = jit::CudaDriver::get().pointer_attribute(&type, kMemoryType, static_cast<jit::CudaAddress>(at));
    MEGALITH_CHECK(code != jit::kCudaInvalidValue,
                   "the memory of the tensor \"{}\", {} at {:#x}, is no memory of a GPU: what it came from is wrong "
                   "about it",
                   name, format_bytes(bytes_of(tensor, where)), address);
  }
}

std::set<graph::TensorId> written_tensors(const graph::Graph& graph) {
  std::set<graph::TensorId> written;
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (node.op->operands[i].role != loop::Role::input) written.insert(node.operands[i]);
  return written;
}

// Of what lies in the host's memory. An address that comes from outside may be anything.
void check_host_memory(const Tensor& tensor, const std::string& name, const TensorMemory& where, bool is_written,
                       const runtime::MappedMemory& mapped) {
  const int64_t bytes = bytes_of(tensor, where);
  const std::string trouble = mapped.trouble(where.address, bytes, is_written);
  MEGALITH_CHECK(trouble.empty(),
                 "the memory of the tensor \"{}\", {} at {:#x}, {}: what it came from is wrong about it", name,
                 format_bytes(bytes), reinterpret_cast<uintptr_t>(where.address), trouble);
}

// `device`: the GPU that the kernel runs on, or -1 if it is for a CPU.
void check_memory(const graph::Graph& graph, const MemoryByName& memory, int device) {
  const std::set<graph::TensorId> written = written_tensors(graph);
  const auto mapped = runtime::MappedMemory::of_this_process();
  for (size_t id = 0; id < graph.tensors().size(); ++id) {
    const Tensor& tensor = graph.tensors()[id];
    for (const std::string& name : wanted_names(tensor)) {
      const TensorMemory& where = memory_of(memory, name);
      const auto address = reinterpret_cast<uintptr_t>(where.address);
      MEGALITH_CHECK(!where.on_device || device >= 0,
                     "the tensor \"{}\" lies on a GPU, but the kernel is for the CPU: bring a tensor in the host's "
                     "memory, or compile for cuda",
                     name);
      MEGALITH_CHECK(address % static_cast<uintptr_t>(dtype_bytes(tensor.dtype)) == 0,
                     "the tensor \"{}\" begins at {:#x}, between two elements of {}", name, address,
                     dtype_name(tensor.dtype));
      if (where.on_device)
        check_device_memory(tensor, name, where, device);
      else
        check_host_memory(tensor, name, where, written.contains(static_cast<int>(id)), mapped);
    }
  }
}

// A kernel of another graph, or of what this one was before it got more nodes, would take tensors for each other.
void check_kernel(const graph::Graph& graph, const jit::CompiledKernel& kernel) {
  try {
    task::check_matches(kernel.tasks, graph, kernel.schedule, static_cast<int>(kernel.tasks.workers.size()));
  } catch (const UserError& error) {
    throw UserError(
        fmt::format("the kernel \"{}\" was not compiled from the graph \"{}\" as it is now: compile it again ({})",
                    kernel.tasks.name, graph.name(), error.what()));
  }
}

class CpuTarget : public GraphRunner::Target {
 public:
  CpuTarget(const graph::Graph& graph, const jit::CompiledKernel& kernel, const MemoryByName& memory,
            const std::map<std::string, std::vector<int64_t>>& part_rows)
      : graph_(graph),
        addresses_(bind(memory, part_rows)),
        program_(graph, kernel, addresses_, {.num_threads = static_cast<int>(kernel.tasks.workers.size())}),
        mail_(mail_of(graph)),
        launcher_(program_.entry(), program_.image(), {.mailbox = mail_.mailbox}) {}

  void cancel() noexcept override { launcher_.cancel(); }
  Mail mail() const override { return mail_; }
  void mail_open() override {
    records_.resize(kMailboxCapacity);
    commands_.resize(kCommandCapacity);
    runtime::mailbox_init(mail_.mailbox, records_.data(), kMailboxCapacity);
    runtime::mailbox_serve(mail_.mailbox, commands_.data(), kCommandCapacity);
  }
  bool mail_take(runtime::MailRecord* record, std::chrono::milliseconds longest) override {
    return runtime::mailbox_take(mail_.mailbox, record,
                                 static_cast<uint64_t>(std::chrono::nanoseconds(longest).count()));
  }
  void run(uint32_t iterations) override {
    program_.image().set_num_iterations(iterations);
    program_.profile_begin();
    launcher_.run();
  }
  void profile(uint32_t iterations) override { program_.profile(iterations); }
  runtime::Profile profile_take() override { return program_.profile_take(); }
  void read_activation(graph::TensorId tensor, void* to) override {
    std::memcpy(to, program_.address(tensor), static_cast<size_t>(graph_.tensor(tensor).bytes()));
  }
  int64_t bytes_held() const override {
    int64_t bytes = program_.arena_bytes() + program_.scratch_bytes() + program_.packed_bytes();
    for (const runtime::Mapping& mapping : stacked_) bytes += mapping.bytes();
    return bytes;
  }

 private:
  std::map<std::string, void*> bind(const MemoryByName& memory,
                                    const std::map<std::string, std::vector<int64_t>>& part_rows) {
    std::map<std::string, void*> addresses;
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.kind == TensorKind::activation) continue;
      if (tensor.parts.empty()) {
        addresses[tensor.name] = memory_of(memory, tensor.name).address;
        continue;
      }
      std::byte* const to =
          stacked_.emplace_back(tensor.bytes(), fmt::format("the stacked tensor \"{}\"", tensor.name)).data();
      for (const Piece& piece : pieces_of(tensor, part_rows.at(tensor.name)))
        std::memcpy(to + piece.to, static_cast<const std::byte*>(memory_of(memory, piece.part).address) + piece.from,
                    static_cast<size_t>(piece.bytes));
      addresses[tensor.name] = to;
    }
    return addresses;
  }

  Mail mail_of(const graph::Graph& graph) {
    const std::optional<MailTensors> tensors = mail_tensors(graph);
    if (!tensors) return {};
    return {static_cast<runtime::Mailbox*>(addresses_.at(tensors->mailbox)),
            static_cast<int32_t*>(addresses_.at(tensors->inbox)), tensors->num_slots, tensors->longest};
  }

  const graph::Graph& graph_;
  std::deque<runtime::Mapping> stacked_;
  std::map<std::string, void*> addresses_;
  runtime::Program program_;
  Mail mail_;
  std::vector<runtime::MailRecord> records_;
  std::vector<runtime::Command> commands_;
  runtime::Launcher launcher_;
};

class CudaTarget : public GraphRunner::Target {
 public:
  CudaTarget(const graph::Graph& graph, const jit::CompiledKernel& kernel, const MemoryByName& memory,
             const std::map<std::string, std::vector<int64_t>>& part_rows)
      : graph_(graph),
        on_device_(bind(memory, part_rows)),
        program_(graph, kernel, on_host_, shared_tensors(graph), on_device_),
        mail_(mail_of(graph)),
        launcher_(program_, {.mailbox = mail_.mailbox}) {
    const std::set<std::string> shared = shared_tensors(graph);
    for (const Tensor& tensor : graph.tensors())
      if (tensor.kind == TensorKind::state && on_host_.contains(tensor.name) && !shared.contains(tensor.name))
        travelling_.push_back(tensor.name);
  }

  void cancel() noexcept override { launcher_.cancel(); }
  Mail mail() const override { return mail_; }
  void mail_open() override {
    const runtime::CudaContextGuard context(program_.ordinal());  // whose thread this is nobody knows
    if (records_.empty()) {
      records_.emplace_back(kMailboxCapacity * sizeof(runtime::MailRecord), "the mail");
      records_.emplace_back(kCommandCapacity * sizeof(runtime::Command), "the commands");
    }
    runtime::mailbox_init(mail_.mailbox, records_[0].data<runtime::MailRecord>(), kMailboxCapacity);
    runtime::mailbox_serve(mail_.mailbox, records_[1].data<runtime::Command>(), kCommandCapacity);
  }
  // The kernel wakes nobody.
  bool mail_take(runtime::MailRecord* record, std::chrono::milliseconds longest) override {
    const auto until = std::chrono::steady_clock::now() + longest;
    do {
      if (runtime::mailbox_take(mail_.mailbox, record, 0)) return true;
      std::this_thread::sleep_for(kLookEvery);
    } while (std::chrono::steady_clock::now() < until && runtime::load_acquire(&mail_.mailbox->closed) == 0);
    return runtime::mailbox_take(mail_.mailbox, record, 0);
  }

  // Work that the caller has given the card before is done before the kernel begins: the launch waits for the default
  // stream. States in the host's memory go there and back.
  void run(uint32_t iterations) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    for (const std::string& name : travelling_) program_.upload(name);
    program_.set_num_iterations(iterations);
    launcher_.run();
    for (const std::string& name : travelling_) program_.download(name);
  }
  void profile(uint32_t iterations) override { program_.profile(iterations); }
  runtime::Profile profile_take() override { return program_.profile_take(); }
  void read_activation(graph::TensorId tensor, void* to) override {
    const runtime::CudaContextGuard context(program_.ordinal());
    program_.download(graph_, tensor, to);
  }
  int64_t bytes_held() const override {
    int64_t bytes = program_.bytes_held();
    for (const runtime::DeviceMemory& memory : stacked_) bytes += memory.bytes();
    return bytes;
  }

 private:
  std::map<std::string, void*> bind(const MemoryByName& memory,
                                    const std::map<std::string, std::vector<int64_t>>& part_rows) {
    std::map<std::string, void*> on_device;
    const jit::CudaDriver& driver = jit::CudaDriver::get();
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.kind == TensorKind::activation) continue;
      if (tensor.parts.empty()) {
        const TensorMemory& where = memory_of(memory, tensor.name);
        (where.on_device ? on_device : on_host_)[tensor.name] = where.address;
        continue;
      }
      const runtime::DeviceMemory& to =
          stacked_.emplace_back(tensor.bytes(), fmt::format("the stacked tensor \"{}\"", tensor.name));
      for (const Piece& piece : pieces_of(tensor, part_rows.at(tensor.name))) {
        const TensorMemory& part = memory_of(memory, piece.part);
        const auto* const from = static_cast<const std::byte*>(part.address) + piece.from;
        const jit::CudaAddress at = to.address() + static_cast<jit::CudaAddress>(piece.to);
        const auto bytes = static_cast<size_t>(piece.bytes);
        driver.check(part.on_device ? driver.copy_on_device(at, reinterpret_cast<jit::CudaAddress>(from), bytes)
                                    : driver.copy_to_device(at, from, bytes),
                     fmt::format("stacking \"{}\"", tensor.name));
      }
      on_device[tensor.name] = to.data();
    }
    return on_device;
  }

  static constexpr std::chrono::microseconds kLookEvery{50};

  static std::set<std::string> shared_tensors(const graph::Graph& graph) {
    const std::optional<MailTensors> tensors = mail_tensors(graph);
    return tensors ? std::set{tensors->mailbox, tensors->inbox} : std::set<std::string>{};
  }
  Mail mail_of(const graph::Graph& graph) {
    const std::optional<MailTensors> tensors = mail_tensors(graph);
    if (!tensors) return {};
    return {program_.shared<runtime::Mailbox>(tensors->mailbox), program_.shared<int32_t>(tensors->inbox),
            tensors->num_slots, tensors->longest};
  }

  const graph::Graph& graph_;
  std::deque<runtime::DeviceMemory> stacked_;
  std::map<std::string, void*> on_host_, on_device_;
  std::vector<std::string> travelling_;  // states in the host's memory
  runtime::CudaProgram program_;
  Mail mail_;
  std::deque<runtime::PinnedMemory> records_;  // the mail's, and the commands'
  runtime::CudaLauncher launcher_;
};

}  // namespace

GraphRunner::GraphRunner(const graph::Graph& graph, const jit::CompiledKernel& kernel,
                         std::map<std::string, TensorMemory> memory)
    : graph_(graph), kernel_(kernel) {
  const bool is_cuda = !kernel.cuda.architecture.empty();
  MEGALITH_CHECK(is_cuda || kernel.build.library, "the kernel \"{}\" was only planned: compile it without plan_only",
                 graph.name());
  check_kernel(graph, kernel);
  const int device = is_cuda ? jit::cuda_device().ordinal : -1;
  std::optional<runtime::CudaContextGuard> context;
  if (is_cuda) context.emplace(device);
  if (const std::optional<MailTensors> mail = mail_tensors(graph))
    for (const std::string& name : {mail->mailbox, mail->inbox})
      memory[name] = {mail_.emplace_back(graph.tensor(graph.find(name)).bytes(), name).data()};
  check_memory(graph, memory, device);
  std::map<std::string, std::vector<int64_t>> part_rows;
  for (const Tensor& tensor : graph.tensors()) {
    int64_t all_rows = 0;
    for (const std::string& part : tensor.parts) {
      const int64_t rows = memory_of(memory, part).rows;
      MEGALITH_CHECK(rows > 0 && rows % tensor.groups == 0,
                     "\"{}\" has {} rows, which do not divide into {} groups (\"{}\")", part, rows, tensor.groups,
                     tensor.name);
      part_rows[tensor.name].push_back(rows);
      all_rows += rows;
    }
    MEGALITH_CHECK(tensor.parts.empty() || all_rows == tensor.shape[0].size,
                   "the parts of \"{}\" have {} rows together, want {}", tensor.name, all_rows, tensor.shape[0].size);
  }
  if (is_cuda)
    target_ = std::make_unique<CudaTarget>(graph_, kernel, memory, part_rows);
  else
    target_ = std::make_unique<CpuTarget>(graph_, kernel, memory, part_rows);
}

GraphRunner::~GraphRunner() = default;

void GraphRunner::cancel() noexcept { target_->cancel(); }

GraphRunner::Mail GraphRunner::mail() const { return target_->mail(); }

void GraphRunner::mail_open() {
  const TurnGuard turn(turn_, "mail_open");
  target_->mail_open();
}

bool GraphRunner::mail_take(runtime::MailRecord* record, std::chrono::milliseconds longest) {
  return target_->mail_take(record, longest);
}

void GraphRunner::run(uint32_t iterations) {
  MEGALITH_CHECK(iterations > 0 || graph_.stop_tensor(),
                 "\"{}\" is to run until it stops, and has no termination flag: say how many iterations",
                 graph_.name());
  const TurnGuard turn(turn_, "run");
  target_->run(iterations);
}

void GraphRunner::read_activation(graph::TensorId tensor, void* to) {
  const Tensor& read = graph_.tensor(tensor);
  MEGALITH_CHECK(read.kind == TensorKind::activation,
                 "\"{}\" is no activation: it lies in memory of whoever made the runner", read.name);
  const std::string trouble = runtime::MappedMemory::of_this_process().trouble(to, read.bytes(), true);
  MEGALITH_CHECK(trouble.empty(), "the memory that \"{}\" is to be copied to, {} at {:#x}, {}", read.name,
                 format_bytes(read.bytes()), reinterpret_cast<uintptr_t>(to), trouble);
  const TurnGuard turn(turn_, "read_activation");
  target_->read_activation(tensor, to);
}

void GraphRunner::profile(uint32_t iterations) {
  const TurnGuard turn(turn_, "profile");
  is_profiled_ = false;  // unless there is memory for it
  target_->profile(iterations);
  is_profiled_ = iterations > 0;
}

runtime::Profile GraphRunner::take_profile() {
  const TurnGuard turn(turn_, "profile");
  MEGALITH_CHECK(is_profiled_, "nothing was written down of \"{}\": profile it before it runs", graph_.name());
  return target_->profile_take();
}

std::string GraphRunner::trace() {
  std::vector<std::string> operators;
  for (const graph::Node& node : graph_.nodes()) operators.push_back(node.op->name);
  return runtime::profile_trace(take_profile(), kernel_.tasks, operators);
}

std::string GraphRunner::page() { return runtime::profile_page(take_profile(), kernel_.tasks, profiled_nodes(graph_)); }

int64_t GraphRunner::bytes_held() const { return target_->bytes_held(); }

}  // namespace megalith::engine
