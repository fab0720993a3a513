// What has become of the requests of a service, for tests that wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "megalith/engine/token_service.h"

namespace megalith::engine {

/// Written by the service's thread.
class ServiceResults {
 public:
  struct Result {
    std::vector<int> tokens;
    std::vector<float> logprobs;
    std::vector<std::vector<TopToken>> top;
    std::vector<PromptLogprob> prompt_logprobs;
    RequestEnd end = RequestEnd::none;
    int events_behind_end = 0, times_admitted = 0;
    int64_t cached_tokens = 0;
    std::exception_ptr error = {};
  };

  RequestSink sink() {
    return [this](RequestId id, const RequestEvent& event) {
      const std::lock_guard lock(mutex_);
      Result& result = results_[id];
      result.events_behind_end += result.end != RequestEnd::none;
      result.times_admitted += event.admitted_ns > 0;
      result.cached_tokens += event.cached_tokens;
      if (event.token >= 0) {
        result.tokens.push_back(event.token);
        result.logprobs.push_back(event.logprob);
        result.top.push_back(event.top);
        if (!event.prompt_logprobs.empty()) result.prompt_logprobs = event.prompt_logprobs;
      }
      if (event.end != RequestEnd::none) result.end = event.end, result.error = event.error;
      changed_.notify_all();
    };
  }
  /// Once the request has ended; or, with `tokens`, has made so many. Of one that does not within a minute, what there is.
  Result wait(RequestId id, size_t tokens = ~size_t{0}) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1),
                      [&] { return results_[id].end != RequestEnd::none || results_[id].tokens.size() >= tokens; });
    return results_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Result> results_;
};

/// Three clients, each a thread, submit every third request; then(r, id, random) is called behind each. The ids.
inline std::vector<RequestId> submit_side_by_side(
    TokenService& service, const std::vector<Request>& requests, ServiceResults& results,
    const std::function<void(size_t, RequestId, std::mt19937_64&)>& then) {
  constexpr size_t kClients = 3;
  std::vector<RequestId> ids(requests.size());
  std::vector<std::thread> clients;
  for (size_t client = 0; client < kClients; ++client)
    clients.emplace_back([&, client] {
      std::mt19937_64 random(client);
      for (size_t r = client; r < requests.size(); r += kClients) {
        ids[r] = service.submit(requests[r], results.sink());
        then(r, ids[r], random);
      }
    });
  for (std::thread& client : clients) client.join();
  return ids;
}

/// Until nothing is running: the end of a request is told before its pages are counted, or the other way round.
inline ServiceLoad settled(const TokenService& service) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ServiceLoad load = service.load();
  while ((load.running > 0 || load.waiting > 0) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    load = service.load();
  }
  return load;
}

/// What becomes of requests that all come before the first of them ends.
inline std::vector<ServiceResults::Result> serve_together(TokenService& service, const std::vector<Request>& requests) {
  ServiceResults results;
  std::latch all_there{1};
  const RequestSink sink = [&all_there, record = results.sink()](RequestId id, const RequestEvent& event) {
    all_there.wait();
    record(id, event);
  };
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(service.submit(request, sink));
  all_there.count_down();
  for (const RequestId id : ids) results.wait(id);
  settled(service);  // nothing is told any more
  std::vector<ServiceResults::Result> found;
  for (const RequestId id : ids) found.push_back(results.wait(id));
  return found;
}

}  // namespace megalith::engine
