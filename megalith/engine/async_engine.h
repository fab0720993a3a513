// An engine that runs all the time: its kernel is launched with the first request and stays, takes requests as they come
// and waits for the next one when there is none (runtime/mailbox.h, commands). A request waits, in the order of arrival,
// until there is a place in the batch for it and pages for all that it may become: so one that has begun always ends. What
// others have worked through of its first tokens it takes from them (engine/prefix_cache.h).
//
//   engine::AsyncEngine service(engine);
//   const engine::RequestId id = service.submit({.prompt = tokens}, [](auto id, const auto& event) { ... });
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "megalith/engine/engine.h"
#include "megalith/engine/prefix_cache.h"
#include "megalith/engine/token_service.h"

namespace megalith::engine {

struct AsyncEngineOptions {
  bool prefix_cache = true;  // pages are kept for requests that begin with the same tokens
};

class AsyncEngine : public TokenService {
 public:
  /// `engine` must outlive the service. From the first request on it is the service's: its generate() would wait.
  explicit AsyncEngine(Engine& engine, const AsyncEngineOptions& options = {});
  /// Ends all requests, as abort() does, and the kernel.
  ~AsyncEngine() override;
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  RequestId submit(Request request, RequestSink sink) override;
  void abort(RequestId id) override;
  ServiceLoad load() const override;
  /// Gives up all pages that are kept for requests to come.
  void clear_prefix_cache();

 private:
  struct Work {
    RequestId id;
    Request request;  // its prompt grows by the tokens that are made
    RequestSink sink;
    size_t prompt_tokens = 0;
    std::vector<int32_t> pages = {};
    RequestEvent last = {};     // a stop token, which is told with the end
    uint64_t admitted_ns = 0;   // 0 once it was told
    int64_t cached_tokens = 0;  // likewise
    bool is_cancelled = false;  // the kernel knows, or will be told when there is room for the command
    bool has_failed = false;    // its logits are not finite
  };
  void serve();
  /// Launches the kernel with what waits and fits, and reads its mail until it ends.
  void run();
  void take(const runtime::MailRecord& record);
  /// Begins requests that wait, as long as the next one fits. With mutex_ held.
  void admit();
  void begin(int64_t place, Work work);
  /// Pages with the first tokens of a request, but never its last one: that is worked through, for what comes behind it.
  std::vector<int32_t> find_pages(const Work& work) const;
  /// Others may have the pages that the request has filled; of a sequence whose last token was made just now. With mutex_ held.
  void share_pages(const Work& work);
  /// Passes on commands for which there was no room. With mutex_ held.
  void post_late();
  void cancel(int64_t place);
  /// Ends all that have begun, and tells them why.
  void end_all(RequestEnd end);

  bool is_stop_token(int token) const;

  Engine& engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  std::vector<std::unique_ptr<Work>> places_;  // those that have begun
  std::unordered_map<RequestId, int64_t> place_of_;
  std::deque<runtime::Command> late_;
  PrefixCache pages_;
  RequestId next_id_ = 1;
  ServiceLoad counted_;
  bool is_launched_ = false, is_ending_ = false;
  std::thread thread_;
};

}  // namespace megalith::engine
