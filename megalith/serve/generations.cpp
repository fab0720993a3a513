#include "megalith/serve/generations.h"

#include <fmt/format.h>

#include <atomic>
#include <ctime>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(uint64_t begin_ns, uint64_t end_ns) {
  return end_ns > begin_ns ? static_cast<double>(end_ns - begin_ns) * 1e-9 : 0;
}

uint64_t nanoseconds(Clock::time_point time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// A second is what clients wait at least, and long enough for some sequences to end.
constexpr int kRetrySeconds = 1;

}  // namespace

struct Generations::Call {
  Asked asked;
  std::optional<Answer> answer = {};
  struct Sequence {
    engine::RequestId id = 0;
    bool is_open = false;  // the engine has it
    uint64_t first_ns = 0, last_ns = 0;
  };
  std::vector<Sequence> sequences = {};
  bool is_stream = false, has_begun = false;
  bool is_over = false;               // answered, or for nobody
  std::atomic<bool> is_gone = false;  // is_over, for the workers
  Clock::time_point last_shown = {};
  uint64_t first_token_ns = 0;
};

Generations::Generations(GenerationsOptions options, Server server, Workers& workers, Workers& compilers,
                         Metrics& metrics)
    : options_(options), server_(std::move(server)), workers_(workers), compilers_(compilers), metrics_(metrics) {
  events_ = std::make_shared<EventQueue<CallPointer>>([this] { server_.post([this] { take_events(); }); });
}

Generations::~Generations() = default;

void Generations::ready(const ServedModel& model, engine::TokenService& service, int64_t num_slots) {
  model_ = &model;
  service_ = &service;
  num_slots_ = num_slots;
}

// ---- admission -------------------------------------------------------------------------------

void Generations::admit(int64_t sequences) {
  const auto refuse = [&](const char* reason, int status, const std::string& message) {
    ++metrics_.refused[reason];
    throw ApiError::of_status(status, message).retry_after(kRetrySeconds);
  };
  if (is_draining_) refuse("draining", 503, "the server is shutting down: ask another one");
  if (!model_) refuse("loading", 503, "the model is being loaded: try again");
  if (num_open_ + num_preparing_ + sequences > num_slots_ + options_.max_queue)
    refuse("queue_full", 429,
           fmt::format("{} sequences are at work or wait, and {} is the most (--max-batch and --max-queue): try again",
                       num_open_ + num_preparing_, num_slots_ + options_.max_queue));
}

void Generations::start(Api api, Asked asked) {
  admit(1);
  const auto call = std::make_shared<Call>(std::move(asked));
  call->last_shown = Clock::now();
  call->asked.exchange->on_gone = [this, weak = std::weak_ptr(call)] {
    if (const CallPointer gone = weak.lock()) abandon(gone);
  };
  calls_.insert(call);
  ++num_preparing_;
  const bool is_taken = workers_.post([this, call, api] { prepare(call, api); });
  if (is_taken) return;
  --num_preparing_;
  call->is_over = call->is_gone = true;
  calls_.erase(call);
  ++metrics_.refused["queue_full"];
  throw ApiError::of_status(429, "too many prompts wait to become tokens: try again").retry_after(kRetrySeconds);
}

// On a thread beside the server's. False if the client has gone, or `work` refused it, and all that follows is done.
bool Generations::attempt(const CallPointer& call, const std::function<void()>& work) {
  std::shared_ptr<ApiError> error;
  try {
    if (!call->is_gone) {
      work();
      return true;
    }
  } catch (const ApiError& refused) { error = std::make_shared<ApiError>(refused); } catch (const UserError& refused) {
    error = std::make_shared<ApiError>(ApiError::invalid(refused.what()));
  } catch (const std::exception& broken) {
    error = std::make_shared<ApiError>(ApiError::of_status(500, broken.what()));
  }
  server_.post([this, call, error] {
    --num_preparing_;
    if (error && !call->is_over) fail(call, *error);
    call_if_idle();
  });
  return false;
}

// A grammar that takes long is compiled elsewhere, so that other prompts become tokens meanwhile.
void Generations::prepare(const CallPointer& call, Api api) {
  const auto prepared = std::make_shared<PreparedRequest>();
  bool waits = false;
  const bool is_done = attempt(call, [&] {
    *prepared = prepare_tokens(*model_, read_generation_request(api, call->asked.exchange->request().body));
    waits = needs_compiler(*model_, *prepared);
    if (!waits) add_grammar(*model_, *prepared);
  });
  if (!is_done) return;
  if (!waits) return hand_over(call, prepared);
  const bool is_taken = compilers_.post([this, call, prepared] {
    if (attempt(call, [&] { add_grammar(*model_, *prepared); })) hand_over(call, prepared);
  });
  if (is_taken) return;
  attempt(call, [] {
    throw ApiError::of_status(429, "too many grammars wait to be compiled: try again").retry_after(kRetrySeconds);
  });
}

void Generations::hand_over(const CallPointer& call, const std::shared_ptr<PreparedRequest>& prepared) {
  server_.post([this, call, prepared] {
    --num_preparing_;
    if (!call->is_over) submit(call, std::move(*prepared));
    call_if_idle();
  });
}

void Generations::submit(const CallPointer& call, PreparedRequest prepared) {
  try {
    admit(static_cast<int64_t>(prepared.sequences.size()));
  } catch (const ApiError& refused) { return fail(call, refused); }
  call->is_stream = prepared.request.stream;
  std::vector<engine::Request> requests = prepared.sequences;
  call->answer.emplace(*model_, std::move(prepared), call->asked.id, std::time(nullptr));
  call->sequences.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    try {
      call->sequences[i].id = service_->submit(
          std::move(requests[i]), [events = events_, call, i](engine::RequestId, const engine::RequestEvent& event) {
            events->put({call, i, event});
          });
    } catch (const UserError& refused) {
      return fail(call, ApiError::invalid(refused.what()));
    } catch (const std::exception& broken) { return fail(call, ApiError::of_status(500, broken.what())); }
    call->sequences[i].is_open = true;
    ++num_open_;
  }
}

// ---- the engine's events ---------------------------------------------------------------------

namespace {

// A grammar that nobody can follow is the client's.
ApiError failure_of(const engine::RequestEvent& event) {
  try {
    if (event.error) std::rethrow_exception(event.error);
  } catch (const UserError& error) { return ApiError::invalid(error.what()); } catch (const std::exception&) {
  }
  return ApiError::of_status(500, "the model made values that are no numbers, or the kernel failed");
}

}  // namespace

void Generations::take_events() {
  for (auto& entry : events_->take()) take(entry.receiver, entry.sequence, entry.event);
  call_if_idle();
}

void Generations::take(const CallPointer& call, size_t index, const engine::RequestEvent& event) {
  Call::Sequence& sequence = call->sequences[index];
  if (event.end != engine::RequestEnd::none && std::exchange(sequence.is_open, false)) --num_open_;
  if (call->is_over) return;
  const AnswerStep step = call->answer->take(index, event);
  count(*call, index, event, step);
  if (step.has_failed && event.end == engine::RequestEnd::aborted)
    return fail(call, ApiError::of_status(503, "the engine ended before the answer was complete"));
  if (step.has_failed) return fail(call, failure_of(event));
  if (step.wants_abort && sequence.is_open) service_->abort(sequence.id);
  if (!step.chunks.empty()) show(call, step.chunks);
  if (!call->answer->is_complete()) return;
  over(call);
  if (!call->is_stream) return server_.reply(call->asked, {.body = call->answer->body()}, details(*call));
  show(call, call->answer->last_chunks());
  call->asked.exchange->end();
  server_.log(call->asked, 200, details(*call));
}

void Generations::count(Call& call, size_t index, const engine::RequestEvent& event, const AnswerStep& step) {
  Call::Sequence& sequence = call.sequences[index];
  const uint64_t arrived = nanoseconds(call.asked.exchange->request().arrived);
  const uint64_t now = event.posted_ns ? event.posted_ns : nanoseconds(Clock::now());
  const auto& prompt = call.answer->prepared().sequences[index].prompt;
  if (step.has_token) {
    ++metrics_.generated_tokens;
    if (!sequence.first_ns) {
      sequence.first_ns = now;
      if (!call.first_token_ns) call.first_token_ns = now;
      metrics_.first_token_seconds.observe(seconds_between(arrived, now));
      metrics_.prompt_tokens += static_cast<int64_t>(prompt.size());
      if (event.admitted_ns) {
        metrics_.queue_seconds.observe(seconds_between(arrived, event.admitted_ns));
        metrics_.prompt_seconds.observe(seconds_between(event.admitted_ns, now));
      }
    } else {
      metrics_.inter_token_seconds.observe(seconds_between(sequence.last_ns, now));
    }
    sequence.last_ns = now;
  }
  if (!step.has_ended) return;
  const int64_t tokens = call.answer->completion_tokens(index);
  const std::string& finish = call.answer->finish_reason(index);
  ++metrics_.finished[step.has_failed ? "error" : finish == "tool_calls" ? "stop" : finish];  // as vLLM counts
  metrics_.request_seconds.observe(seconds_between(arrived, now));
  metrics_.prompt_tokens_of_request.observe(static_cast<double>(prompt.size()));
  metrics_.tokens_of_request.observe(static_cast<double>(tokens));
  if (tokens > 0) metrics_.decode_seconds.observe(seconds_between(sequence.first_ns, sequence.last_ns));
  if (tokens > 1)
    metrics_.seconds_per_token.observe(seconds_between(sequence.first_ns, sequence.last_ns) /
                                       static_cast<double>(tokens - 1));
}

// ---- answers ---------------------------------------------------------------------------------

void Generations::show(const CallPointer& call, const std::string& chunks) {
  call->last_shown = Clock::now();
  if (std::exchange(call->has_begun, true)) return call->asked.exchange->write(chunks);
  HttpReply head{.body = chunks, .content_type = "text/event-stream"};
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // proxies keep it back otherwise
  call->asked.exchange->begin(call->asked.with_headers(std::move(head)));
}

void Generations::fail(const CallPointer& call, const ApiError& error) {
  abort_open(*call);
  over(call);
  if (!call->has_begun) return server_.reply(call->asked, error.reply(), details(*call));
  call->asked.exchange->write(call->answer->error_chunks(error.json()));
  call->asked.exchange->end();
  server_.log(call->asked, error.status(), details(*call));
}

// The client has gone.
void Generations::abandon(const CallPointer& call) {
  if (call->is_over) return;
  abort_open(*call);
  over(call);
  // Sequences that went on; of one that is still to become tokens nothing is known.
  for (size_t i = 0; i < call->sequences.size(); ++i)
    if (!call->answer->has_ended(i)) ++metrics_.finished["abort"];
  constexpr int kClientClosedRequest = 499;  // as nginx writes it; nobody is sent it
  server_.log(call->asked, kClientClosedRequest, details(*call));
}

void Generations::abort_open(const Call& call) {
  for (const Call::Sequence& sequence : call.sequences)
    if (sequence.is_open) service_->abort(sequence.id);
}

void Generations::over(const CallPointer& call) {
  call->is_over = call->is_gone = true;
  call->asked.exchange->on_gone = nullptr;
  calls_.erase(call);
}

LogDetails Generations::details(const Call& call) const {
  if (!call.answer) return {};
  const PreparedRequest& prepared = call.answer->prepared();
  LogDetails details{.model = prepared.model,
                     .prompt_tokens = prepared.prompt_tokens,
                     .completion_tokens = call.answer->completion_tokens()};
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const std::string reason = call.answer->finish_reason(i);
    details.finish += (i ? "," : "") + (reason.empty() ? "abort" : reason);
  }
  if (call.first_token_ns)
    details.first_token_ms =
        seconds_between(nanoseconds(call.asked.exchange->request().arrived), call.first_token_ns) * 1e3;
  return details;
}

// ---- the server's life -----------------------------------------------------------------------

void Generations::drain(std::function<void()> on_idle) {
  is_draining_ = true;
  on_idle_ = std::move(on_idle);
  call_if_idle();
}

void Generations::abort_all() {
  const std::set<CallPointer> all = calls_;
  for (const CallPointer& call : all)
    fail(call, ApiError::of_status(503, "the server is shutting down, and the answer took too long"));
}

void Generations::call_if_idle() {
  if (on_idle_ && calls_.empty() && num_preparing_ == 0 && num_open_ == 0) std::exchange(on_idle_, nullptr)();
}

void Generations::tick() {
  const Clock::time_point now = Clock::now();
  const std::set<CallPointer> all = calls_;
  for (const CallPointer& call : all)
    if (call->is_stream && now - call->last_shown >= options_.ping) show(call, ":\n\n");
}

std::string Generations::slots_json() const {
  std::string json = "[";
  int64_t slot = 0;
  const auto add = [&](const std::string& what) {
    json +=
        fmt::format(R"({}{{"id":{},"n_ctx":{},{}}})", slot ? "," : "", slot, model_ ? model_->max_seq_len : 0, what);
    ++slot;
  };
  for (const CallPointer& call : calls_)
    for (size_t i = 0; i < call->sequences.size() && slot < num_slots_; ++i)
      if (call->sequences[i].is_open)
        add(fmt::format(R"("is_processing":true,"id_task":{},"request_id":{},"n_prompt_tokens":{},"n_decoded":{})",
                        call->sequences[i].id, json_quote(call->asked.id),
                        call->answer->prepared().sequences[i].prompt.size(), call->answer->completion_tokens(i)));
  while (slot < num_slots_) add(R"("is_processing":false)");
  return json + "]";
}

}  // namespace megalith::serve
