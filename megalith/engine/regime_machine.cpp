#include "megalith/engine/regime_machine.h"

#include <unistd.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/engine/batch_block.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

namespace {

std::vector<int64_t> rows_of(const std::vector<RegimeMachine::Kernel>& kernels) {
  std::vector<int64_t> rows;
  for (const RegimeMachine::Kernel& kernel : kernels) rows.push_back(kernel.rows);
  return rows;
}

const graph::Tensor* find(const graph::Graph& graph, const std::string& name, size_t* index) {
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (graph.tensors()[i].name == name && graph.tensors()[i].kind != graph::TensorKind::activation) {
      *index = i;
      return &graph.tensors()[i];
    }
  return nullptr;
}

}  // namespace

RegimeMachine::RegimeMachine(std::vector<Kernel> kernels, size_t base, const graph::Graph& tables,
                             const MemoryMap& memory)
    : kernels_(std::move(kernels)),
      regimes_(rows_of(kernels_)),
      base_(base),
      tables_(row_tables(tables, memory)),
      stop_(memory.get<int32_t>("stop")) {}

// The last one's memory is used by all others.
RegimeMachine::~RegimeMachine() {
  for (Kernel& kernel : kernels_) kernel.machine.reset();
}

void RegimeMachine::start(const std::vector<std::string>& changed, RunKind kind) {
  const std::lock_guard lock(mutex_);
  cancelled_.store(false);
  end_.reset();
  failure_ = nullptr;
  process_ = ::getpid();
  worked_.clear();
  serves_ = kind == RunKind::serving;
  tables_.counts[batch::kQuiet] = batch::kPatience;
  active_ = 0;
  for (int64_t n = 0; n < tables_.num_requests; ++n)
    active_ += tables_.requests[n * batch::kRequestFields + batch::kState] == batch::kActive;
  begin(runtime::tokens_waiting(tables_), changed, kind);
}

void RegimeMachine::begin(int64_t load, const std::vector<std::string>& changed, RunKind kind) {
  now_ = is_profiled_ ? base_ : regimes_.choose(load);
  const LoadRange range = is_profiled_ ? LoadRange{} : regimes_.range(now_);
  tables_.max_rows = regimes_.rows(now_);
  tables_.counts[batch::kLeast] = range.least;
  tables_.counts[batch::kMaxWaiting] = range.most;
  runtime::lay_out_first_rows(tables_);
  *stop_ = 0;
  log_debug("[engine] {} tokens wait: the kernel of {} rows works on them", load, tables_.max_rows);
  now().start(changed, kind);
  foresee();
}

void RegimeMachine::follow(size_t kernel) {
  constexpr size_t kMost = 3;
  if (kernel == now_ || following_.size() >= kMost || std::ranges::find(following_, kernel) != following_.end()) return;
  if (kernels_[kernel].machine->follow(regimes_.range(kernel))) following_.push_back(kernel);
}

// Behind prompts each sequence has a token that waits; then one sequence after another ends.
void RegimeMachine::foresee() {
  if (is_profiled_ || end_ || cancelled_.load() || active_ == 0) return;
  const size_t behind = regimes_.choose(active_);
  if (behind < now_)
    follow(behind);
  else if (behind == now_ && now_ > 0 && active_ - 1 <= regimes_.rows(now_ - 1))
    follow(now_ - 1);
}

bool RegimeMachine::note(bool is_there, const runtime::MailRecord& record) {
  if (!is_there || record.kind != static_cast<uint32_t>(runtime::MailKind::finished)) return is_there;
  const std::lock_guard lock(mutex_);
  --active_;
  foresee();
  return true;
}

void RegimeMachine::go_on(runtime::RunEnd end) {
  const std::lock_guard lock(mutex_);
  if (!serves_ && now().has_worked()) worked_.push_back(regimes_.rows(now_));
  // A forked process has none of the run's workers, and its tables as they were in the middle of something.
  if (end == runtime::RunEnd::cancelled || process_ != ::getpid()) {
    end_ = runtime::RunEnd::cancelled;
    if (process_ == ::getpid()) end_following();
    return;
  }
  if (!following_.empty()) {
    now_ = following_.front();
    following_.pop_front();
    now().attend();
    if (cancelled_.load()) now().cancel();
    foresee();
    return;
  }
  fetch("requests");
  const int64_t waiting = runtime::tokens_waiting(tables_);
  if (waiting == 0 || cancelled_.load()) {
    end_ = waiting == 0 ? end : runtime::RunEnd::cancelled;
    return;
  }
  // With the drafts that the kernel found, which the next one finds again behind its first iteration.
  fetch("counts");
  begin(std::max<int64_t>(waiting, tables_.counts[batch::kWaiting]), row_tensors(), RunKind::goes_on);
  if (cancelled_.load()) now().cancel();  // a start forgets what was said before it
}

void RegimeMachine::end_following() noexcept {
  for (const size_t kernel : std::exchange(following_, {})) {
    Machine& machine = *kernels_[kernel].machine;
    try {
      machine.attend();
      machine.cancel();
      machine.wait();
    } catch (const std::exception& error) { log_debug("[engine] {}", error.what()); }
  }
}

// Which of them runs only the reader of the mail knows.
bool RegimeMachine::post(const runtime::Command& command) {
  const std::lock_guard lock(mutex_);
  const bool is_posted = owner().post(command);
  for (const Kernel& kernel : kernels_) kernel.machine->wake();
  if (!is_posted || command.kind != static_cast<uint32_t>(runtime::CommandKind::begin)) return is_posted;
  ++active_;
  if (is_profiled_ || end_ || cancelled_.load()) return true;
  const int64_t load = active_ + command.fields[batch::kLength] - command.fields[batch::kDone] - 1;
  if (const size_t kernel = regimes_.choose(load); kernel > now_)
    follow(kernel);
  else
    foresee();
  return true;
}

bool RegimeMachine::finished() {
  if (!end_ && now().finished()) take_end();
  return end_.has_value();
}

runtime::RunEnd RegimeMachine::wait() {
  while (!end_) take_end();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return *end_;
}

void RegimeMachine::take_end() {
  try {
    go_on(now().wait());
  } catch (...) {
    failure_ = std::current_exception();
    const std::lock_guard lock(mutex_);
    end_ = runtime::RunEnd::cancelled;
    end_following();
  }
}

void RegimeMachine::cancel() noexcept {
  cancelled_.store(true);
  for (const Kernel& kernel : kernels_) kernel.machine->cancel();
}

void RegimeMachine::profile(uint32_t iterations) {
  kernels_[base_].machine->profile(iterations);
  is_profiled_ = iterations > 0;
}

int64_t RegimeMachine::weights_held() const {
  int64_t bytes = 0;
  for (const Kernel& kernel : kernels_) bytes += kernel.machine->weights_held();
  return bytes;
}

std::string why_not_shared(const graph::Graph& smaller, const graph::Schedule& of_smaller, const graph::Graph& larger,
                           const graph::Schedule& of_larger) {
  size_t index = 0;
  for (const graph::Tensor& tensor : smaller.tensors())
    if (tensor.kind != graph::TensorKind::activation && !find(larger, tensor.name, &index))
      return fmt::format("only one of them has \"{}\"", tensor.name);
  for (size_t p = 0; p < larger.tensors().size(); ++p) {
    const graph::Tensor& tensor = larger.tensors()[p];
    if (tensor.kind == graph::TensorKind::activation) continue;
    size_t d = 0;
    const graph::Tensor* other = find(smaller, tensor.name, &d);
    if (!other) return fmt::format("only one of them has \"{}\"", tensor.name);
    const bool has_shape = std::ranges::equal(std::span(tensor.shape).subspan(std::min<size_t>(1, tensor.shape.size())),
                                              std::span(other->shape).subspan(std::min<size_t>(1, other->shape.size())),
                                              {}, &graph::Dim::size, &graph::Dim::size);
    const bool has_rows = tensor.kind == graph::TensorKind::constant ? tensor.bytes() == other->bytes()
                                                                     : tensor.bytes() >= other->bytes();
    if (tensor.kind != other->kind || tensor.dtype != other->dtype || !has_shape || !has_rows)
      return fmt::format("\"{}\" is of another shape or dtype", tensor.name);
    if (tensor.kind == graph::TensorKind::state && of_larger.layouts[p] != of_smaller.layouts[d])
      return fmt::format("\"{}\" lies in {} for one and in {} for the other", tensor.name,
                         graph::kLayoutNames[static_cast<size_t>(of_larger.layouts[p])],
                         graph::kLayoutNames[static_cast<size_t>(of_smaller.layouts[d])]);
  }
  return "";
}

}  // namespace megalith::engine
