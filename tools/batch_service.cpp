#include "tools/batch_service.h"

#include <algorithm>
#include <chrono>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/threads.h"

namespace megalith::tools {

using engine::RequestEnd;
using engine::RequestEvent;
using engine::RequestId;

namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

BatchService::BatchService(engine::Engine& engine, std::string folder, engine::EngineOptions options)
    : engine_(engine), folder_(std::move(folder)), options_(std::move(options)) {
  options_.decoder = engine.decoder_options();
  load_.pages = engine.decoder_options().num_pages();
  thread_ = start_thread("the engine", [this] { run(); });
}

BatchService::~BatchService() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

RequestId BatchService::submit(engine::Request request, engine::RequestSink sink) {
  engine::check_requests(folder_, options_, {request});
  const std::lock_guard lock(mutex_);
  waiting_.push_back({++last_, std::move(request), std::move(sink)});
  ++load_.waiting;
  wake_.notify_all();
  return last_;
}

void BatchService::abort(RequestId id) {
  const std::lock_guard lock(mutex_);
  aborted_.insert(id);
  wake_.notify_all();
}

engine::ServiceLoad BatchService::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

// As many as the engine takes at once.
std::vector<BatchService::Entry> BatchService::take_batch() {
  const DecoderOptions& limits = engine_.decoder_options();
  std::vector<Entry> batch;
  int64_t pages = 0;
  while (!waiting_.empty() && static_cast<int64_t>(batch.size()) < limits.max_requests) {
    pages += pages_needed(limits, waiting_.front().request);
    if (pages > limits.num_pages() && !batch.empty()) break;
    load_.pages_used = pages;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  load_.waiting -= static_cast<int>(batch.size());
  load_.running = static_cast<int>(batch.size());
  return batch;
}

void BatchService::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::vector<Entry> batch = take_batch();
    lock.unlock();
    if (!end_aborted(batch)) work_on(batch);
    lock.lock();
    for (const Entry& entry : batch) aborted_.erase(entry.id);
    load_.running = 0;
    load_.pages_used = 0;
  }
}

void BatchService::work_on(std::vector<Entry>& batch) {
  std::vector<engine::Request> requests;
  for (Entry& entry : batch) {
    requests.push_back(entry.request);
    entry.admitted_ns = now_ns();
  }
  try {
    engine_.generate(requests, [&](const engine::TokenEvent& event) {
      take(batch, event);
      if (end_aborted(batch)) engine_.cancel();
    });
  } catch (const Error& error) { log_warn("[serve] {}", error.what()); }
  for (Entry& entry : batch)
    if (!std::exchange(entry.is_over, true)) entry.sink(entry.id, {.end = RequestEnd::failed});
}

void BatchService::take(std::vector<Entry>& batch, const engine::TokenEvent& event) {
  Entry& entry = batch[static_cast<size_t>(event.request)];
  if (entry.is_over) return;
  if (event.finished) {
    entry.is_over = true;
    const RequestEnd end = event.reason == batch::kStopToken ? RequestEnd::stop : RequestEnd::length;
    return entry.sink(entry.id, {.token = entry.stop_token,
                                 .posted_ns = now_ns(),
                                 .end = end,
                                 .admitted_ns = std::exchange(entry.admitted_ns, 0)});
  }
  const bool is_stop =
      !entry.request.ignore_stop_tokens && std::ranges::binary_search(engine_.stop_tokens(), event.token);
  if (is_stop)
    entry.stop_token = event.token;
  else
    entry.sink(entry.id, {.token = event.token,
                          .logprob = event.logprob,
                          .posted_ns = now_ns(),
                          .admitted_ns = std::exchange(entry.admitted_ns, 0)});
}

bool BatchService::end_aborted(std::vector<Entry>& batch) {
  std::vector<Entry> gone;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_)
      for (const Entry& entry : batch) aborted_.insert(entry.id);
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      if (!is_over_ && !aborted_.erase(entry->id)) {
        ++entry;
        continue;
      }
      gone.push_back(std::move(*entry));
      entry = waiting_.erase(entry);
      --load_.waiting;
    }
    for (Entry& entry : batch)
      if (!entry.is_over && aborted_.contains(entry.id)) {
        entry.is_over = true;
        gone.push_back(entry);
      }
  }
  for (const Entry& entry : gone) entry.sink(entry.id, {.posted_ns = now_ns(), .end = RequestEnd::aborted});
  return std::ranges::all_of(batch, &Entry::is_over);
}

}  // namespace megalith::tools
