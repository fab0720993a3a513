// An engine that runs all the time: its kernel is launched with the first request and stays, takes requests as they come
// and waits for the next one when there is none (runtime/mailbox.h, commands).
//
// A request waits until there is a place in the batch for it and pages for its prompt. It is given further pages as it makes
// tokens; where there are none, the last one gives up its own and waits again (engine/admission.h). Its client sees a pause:
// it goes on behind the tokens that it has made, in any place, as if nothing had been. What others have worked through of its
// first tokens it takes from them (engine/prefix_cache.h).
//
//   engine::AsyncEngine service(engine);
//   const engine::RequestId id = service.submit({.prompt = tokens}, [](auto id, const auto& event) { ... });
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "megalith/engine/admission.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/grammar_masks.h"
#include "megalith/engine/prefix_cache.h"
#include "megalith/engine/token_service.h"

namespace megalith::engine {

/// What an engine that runs all the time is made with where nobody says. Sequences at a time: on a CPU each further one takes its
/// share of the arithmetic, on a GPU 64 take little longer than one.
int64_t default_service_batch(const std::string& target);
/// Workers: default_num_workers(), but on a CPU one fewer unless MEGALITH_THREADS says, since the threads beside the service need
/// a core. Workers on all of them would take turns with those threads in the middle of a step.
int default_service_workers(const std::string& target);

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
    Rank rank = {};
    int32_t prompt_tokens = 0;
    int64_t limit = 0;  // length at which it ends
    std::vector<int32_t> pages = {};
    std::array<int32_t, batch::kRequestFields> line =
        {};                                           // with which the kernel has begun it; kLimit as it was told since
    RequestEvent last = {};                           // a stop token, which is told with the end
    std::vector<TopToken> top = {};                   // in the place of the next token, as far as they have come
    std::vector<PromptLogprob> prompt_logprobs = {};  // likewise, until they are told with its first token
    std::shared_ptr<GrammarWalk> walk = {};           // of one with a grammar; the service's thread alone looks inside
    std::string grammar_failure = {};
    uint64_t admitted_ns = 0;   // 0 once it was told
    int64_t cached_tokens = 0;  // likewise
    bool was_admitted = false;
    size_t accepted = 0;        // drafts, one behind the other, since the last token that was none
    bool makes_tokens = false;  // it has since it has begun: all tokens but the last have keys
    bool is_dry = false;        // the kernel has ended it, for want of pages
    bool is_ending = false;   // the kernel knows, or will be told when there is room for the command; for one of these:
    bool is_aborted = false;  // by abort()
    bool is_preempted = false;  // to wait again
    bool has_failed = false;    // its logits are not finite, or its grammar cannot go on
  };
  using WorkPointer = std::unique_ptr<Work>;

  void serve();
  /// Launches the kernel with what waits and fits, and reads its mail until it ends.
  void run();
  /// Between two runs: kernels that were compiled meanwhile.
  void take_in_late_regimes();
  /// Has all that have begun wait again, and when they do, ends the run: for kernels that are to be taken in.
  void make_room();
  void take_top(const runtime::MailRecord& record);
  void take_prompt(const runtime::MailRecord& record);
  void take_token(const runtime::MailRecord& record);
  void take_end(const runtime::MailRecord& record);
  /// Works out a mask that the kernel waits for, or will. False: there is none.
  bool write_mask();
  /// Ends all that have begun, and tells them why. If none has, an `error` is that of all that wait: trying again is no use.
  void end_all(RequestEnd end, const std::exception_ptr& error = {});

  // With mutex_ held.
  /// Begins requests, gives them pages and takes others', as admission.h says.
  void plan();
  /// `known`: pages for the first tokens of the request that comes next.
  AdmissionState admission_state(std::vector<int32_t>& known) const;
  void begin_next(std::vector<int32_t> known, int64_t num_pages);
  void grow(int64_t place, int64_t num_pages);
  void preempt(int64_t place);
  void wait_again(int64_t place);
  void wait(WorkPointer work);
  /// Empties the place.
  WorkPointer remove(int64_t place);
  /// Pages with the first tokens of a request, but never its last one: that is worked through, for what comes behind it.
  std::vector<int32_t> find_pages(const Work& work) const;
  /// Others may have the pages that the request has filled, unless something was wrong with it.
  void share_pages(const Work& work);
  void cancel(int64_t place);
  /// The sequence in `place` needs a mask for its next token.
  void owe_mask(int64_t place);
  void count_masks();
  /// A command for post_late().
  void tell(runtime::CommandKind kind, int64_t place, const std::array<int32_t, batch::kRequestFields>& fields);
  /// Passes on commands, as far as there is room.
  void post_late();
  /// Brings elements of a table's line of `place` to the kernel.
  void send(const char* table, int64_t place, int64_t line, int64_t begin, int64_t end);
  int64_t free_place() const;  // -1: there is none
  Work& work_in(int64_t place) { return *places_[static_cast<size_t>(place)]; }

  Engine& engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WorkPointer> waiting_;  // by rank
  std::vector<WorkPointer> places_;  // those that have begun
  std::unordered_map<RequestId, int64_t> place_of_;
  std::deque<runtime::Command> late_;
  struct OwedMask {
    int64_t place;
    RequestId id;
  };
  std::deque<OwedMask> owed_;
  std::atomic<bool> owes_{false};  // whether there are some: without mutex_
  bool had_masks_ = false;         // the kernel's mailbox says so
  std::vector<uint32_t> mask_;     // the service's thread's
  PrefixCache pages_;
  RequestId next_id_ = 1;
  ServiceLoad counted_;
  bool is_launched_ = false, is_ending_ = false;
  bool makes_room_ = false;  // nothing begins until other kernels have been taken in
  std::thread thread_;
};

}  // namespace megalith::engine
