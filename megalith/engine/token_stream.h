// A generation under way, read token by token by whoever wants them: requests in, events out, until each has ended or the
// reader leaves. The kernel runs by itself meanwhile, as far ahead as the mailbox has room and until another kernel is to
// go on (engine/regime_machine.h).
//
//   engine::TokenStream stream(engine, requests);
//   stream.start();
//   while (const auto event = stream.next()) use(*event);
//   const engine::Generation generation = stream.finish();
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "megalith/base/turn.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/grammar_masks.h"

namespace megalith::engine {

class TokenStream {
 public:
  /// UserError as of Engine::generate(). `engine` must outlive the stream.
  TokenStream(Engine& engine, std::vector<Request> requests);
  /// As end().
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  /// Takes the engine's turn (base/turn.h), for as long as the stream lives, and launches the kernel. `where`: the call, as
  /// messages name it.
  void start(std::string_view where = "generate", Turn::For use = Turn::For::call);
  /// Waits for the next event; none: all requests have ended, or the run was cancelled. From any thread, one at a time.
  /// Throws what interruption_check() throws meanwhile; the stream goes on when it is read again.
  std::optional<TokenEvent> next();
  /// Of a stream that was read to its end: what came of it. HangError if the kernel made no progress. The engine's logits
  /// are those of the last iteration until the stream ends.
  Generation finish();
  /// Cancels the run if it goes on, waits for it, and gives the turn back. Again: nothing.
  void end() noexcept;

 private:
  /// Nothing, if it is a record that belongs to the next one.
  std::optional<TokenEvent> note(const runtime::MailRecord& record);

  struct Walk {
    GrammarWalk walk;
    std::vector<int> sequence;
  };
  /// The mask for the next token of request r. UserError if its grammar cannot go on.
  void write_mask(size_t r);

  Engine& engine_;
  const std::vector<Request> requests_;
  std::vector<std::unique_ptr<Walk>> walks_;  // of requests with grammars
  Generation result_;
  std::vector<std::vector<TopToken>> top_;  // of each request's next token, as far as they have come
  std::chrono::steady_clock::time_point start_;
  bool has_turn_ = false, is_running_ = false;
};

}  // namespace megalith::engine
