#include "python/src/answers.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"
#include "megalith/base/threads.h"

namespace megalith::python {

namespace {

// How often a reader that waits looks for Ctrl-C.
constexpr std::chrono::milliseconds kSignalInterval{20};

std::atomic<uint64_t> next_answer{1};

int open_eventfd() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0)
    throw SystemError(
        fmt::format("[Engine] cannot open an eventfd for the event loop: {} (ulimit -n?)", std::strerror(errno)));
  return descriptor;
}

Answer::End end_of(engine::RequestEnd end) {
  switch (end) {
    case engine::RequestEnd::none: return Answer::End::none;
    case engine::RequestEnd::stop: return Answer::End::stop;
    case engine::RequestEnd::length: return Answer::End::length;
    case engine::RequestEnd::aborted: return Answer::End::aborted;
    case engine::RequestEnd::failed: break;
  }
  return Answer::End::failed;
}

}  // namespace

// ---- waking an event loop --------------------------------------------------------------------

Wakeup::Wakeup() : descriptor_(open_eventfd()) {}

Wakeup::~Wakeup() { ::close(descriptor_); }

void Wakeup::call(uint64_t answer) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(answer);
  if (calls_.size() == 1) static_cast<void>(::eventfd_write(descriptor_, 1));
}

std::vector<uint64_t> Wakeup::take() {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(descriptor_, &count));
  return std::exchange(calls_, {});
}

// ---- one answer ------------------------------------------------------------------------------

Answer::Answer(const engine::Request& request, const Tokenizer* tokenizer, engine::TextOptions text)
    : id_(next_answer++),
      prompt_tokens_(static_cast<int64_t>(request.prompt.size())),
      has_logprobs_(request.logprobs),
      has_top_(request.top_logprobs > 0) {
  if (tokenizer) stream_.emplace(tokenizer, std::move(text));
}

bool Answer::wait(For what, std::optional<Clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  while (!is_there(what)) {
    const auto now = Clock::now();
    if (deadline && now >= *deadline) return false;
    changed_.wait_until(lock, deadline ? std::min(*deadline, now + kSignalInterval) : now + kSignalInterval);
    if (is_there(what)) break;
    lock.unlock();
    interruption_check();
    lock.lock();
  }
  return true;
}

bool Answer::wake(For what, const std::shared_ptr<Wakeup>& wakeup) {
  const std::lock_guard lock(mutex_);
  if (is_there(what)) return false;
  (what == For::piece ? piece_wakeups_ : end_wakeups_).push_back(wakeup);
  return true;
}

std::optional<Answer::Piece> Answer::take() {
  const std::lock_guard lock(mutex_);
  if (pieces_.empty()) return std::nullopt;
  std::optional<Piece> piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

bool Answer::add(const engine::RequestEvent& event) {
  const std::lock_guard lock(mutex_);
  if (end_ != End::none) return false;
  cached_tokens_ += event.cached_tokens;
  if (event.token >= 0) {
    tokens_.push_back(event.token);
    if (has_logprobs_) logprobs_.push_back(event.logprob);
    if (has_top_) top_.push_back(event.top);
    if (!event.prompt_logprobs.empty()) prompt_logprobs_ = event.prompt_logprobs;
    add_piece(stream_ ? stream_->push(event.token) : "", has_logprobs_ ? std::optional(event.logprob) : std::nullopt);
    if (stream_ && stream_->is_stopped()) return finish(End::stop), false;
  }
  if (event.end == engine::RequestEnd::none) return true;
  std::exception_ptr error = event.error;
  if (event.end == engine::RequestEnd::failed && !error)
    error = std::make_exception_ptr(UserError(fmt::format(
        "[Engine] the model's logits from token {} on are NaN or infinite: its weights are damaged, or numbers outgrew "
        "their type; `megalith run` on the same prompt says more",
        tokens_.size() + 1)));
  if (event.end == engine::RequestEnd::aborted)
    error = std::make_exception_ptr(UserError(
        "[Engine] the engine was closed before this answer was complete: wait for its result() before close(), or "
        "abort() it; .text and .tokens are what was made"));
  finish(end_of(event.end), error);
  return true;
}

bool Answer::abort() {
  const std::lock_guard lock(mutex_);
  if (end_ != End::none) return false;
  finish(End::aborted);
  return true;
}

void Answer::add_piece(std::string text, std::optional<float> logprob) {
  text_ += text;
  pieces_.push_back({std::move(text), tokens_.back(), logprob});
  wake_all(piece_wakeups_);
}

void Answer::finish(End end, std::exception_ptr error) {
  if (stream_) {
    std::string held = stream_->finish();
    if (!held.empty()) add_piece(std::move(held), std::nullopt);
    if (stream_->is_stopped()) end = End::stop, error = {};
  }
  stream_.reset();
  end_ = end;
  error_ = std::move(error);
  wake_all(piece_wakeups_);
  wake_all(end_wakeups_);
}

void Answer::wake_all(std::vector<std::shared_ptr<Wakeup>>& wakeups) {
  for (const std::shared_ptr<Wakeup>& wakeup : std::exchange(wakeups, {})) wakeup->call(id_);
  changed_.notify_all();
}

Answer::End Answer::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

void Answer::check() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) std::rethrow_exception(error);
}

std::string Answer::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::vector<int> Answer::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

std::vector<float> Answer::logprobs() const {
  const std::lock_guard lock(mutex_);
  return logprobs_;
}

std::vector<std::vector<engine::TopToken>> Answer::top_logprobs() const {
  const std::lock_guard lock(mutex_);
  return top_;
}

std::vector<engine::PromptLogprob> Answer::prompt_logprobs() const {
  const std::lock_guard lock(mutex_);
  return prompt_logprobs_;
}

int64_t Answer::num_tokens() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(tokens_.size());
}

int64_t Answer::cached_tokens() const {
  const std::lock_guard lock(mutex_);
  return cached_tokens_;
}

// ---- all of an engine ------------------------------------------------------------------------

Answers::Answers(engine::Engine& engine, const AnswersOptions& options)
    : process_(::getpid()),
      max_open_(engine.decoder_options().max_requests + options.max_queue),
      service_(std::make_unique<engine::AsyncEngine>(engine, engine::AsyncEngineOptions{options.prefix_cache})) {
  thread_ = start_thread("the engine's answers", [this] { serve(); });
}

Answers::~Answers() { close(); }

std::shared_ptr<Answer> Answers::submit(engine::Request request, const Tokenizer* tokenizer, engine::TextOptions text) {
  check_process("submit");
  const std::shared_lock lock(open_);
  engine::AsyncEngine& service = this->service("submit");
  if (++num_open_ > max_open_) return --num_open_, nullptr;
  try {
    auto answer = std::make_shared<Answer>(request, tokenizer, std::move(text));
    answer->request_ =
        service.submit(std::move(request), [this, answer](engine::RequestId id, const engine::RequestEvent& event) {
          if (event.end != engine::RequestEnd::none) --num_open_;
          put({answer, id, event});
        });
    return answer;
  } catch (...) {
    --num_open_;
    throw;
  }
}

void Answers::abort(const std::shared_ptr<Answer>& answer) {
  if (answer->abort()) put({answer, answer->request_, std::nullopt});
}

engine::ServiceLoad Answers::load() const {
  check_process("load");
  const std::shared_lock lock(open_);
  return service("load").load();
}

void Answers::clear_prefix_cache() {
  check_process("clear_prefix_cache");
  const std::shared_lock lock(open_);
  service("clear_prefix_cache").clear_prefix_cache();
}

// First the engine, which tells all answers of its end; then the thread that tells readers so.
void Answers::close() {
  check_process("close");
  is_closed_ = true;  // calls that come while others hold the lock do not keep it from this one
  const std::lock_guard closing(closing_);
  {
    const std::lock_guard lock(open_);
    service_.reset();
  }
  {
    const std::lock_guard entries(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Answers::is_forked() const { return ::getpid() != process_; }

void Answers::check_process(const char* where) const {
  MEGALITH_CHECK(!is_forked(),
                 "[{}] this process was forked from the one that made the engine, whose threads stayed there: make an "
                 "Engine after the fork",
                 where);
}

engine::AsyncEngine& Answers::service(const char* where) const {
  MEGALITH_CHECK(!is_closed_ && service_, "[{}] the engine is closed: make another one", where);
  return *service_;
}

void Answers::put(Entry entry) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = entries_.empty();
    entries_.push_back(std::move(entry));
  }
  if (is_first) changed_.notify_one();
}

void Answers::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !entries_.empty(); });
    if (entries_.empty()) return;
    std::vector<Entry> entries = std::exchange(entries_, {});
    lock.unlock();
    for (const Entry& entry : entries) take(entry);
    entries.clear();
    lock.lock();
  }
}

void Answers::take(const Entry& entry) {
  const bool goes_on = entry.event && entry.answer->add(*entry.event);
  const bool has_ended = entry.event && entry.event->end != engine::RequestEnd::none;
  if (goes_on || has_ended || is_closed_) return;
  const std::shared_lock lock(open_);
  if (service_) service_->abort(entry.request);
}

}  // namespace megalith::python
