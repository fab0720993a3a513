// Requests for text on their way through the engine: admitted or turned away, made into tokens beside the server's thread,
// submitted, and answered as their tokens come. All but the engine's events and the tokenisation happens on the server's
// thread, so nothing here is locked but the queue between the two (event_queue.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "megalith/engine/token_service.h"
#include "megalith/serve/answer.h"
#include "megalith/serve/api_error.h"
#include "megalith/serve/asked.h"
#include "megalith/serve/event_queue.h"
#include "megalith/serve/metrics.h"
#include "megalith/serve/served_model.h"
#include "megalith/serve/workers.h"

namespace megalith::serve {

struct GenerationsOptions {
  int64_t max_queue = 512;  // sequences that may wait for a slot
  // Proxies cut connections that are silent for a minute. A comment, which clients skip, tells them that it goes on.
  std::chrono::milliseconds ping{15'000};
};

class Generations {
 public:
  /// `post` runs work on the server's thread; `reply` sends a whole answer and logs it; `log` logs one that was sent.
  struct Server {
    std::function<void(std::function<void()>)> post;
    std::function<void(const Asked&, HttpReply, const std::optional<LogDetails>&)> reply;
    std::function<void(const Asked&, int status, const std::optional<LogDetails>&)> log;
  };
  /// `workers` make prompts into tokens, `compilers` grammars.
  Generations(GenerationsOptions options, Server server, Workers& workers, Workers& compilers, Metrics& metrics);
  ~Generations();

  /// From now on there is a model. `num_slots` sequences are worked on at a time. Both must outlive this.
  void ready(const ServedModel& model, engine::TokenService& service, int64_t num_slots);
  /// ApiError if it is turned away at once.
  void start(Api api, Asked asked);

  /// Takes nothing further. `on_idle` is called once nothing is at work.
  void drain(std::function<void()> on_idle);
  /// Ends all that is at work with an error.
  void abort_all();
  /// To be called about once a second.
  void tick();

  int64_t num_requests() const { return static_cast<int64_t>(calls_.size()); }
  int64_t num_slots() const { return num_slots_; }
  bool has_free_slot() const { return num_open_ + num_preparing_ < num_slots_; }
  /// What each slot works on, as a JSON list.
  std::string slots_json() const;

 private:
  struct Call;
  using CallPointer = std::shared_ptr<Call>;

  void admit(int64_t sequences);
  void prepare(const CallPointer& call, Api api);
  bool attempt(const CallPointer& call, const std::function<void()>& work);
  void hand_over(const CallPointer& call, const std::shared_ptr<PreparedRequest>& prepared);
  void submit(const CallPointer& call, PreparedRequest prepared);
  void take_events();
  void take(const CallPointer& call, size_t sequence, const engine::RequestEvent& event);
  void count(Call& call, size_t sequence, const engine::RequestEvent& event, const AnswerStep& step);
  void show(const CallPointer& call, const std::string& chunks);
  void fail(const CallPointer& call, const ApiError& error);
  void abandon(const CallPointer& call);
  void abort_open(const Call& call);
  void over(const CallPointer& call);
  void call_if_idle();
  LogDetails details(const Call& call) const;

  GenerationsOptions options_;
  Server server_;
  Workers& workers_;
  Workers& compilers_;
  Metrics& metrics_;
  const ServedModel* model_ = nullptr;
  engine::TokenService* service_ = nullptr;
  int64_t num_slots_ = 0;
  std::set<CallPointer> calls_;  // that are not answered yet
  int64_t num_preparing_ = 0;    // of them, those whose sequences are not known yet
  int64_t num_open_ = 0;         // sequences that the engine has, also of calls that are over
  bool is_draining_ = false;
  std::function<void()> on_idle_;
  std::shared_ptr<EventQueue<CallPointer>> events_;
};

}  // namespace megalith::serve
