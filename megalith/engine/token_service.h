// Requests that come and go: whoever has a prompt submits it at any time, from any thread, and is told each token as it is
// made. What a server, or Python's streams, see of an engine that runs all the time.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>

#include "megalith/engine/batch_block.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

/// Names a request of a service; never used twice.
using RequestId = uint64_t;

enum class RequestEnd {
  none,     // goes on
  stop,     // a stop token was made: `token` is that one
  length,   // as many tokens as were asked for, or as a sequence may have
  aborted,  // by abort(), or because the service ended
  failed,   // its logits were not finite, or the kernel ended in an error
};

/// What has become of a request: a token, the end, or both at once.
struct RequestEvent {
  int token = -1;                  // -1: none; the request ended without a further one
  float logprob = 0;               // of `token`, by the model's own logits, if the request asked for it
  std::vector<TopToken> top = {};  // in the place of `token`, likewise
  uint64_t posted_ns = 0;          // when the kernel posted it (steady clock)
  RequestEnd end = RequestEnd::none;
  // With the first event, if the service knows: when the request got its slot, and how many tokens of its prompt it did not
  // have to work through, because the prefix cache had them.
  uint64_t admitted_ns = 0;
  int64_t cached_tokens = 0;
  std::exception_ptr error = {};  // with `failed`: what the kernel ended in; none: the logits were not finite
  // With the first token, if the request asked: of each token of its prompt but the first.
  std::vector<PromptLogprob> prompt_logprobs = {};
};

/// Called on the service's thread, one event behind the other; it must not wait for anything and must not throw.
using RequestSink = std::function<void(RequestId, const RequestEvent&)>;

struct ServiceLoad {
  int running = 0;                    // requests with a slot
  int waiting = 0;                    // requests that wait for one
  int64_t pages = 0, pages_used = 0;  // of the KV cache
  int64_t pages_kept = 0;             // not in use, for requests that begin with the same tokens
  uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // in tokens
  // Iterations of a request that had drafts, the drafts, and those that were right.
  uint64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::array<uint64_t, batch::kMaxDrafts> accepted_at = {};  // of the first draft of a step, of the second, ...
};

class TokenService {
 public:
  virtual ~TokenService() = default;
  /// UserError for a request that could never run: an empty or too long prompt, a token outside the vocabulary, sampling
  /// parameters out of range. Others wait for a slot and pages, in the order in which they came.
  virtual RequestId submit(Request request, RequestSink sink) = 0;
  /// Ends a request, which is told so unless it has ended; of one that is not known nothing happens.
  virtual void abort(RequestId id) = 0;
  virtual ServiceLoad load() const = 0;
};

}  // namespace megalith::engine
