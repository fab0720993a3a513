#include "megalith/engine/token_stream.h"

#include <cmath>
#include <string>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/log.h"
#include "megalith/engine/batch_block.h"

namespace megalith::engine {

namespace {

// From the launch to the moment the kernel posted a record; the host may take it in much later.
double milliseconds_between(std::chrono::steady_clock::time_point start, uint64_t posted_ns) {
  const auto posted = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(posted_ns));
  return std::chrono::duration<double, std::milli>(posted - start).count();
}

}  // namespace

TokenStream::TokenStream(Engine& engine, std::vector<Request> requests)
    : engine_(engine), requests_(std::move(requests)) {
  engine_.check(requests_);
  result_.tokens.resize(requests_.size());
  result_.token_ms.resize(requests_.size());
  result_.logprobs.resize(requests_.size());
  result_.top.resize(requests_.size());
  result_.prompt_logprobs.resize(requests_.size());
  top_.resize(requests_.size());
  result_.unsound_from.resize(requests_.size());
  result_.reasons.resize(requests_.size(), batch::kNotFinished);
}

TokenStream::~TokenStream() { end(); }

void TokenStream::start(std::string_view where, Turn::For use) {
  engine_.turn_.take(where, use);
  has_turn_ = true;
  engine_.check_weights();
  const std::vector<std::string> changed = engine_.fill_block(requests_);
  walks_.resize(requests_.size());
  size_t num_walks = 0;
  for (size_t r = 0; r < requests_.size(); ++r) {
    const Request& request = requests_[r];
    if (!request.grammar) continue;
    const auto length = static_cast<int64_t>(request.prompt.size());
    walks_[r] = std::make_unique<Walk>(Walk{GrammarWalk(request, length, engine_.stop_tokens()), request.prompt});
    write_mask(r);
    ++num_walks;
  }
  start_ = std::chrono::steady_clock::now();
  engine_.machine_->start(changed);
  is_running_ = true;
  if (num_walks > 0) MaskTable(*engine_.machine_, engine_.config().vocab_size).set_owed(num_walks, 0);
}

void TokenStream::write_mask(size_t r) {
  Walk& walk = *walks_[r];
  MaskTable table(*engine_.machine_, engine_.config().vocab_size);
  std::vector<uint32_t> mask(static_cast<size_t>(table.words()));
  walk.walk.mask_behind(walk.sequence, mask.data());
  if (!walk.walk.failure().empty())
    throw UserError(fmt::format("[grammar] request {}: {}", r + 1, walk.walk.failure()));
  table.publish(static_cast<int64_t>(r), mask, static_cast<int64_t>(walk.sequence.size()));
}

std::optional<TokenEvent> TokenStream::next() {
  if (!is_running_) return std::nullopt;
  engine_.turn_.pass_on("generate");
  Machine& machine = *engine_.machine_;
  runtime::MailRecord record;
  while (!machine.finished()) {
    if (!machine.take(&record))
      interruption_check();
    else if (std::optional<TokenEvent> event = note(record))
      return event;
  }
  while (machine.take_now(&record))
    if (std::optional<TokenEvent> event = note(record)) return event;
  return std::nullopt;
}

std::optional<TokenEvent> TokenStream::note(const runtime::MailRecord& record) {
  engine_.check_weights();
  if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::top) {
    top_[record.request].push_back({record.token, record.logprob});
    return std::nullopt;
  }
  const Request& request = requests_[record.request];
  std::optional<size_t>& unsound_from = result_.unsound_from[record.request];
  if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::prompt) {
    if (std::isnan(record.logprob)) unsound_from = 0;
    result_.prompt_logprobs[record.request].push_back(
        {record.logprob,
         top_tokens_asked(std::exchange(top_[record.request], {}), request.prompt_logprobs.value_or(0))});
    return std::nullopt;
  }
  TokenEvent event{static_cast<int>(record.request), record.token, false, batch::kNotFinished, record.logprob};
  if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::finished) {
    event.finished = true;
    event.reason = result_.reasons[record.request] = static_cast<batch::FinishReason>(record.reason);
    return event;
  }
  if (record.reason == runtime::kAccepted)
    ++result_.accepted;
  else
    result_.drafted += record.reason, result_.draft_steps += record.reason > 0;
  const double ms = milliseconds_between(start_, record.posted_ns);
  if (result_.first_token_ms == 0) result_.first_token_ms = ms;
  result_.last_token_ms = ms;
  if (std::isnan(record.logprob) && !unsound_from) unsound_from = result_.tokens[record.request].size();
  result_.tokens[record.request].push_back(record.token);
  if (walks_[record.request] && !ends_request(requests_[record.request], engine_.stop_tokens(), record.token)) {
    walks_[record.request]->sequence.push_back(record.token);
    write_mask(record.request);
  }
  result_.token_ms[record.request].push_back(ms);
  if (request.logprobs) result_.logprobs[record.request].push_back(record.logprob);
  event.top = top_tokens_asked(std::exchange(top_[record.request], {}), request.top_logprobs);
  if (request.top_logprobs > 0) result_.top[record.request].push_back(event.top);
  return event;
}

Generation TokenStream::finish() {
  if (std::exchange(is_running_, false)) {
    result_.cancelled = engine_.machine_->wait() == runtime::RunEnd::cancelled;
    result_.regimes = engine_.machine_->worked();
    engine_.check_weights();
    if (result_.drafted > 0) log_info("[engine] of {} drafts {} were right", result_.drafted, result_.accepted);
    engine_.machine_->fetch("logits");
  }
  return result_;
}

void TokenStream::end() noexcept {
  if (std::exchange(is_running_, false)) {
    engine_.machine_->cancel();
    try {
      engine_.machine_->wait();
    } catch (const std::exception& error) { log_warn("{}", error.what()); }
  }
  if (std::exchange(has_turn_, false)) engine_.turn_.give_back();
}

}  // namespace megalith::engine
