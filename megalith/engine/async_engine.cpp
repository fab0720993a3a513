#include "megalith/engine/async_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "megalith/base/log.h"
#include "megalith/base/threads.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

namespace {

/// How often a service without requests looks whether its kernel is still there.
constexpr std::chrono::milliseconds kLook(200);

RequestEnd end_of(uint32_t reason) {
  switch (reason) {
    case batch::kStopToken: return RequestEnd::stop;
    case batch::kLengthLimit: return RequestEnd::length;
    default: return RequestEnd::aborted;
  }
}

}  // namespace

AsyncEngine::AsyncEngine(Engine& engine, const AsyncEngineOptions& options)
    : engine_(engine),
      places_(static_cast<size_t>(engine.decoder_options().max_requests)),
      pages_(PagePool(engine.graph(), engine.decoder_options().num_pages()), engine.decoder_options().page_size,
             options.prefix_cache) {
  thread_ = start_thread("the engine's service", [this] { serve(); });
}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    engine_.cancel();
  }
  changed_.notify_all();
  thread_.join();
}

RequestId AsyncEngine::submit(Request request, RequestSink sink) {
  engine_.check({request});
  const std::lock_guard lock(mutex_);
  const RequestId id = next_id_++;
  const size_t prompt_tokens = request.prompt.size();
  waiting_.push_back({id, std::move(request), std::move(sink), prompt_tokens});
  if (is_launched_) admit();
  changed_.notify_all();
  return id;
}

void AsyncEngine::abort(RequestId id) {
  std::unique_lock lock(mutex_);
  if (const auto found = place_of_.find(id); found != place_of_.end()) return cancel(found->second);
  const auto found = std::ranges::find(waiting_, id, &Work::id);
  if (found == waiting_.end()) return;
  const Work work = std::move(*found);
  waiting_.erase(found);
  lock.unlock();
  work.sink(id, {.end = RequestEnd::aborted});
}

ServiceLoad AsyncEngine::load() const {
  const std::lock_guard lock(mutex_);
  ServiceLoad load = counted_;
  load.running = static_cast<int>(place_of_.size());
  load.waiting = static_cast<int>(waiting_.size());
  load.pages = pages_.num_pages();
  load.pages_used = load.pages - pages_.num_available();
  load.pages_kept = pages_.num_kept();
  return load;
}

void AsyncEngine::clear_prefix_cache() {
  const std::lock_guard lock(mutex_);
  pages_.clear();
}

void AsyncEngine::admit() {
  while (!waiting_.empty()) {
    const auto free = std::ranges::find_if(places_, [](const auto& work) { return work == nullptr; });
    if (free == places_.end()) return;
    Work& next = waiting_.front();
    const int64_t place = free - places_.begin();
    std::vector<int32_t> pages = find_pages(next);
    pages_.hold(pages);  // before any is taken for what comes behind them
    const auto known = static_cast<int64_t>(pages.size());
    const int64_t others = pages_needed(engine_.decoder_options(), next.request) - known;
    if (others > pages_.num_available()) return pages_.release(pages);
    for (const int32_t page : pages_.take(place, others)) pages.push_back(page);
    next.pages = std::move(pages);
    next.cached_tokens = known * engine_.decoder_options().page_size;
    Work work = std::move(next);
    waiting_.pop_front();
    begin(place, std::move(work));
  }
}

// A request that only pretends to have a past knows nothing that others could use.
std::vector<int32_t> AsyncEngine::find_pages(const Work& work) const {
  const std::vector<int>& tokens = work.request.prompt;
  if (work.request.cached_tokens > 0) return {};
  return pages_.find(std::span(tokens).first(tokens.size() - 1), work.request.cache_salt);
}

void AsyncEngine::share_pages(const Work& work) {
  const std::vector<int>& tokens = work.request.prompt;
  if (work.has_failed || work.is_cancelled || work.request.cached_tokens > 0) return;
  pages_.enter(std::span(tokens).first(tokens.size() - 1), work.request.cache_salt, work.pages);
}

// Before the launch the kernel finds the request in the batch block; later it is told.
void AsyncEngine::begin(int64_t place, Work work) {
  const DecoderOptions& options = engine_.decoder_options();
  const Request& request = work.request;
  work.admitted_ns = runtime::monotonic_ns();
  auto fields = batch_block_write(options, request, place, work.pages, engine_.memory_);
  if (work.cached_tokens > 0) fields[batch::kDone] = static_cast<int32_t>(work.cached_tokens);
  if (is_launched_) {
    const auto send = [&](const char* state, int64_t line, size_t bytes) {
      engine_.machine_->send(state, place * line, static_cast<int64_t>(bytes));
    };
    send("page_table", options.pages_per_request() * 4, work.pages.size() * 4);
    send("history", options.max_seq_len * 4, request.prompt.size() * 4);
    send("sampling_f32", batch::kSamplingFloats * 4, batch::kSamplingFloats * 4);
    send("sampling_i32", batch::kSamplingInts * 4, batch::kSamplingInts * 4);
    runtime::Command command{static_cast<uint32_t>(runtime::CommandKind::begin), static_cast<uint32_t>(place), {}};
    std::ranges::copy(fields, command.fields);
    late_.push_back(command);
    post_late();
  } else {
    std::ranges::copy(fields, engine_.memory_.get<int32_t>("requests") + place * batch::kRequestFields);
  }
  counted_.prompt_tokens += request.prompt.size();
  if (pages_.keeps()) counted_.prefix_queries += request.prompt.size();
  counted_.prefix_hits += static_cast<uint64_t>(work.cached_tokens);
  place_of_[work.id] = place;
  places_[static_cast<size_t>(place)] = std::make_unique<Work>(std::move(work));
}

void AsyncEngine::cancel(int64_t place) {
  Work& work = *places_[static_cast<size_t>(place)];
  if (std::exchange(work.is_cancelled, true) || !is_launched_) return;
  late_.push_back({static_cast<uint32_t>(runtime::CommandKind::cancel), static_cast<uint32_t>(place), {}});
  post_late();
}

void AsyncEngine::post_late() {
  while (!late_.empty() && engine_.machine_->post(late_.front())) late_.pop_front();
}

void AsyncEngine::serve() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    changed_.wait(lock, [this] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) break;
    lock.unlock();
    RequestEnd end = RequestEnd::aborted;
    try {
      run();
    } catch (const std::exception& error) {
      log_warn("{}", error.what());
      end = RequestEnd::failed;
    }
    end_all(end);
    lock.lock();
  }
  lock.unlock();
  end_all(RequestEnd::aborted);
}

void AsyncEngine::run() {
  const TurnGuard turn(engine_.turn_, "AsyncEngine");
  engine_.check_weights();
  RegimeMachine& machine = *engine_.machine_;
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
    std::vector<std::string> changed = engine_.clear_block();
    admit();
    if (place_of_.empty()) return;
    machine.start(changed, RunKind::serving);
    is_launched_ = true;
    for (const auto& work : places_)
      if (work && std::exchange(work->is_cancelled, false)) cancel(place_of_.at(work->id));
  }
  runtime::MailRecord record;
  while (!machine.finished()) {
    if (machine.take(&record)) {
      take(record);
      continue;
    }
    std::unique_lock lock(mutex_);
    post_late();
    if (place_of_.empty()) changed_.wait_for(lock, kLook, [this] { return is_ending_ || !place_of_.empty(); });
  }
  while (machine.take_now(&record)) take(record);
  {
    const std::lock_guard lock(mutex_);
    is_launched_ = false;
  }
  machine.wait();
  engine_.check_weights();
}

void AsyncEngine::take(const runtime::MailRecord& record) {
  Work* work = nullptr;
  RequestEvent event{.posted_ns = record.posted_ns};
  {
    const std::lock_guard lock(mutex_);
    work = places_[record.request].get();  // it stays until this thread has read its end
    event.admitted_ns = std::exchange(work->admitted_ns, 0);
    event.cached_tokens = std::exchange(work->cached_tokens, 0);
    if (static_cast<runtime::MailKind>(record.kind) == runtime::MailKind::token) {
      event.token = record.token;
      event.logprob = record.logprob;
      ++counted_.generated_tokens;
      if (record.reason == runtime::kAccepted) {
        ++counted_.accepted_tokens;
      } else {
        counted_.drafts += record.reason > 0;
        counted_.drafted_tokens += record.reason;
      }
      work->request.prompt.push_back(record.token);
      if (std::isnan(record.logprob) && !std::exchange(work->has_failed, true)) cancel(record.request);
      if (work->request.prompt.size() == work->prompt_tokens + 1) share_pages(*work);
    } else {
      event.end = work->has_failed ? RequestEnd::failed : end_of(record.reason);
    }
  }
  if (event.end == RequestEnd::none) {
    // The end of a request that a stop token ends is told together with it.
    if (is_stop_token(event.token) && !work->request.ignore_stop_tokens)
      work->last = event;
    else if (!work->has_failed)
      work->sink(work->id, event);
    return;
  }
  if (event.end == RequestEnd::stop) {
    event = work->last;
    event.end = RequestEnd::stop;
  }
  std::unique_ptr<Work> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::move(places_[record.request]);
    place_of_.erase(ended->id);
    if (event.end == RequestEnd::stop || event.end == RequestEnd::length) share_pages(*ended);
    pages_.release(ended->pages);
    post_late();
    admit();
  }
  ended->sink(ended->id, event);
}

bool AsyncEngine::is_stop_token(int token) const { return std::ranges::binary_search(engine_.stop_tokens(), token); }

void AsyncEngine::end_all(RequestEnd end) {
  std::vector<std::unique_ptr<Work>> ended;
  {
    const std::lock_guard lock(mutex_);
    is_launched_ = false;
    late_.clear();
    for (auto& place : places_) {
      if (!place) continue;
      pages_.release(place->pages);
      ended.push_back(std::move(place));
    }
    place_of_.clear();
    pages_.clear();  // from here on the memory is another run's
    while (is_ending_ && !waiting_.empty()) {
      ended.push_back(std::make_unique<Work>(std::move(waiting_.front())));
      waiting_.pop_front();
    }
  }
  for (const auto& work : ended) work->sink(work->id, {.end = end});
}

}  // namespace megalith::engine
