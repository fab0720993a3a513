// An engine whose tokens a test makes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/engine/token_service.h"

namespace megalith::test {

using engine::RequestEnd;
using engine::RequestEvent;
using engine::RequestId;

/// Keeps what is submitted; emit() is the engine's thread. An abort is told at once, as the engine may do it.
class FakeService : public engine::TokenService {
 public:
  RequestId submit(engine::Request request, engine::RequestSink sink) override {
    if (!refuses.empty()) throw UserError(refuses);
    const std::lock_guard lock(mutex_);
    requests.push_back(request);
    sinks_[++last_] = std::move(sink);
    return last_;
  }
  void abort(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      aborted.insert(id);
    }
    if (aborts_at_once) emit(id, {.end = RequestEnd::aborted});
  }
  engine::ServiceLoad load() const override { return reported; }

  void emit(RequestId id, RequestEvent event) {
    engine::RequestSink sink;
    {
      const std::lock_guard lock(mutex_);
      const auto found = sinks_.find(id);
      if (found == sinks_.end()) return;
      sink = found->second;
      if (event.end != RequestEnd::none) sinks_.erase(found);
    }
    sink(id, event);
  }
  void emit(RequestId id, const std::vector<int>& tokens, RequestEnd end) {
    for (const int token : tokens) emit(id, {.token = token, .logprob = -0.5F});
    if (end != RequestEnd::none) emit(id, {.end = end});
  }
  size_t num_open() const { return sinks_.size(); }

  std::string refuses;  // what submit() complains of
  bool aborts_at_once = true;
  std::vector<engine::Request> requests;
  std::set<RequestId> aborted;
  engine::ServiceLoad reported = {};

 private:
  std::mutex mutex_;
  RequestId last_ = 0;
  std::map<RequestId, engine::RequestSink> sinks_;
};

}  // namespace megalith::test
