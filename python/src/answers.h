// Requests of Python on their way through an engine that runs all the time. The engine's thread must not wait, and readers may
// be slow or never come: a thread between the two makes text of tokens, ends a request at its stop string, and wakes those who
// wait. Nothing in it touches Python's lock but Answer::wait(), which looks at signals.
//
//   Answers answers(engine, {.max_queue = 512});
//   const std::shared_ptr<Answer> answer = answers.submit(request, &tokenizer, {});
//   while (const auto piece = answer->wait(Answer::For::piece) ? answer->take() : std::nullopt) use(*piece);
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "megalith/engine/async_engine.h"
#include "megalith/engine/text_stream.h"

namespace megalith::python {

/// Wakes an event loop, by a descriptor that can be read once somebody has called. One is enough for all answers of a loop.
class Wakeup {
 public:
  /// SystemError if the system has no descriptor left.
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  int descriptor() const { return descriptor_; }
  /// From any thread; waits for nothing.
  void call(uint64_t answer);
  /// The answers that called since.
  std::vector<uint64_t> take();

 private:
  const int descriptor_;
  std::mutex mutex_;
  std::vector<uint64_t> calls_;
};

/// What is being made of one request. Each piece is for one reader; everything else for all, from any thread.
class Answer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class End { none, stop, length, aborted, failed };
  enum class For { piece, end };  // a piece, or the end if no further one comes; the end alone
  struct Piece {
    std::string text;              // whole characters; may be empty
    int token;                     // that completed it; again the last one with what was held back until the end
    std::optional<float> logprob;  // of a token that is told for the first time
  };

  /// Without a tokenizer there is no text.
  Answer(const engine::Request& request, const Tokenizer* tokenizer, engine::TextOptions text);

  /// Names it in a Wakeup; never used twice in a process.
  uint64_t id() const { return id_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }

  /// False: the deadline has come. Throws what interruption_check() throws; the answer goes on.
  bool wait(For what, std::optional<Clock::time_point> deadline = std::nullopt);
  /// Calls `wakeup` once, when wait() would end. False: it would end now.
  bool wake(For what, const std::shared_ptr<Wakeup>& wakeup);
  /// The next piece; nothing: none is there now.
  std::optional<Piece> take();

  End end() const;
  /// Throws why it could not be completed, if that is so: what the kernel ended in, or that the engine was closed.
  void check() const;
  std::string text() const;
  std::vector<int> tokens() const;
  std::vector<float> logprobs() const;                              // of a request that asked for them
  std::vector<std::vector<engine::TopToken>> top_logprobs() const;  // likewise
  std::vector<engine::PromptLogprob> prompt_logprobs() const;       // likewise, with the first token
  int64_t num_tokens() const;
  int64_t cached_tokens() const;

 private:
  friend class Answers;

  /// False: it is over, and the request need not go on.
  bool add(const engine::RequestEvent& event);
  /// False: it was over.
  bool abort();

  // With mutex_ held.
  void add_piece(std::string text, std::optional<float> logprob);
  void finish(End end, std::exception_ptr error = {});
  void wake_all(std::vector<std::shared_ptr<Wakeup>>& wakeups);
  bool is_there(For what) const { return end_ != End::none || (what == For::piece && !pieces_.empty()); }

  const uint64_t id_;
  const int64_t prompt_tokens_;
  const bool has_logprobs_, has_top_;
  engine::RequestId request_ = 0;  // written before anybody else has the answer
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Wakeup>> piece_wakeups_, end_wakeups_;
  std::optional<engine::TextStream> stream_;  // until the end
  std::deque<Piece> pieces_;                  // that nobody has taken
  std::string text_;
  std::vector<int> tokens_;
  std::vector<float> logprobs_;
  std::vector<std::vector<engine::TopToken>> top_;
  std::vector<engine::PromptLogprob> prompt_logprobs_;
  int64_t cached_tokens_ = 0;
  End end_ = End::none;
  std::exception_ptr error_;
};

struct AnswersOptions {
  int64_t max_queue = 512;  // requests that may wait for a place
  bool prefix_cache = true;
};

/// The answers of one engine. Any thread may call; in a process that was forked since, each call is a UserError, and the object
/// must be left as it is: its threads are in the parent.
class Answers {
 public:
  /// `engine` must outlive close().
  Answers(engine::Engine& engine, const AnswersOptions& options);
  ~Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  /// UserError as of AsyncEngine::submit(). Null: as many wait as may. `tokenizer` must outlive close().
  std::shared_ptr<Answer> submit(engine::Request request, const Tokenizer* tokenizer, engine::TextOptions text);
  /// Ends the answer now, and its request soon. Of one that has ended nothing happens.
  void abort(const std::shared_ptr<Answer>& answer);
  engine::ServiceLoad load() const;
  void clear_prefix_cache();
  /// Ends all requests, whose answers then throw, and the kernel. Again: nothing.
  void close();

  bool is_forked() const;
  /// UserError in a process that was forked since.
  void check_process(const char* where) const;

 private:
  struct Entry {
    std::shared_ptr<Answer> answer;
    engine::RequestId request;
    std::optional<engine::RequestEvent> event;  // nothing: it is to be aborted
  };

  void put(Entry entry);
  void serve();
  void take(const Entry& entry);
  /// With open_ held: UserError if it is closed.
  engine::AsyncEngine& service(const char* where) const;

  const pid_t process_;
  const int64_t max_open_;
  std::atomic<int64_t> num_open_{0};  // requests that the engine has
  std::atomic<bool> is_closed_{false};
  mutable std::shared_mutex open_;  // shared: calls of the service; alone: its end
  std::mutex closing_;
  std::unique_ptr<engine::AsyncEngine> service_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace megalith::python
