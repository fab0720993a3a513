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
  cancelled_.store(false);
  end_.reset();
  failure_ = nullptr;
  process_ = ::getpid();
  worked_.clear();
  serves_ = kind == RunKind::serving;
  tables_.counts[batch::kQuiet] = batch::kPatience;
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
  if (!serves_) worked_.push_back(tables_.max_rows);
  now().start(changed, kind);
}

void RegimeMachine::go_on(runtime::RunEnd end) {
  // A forked process has none of the run's workers, and its tables as they were in the middle of something.
  if (end == runtime::RunEnd::cancelled || process_ != ::getpid()) {
    end_ = runtime::RunEnd::cancelled;
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

// Which of them runs only the reader of the mail knows.
bool RegimeMachine::post(const runtime::Command& command) {
  const bool is_posted = owner().post(command);
  for (const Kernel& kernel : kernels_) kernel.machine->wake();
  return is_posted;
}

bool RegimeMachine::finished() {
  if (end_ || !now().finished()) return end_.has_value();
  try {
    go_on(now().wait());
  } catch (...) {
    failure_ = std::current_exception();
    end_ = runtime::RunEnd::cancelled;
  }
  return end_.has_value();
}

runtime::RunEnd RegimeMachine::wait() {
  while (!end_) go_on(now().wait());
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return *end_;
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
