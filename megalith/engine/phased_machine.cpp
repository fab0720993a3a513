#include "megalith/engine/phased_machine.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

namespace {

class PhasedMachine : public Machine {
 public:
  PhasedMachine(std::unique_ptr<Machine> prompts, std::unique_ptr<Machine> decode, const MemoryMap& memory)
      : prompts_(std::move(prompts)),
        decode_(std::move(decode)),
        counts_(memory.get<int32_t>("counts")),
        stop_(memory.get<int32_t>("stop")) {}

  void start(const std::vector<std::string>& changed, bool goes_on) override {
    cancelled_.store(false);
    end_.reset();
    now_ = counts_[batch::kLeast] > 0 ? prompts_.get() : decode_.get();
    now_->start(changed, goes_on);
  }
  bool finished() override {
    pass_on();
    return end_ || now_->finished();
  }
  runtime::RunEnd wait() override {
    if (now_ == prompts_.get() && !end_) {
      prompts_->wait();
      pass_on();
    }
    return end_ ? *end_ : now_->wait();
  }
  void cancel() noexcept override {
    cancelled_.store(true);
    prompts_->cancel();
    decode_->cancel();
  }
  bool take(runtime::MailRecord* record) override { return now_->take(record); }
  bool take_now(runtime::MailRecord* record) override { return now_->take_now(record); }
  void profile(uint32_t iterations) override { decode_->profile(iterations); }
  runtime::Profile profile_take() override { return decode_->profile_take(); }
  int64_t weights_held() const override { return prompts_->weights_held() + decode_->weights_held(); }
  void fetch(const std::string& state) override { prompts_->fetch(state); }

 private:
  // From prompts to what is behind them, once their kernel has ended.
  void pass_on() {
    if (end_ || now_ != prompts_.get() || !prompts_->finished()) return;
    const runtime::RunEnd end = prompts_->wait();
    prompts_->fetch("counts");
    if (end == runtime::RunEnd::cancelled || cancelled_.load() || counts_[batch::kRows] == 0) {
      end_ = cancelled_.load() ? runtime::RunEnd::cancelled : end;
      return;
    }
    counts_[batch::kLeast] = 0;
    *stop_ = 0;
    decode_->start({"counts", "stop"}, true);
    now_ = decode_.get();
    if (cancelled_.load()) decode_->cancel();  // a start forgets what was said before it
  }

  std::unique_ptr<Machine> prompts_, decode_;  // the second may use memory of the first, so it goes first
  int32_t *counts_, *stop_;
  Machine* now_ = nullptr;
  std::optional<runtime::RunEnd> end_;  // of a run that ended with its prompts
  std::atomic<bool> cancelled_{false};
};

const graph::Tensor* find(const graph::Graph& graph, const std::string& name, size_t* index) {
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (graph.tensors()[i].name == name && graph.tensors()[i].kind != graph::TensorKind::activation) {
      *index = i;
      return &graph.tensors()[i];
    }
  return nullptr;
}

}  // namespace

std::unique_ptr<Machine> make_phased_machine(std::unique_ptr<Machine> prompts, std::unique_ptr<Machine> decode,
                                             const MemoryMap& memory) {
  return std::make_unique<PhasedMachine>(std::move(prompts), std::move(decode), memory);
}

std::string why_not_shared(const graph::Graph& decode, const graph::Schedule& of_decode, const graph::Graph& prompts,
                           const graph::Schedule& of_prompts) {
  for (size_t p = 0; p < prompts.tensors().size(); ++p) {
    const graph::Tensor& tensor = prompts.tensors()[p];
    if (tensor.kind == graph::TensorKind::activation) continue;
    size_t d = 0;
    const graph::Tensor* other = find(decode, tensor.name, &d);
    if (!other) return fmt::format("only one of them has \"{}\"", tensor.name);
    const bool has_shape = std::ranges::equal(std::span(tensor.shape).subspan(std::min<size_t>(1, tensor.shape.size())),
                                              std::span(other->shape).subspan(std::min<size_t>(1, other->shape.size())),
                                              {}, &graph::Dim::size, &graph::Dim::size);
    const bool has_rows = tensor.kind == graph::TensorKind::constant ? tensor.bytes() == other->bytes()
                                                                     : tensor.bytes() >= other->bytes();
    if (tensor.kind != other->kind || tensor.dtype != other->dtype || !has_shape || !has_rows)
      return fmt::format("\"{}\" is of another shape or dtype", tensor.name);
    if (tensor.kind == graph::TensorKind::state && of_prompts.layouts[p] != of_decode.layouts[d])
      return fmt::format("\"{}\" lies in {} for one and in {} for the other", tensor.name,
                         graph::kLayoutNames[static_cast<size_t>(of_prompts.layouts[p])],
                         graph::kLayoutNames[static_cast<size_t>(of_decode.layouts[d])]);
  }
  return "";
}

}  // namespace megalith::engine
