// An engine::TokenService over Engine::generate(), one batch at a time: requests that come while a batch is at work wait for
// its end. It serves until there is an engine that takes requests as they come.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "megalith/engine/engine.h"
#include "megalith/engine/token_service.h"

namespace megalith::tools {

class BatchService : public engine::TokenService {
 public:
  /// `folder` and `options` are what the engine was made of.
  BatchService(engine::Engine& engine, std::string folder, engine::EngineOptions options);
  ~BatchService() override;

  engine::RequestId submit(engine::Request request, engine::RequestSink sink) override;
  void abort(engine::RequestId id) override;
  engine::ServiceLoad load() const override;

 private:
  struct Entry {
    engine::RequestId id = 0;
    engine::Request request;
    engine::RequestSink sink;
    int stop_token = -1;  // that was made, and is reported with the end
    bool is_over = false;
    uint64_t admitted_ns = 0;  // 0 once it was told
  };

  void run();
  std::vector<Entry> take_batch();
  void work_on(std::vector<Entry>& batch);
  void take(std::vector<Entry>& batch, const engine::TokenEvent& event);
  /// Tells aborted requests that they are; true once the whole batch is over.
  bool end_aborted(std::vector<Entry>& batch);

  engine::Engine& engine_;
  const std::string folder_;
  engine::EngineOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> waiting_;
  std::set<engine::RequestId> aborted_;
  engine::RequestId last_ = 0;
  engine::ServiceLoad load_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace megalith::tools
