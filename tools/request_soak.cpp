#include "tools/request_soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "megalith/jit/stage.h"
#include "megalith/runtime/resident_memory.h"

namespace megalith::tools {

namespace {

using Clock = std::chrono::steady_clock;

/// How long nothing may end before it is said that something hangs.
constexpr auto kPatience = std::chrono::minutes(1);
constexpr int64_t kPrefixes = 8, kMostTokens = 60;
/// As many requests under way as a phase has, times how many places there are; a phase lasts so many requests.
constexpr double kLoads[] = {0, 0, 0.1, 0.5, 1, 1, 2};
constexpr int64_t kRequestsAPhase = 100;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// From `from` to `to`, both included.
  int64_t in(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(engine_() % static_cast<uint64_t>(std::max<int64_t>(to - from + 1, 1)));
  }
  bool one_in(int64_t count) { return in(1, count) == 1; }

 private:
  std::mt19937_64 engine_;
};

std::vector<int> random_tokens(Random& random, int64_t count, int64_t vocab_size) {
  std::vector<int> tokens(static_cast<size_t>(count));
  for (int& token : tokens) token = static_cast<int>(random.in(0, vocab_size - 1));
  return tokens;
}

std::vector<engine::Request> random_requests(Random& random, const engine::Engine& engine, int64_t count) {
  const int64_t vocab_size = engine.config().vocab_size, longest = engine.decoder_options().max_seq_len;
  const int64_t longest_prefix = std::clamp<int64_t>(longest / 4, 1, 200);
  std::vector<std::vector<int>> prefixes;
  for (int64_t i = 0; i < kPrefixes; ++i)
    prefixes.push_back(random_tokens(random, random.in(1, longest_prefix), vocab_size));
  std::vector<engine::Request> requests(static_cast<size_t>(count));
  for (engine::Request& request : requests) {
    if (random.one_in(2)) request.prompt = prefixes[static_cast<size_t>(random.in(0, kPrefixes - 1))];
    const int64_t rest = random.one_in(8) ? longest / 2 : std::min<int64_t>(longest / 4, 60);
    const int64_t times = random.one_in(4) ? 3 : 1;  // what repeats itself is what drafts are made of
    const std::vector<int> tokens = random_tokens(random, random.in(1, std::max<int64_t>(rest / times, 1)), vocab_size);
    for (int64_t i = 0; i < times; ++i) request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    const int64_t room = longest - static_cast<int64_t>(request.prompt.size());
    // A few are given pages again and again, and take them from others where there are none.
    const int64_t most_tokens = random.one_in(8) ? longest / 2 : kMostTokens;
    request.max_new_tokens = random.in(1, std::clamp<int64_t>(room - 1, 1, most_tokens));
    request.ignore_stop_tokens = random.one_in(2);
    request.logprobs = true;
    request.top_logprobs = 2;
    if (random.one_in(2))
      request.sampling = {.temperature = 0.9F, .top_p = 0.95F, .seed = static_cast<uint64_t>(random.in(0, 1 << 20))};
    if (random.one_in(8)) request.sampling.presence_penalty = 0.5F;
    if (random.one_in(8)) request.logit_bias[static_cast<int>(random.in(0, vocab_size - 1))] = 2;
  }
  return requests;
}

bool takes_the_likeliest(const engine::Request& request) {
  return request.sampling.temperature == 0 && request.sampling.presence_penalty == 0 && request.logit_bias.empty();
}

int descriptors() {
  int count = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error))
    ++count;
  return count;
}

/// What each kind of request made alone.
struct Alone {
  std::vector<int> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<engine::TopToken>> top;
};

/// Those under way, and what has become of the others. Its sink is called by the service's thread.
class Soak {
 public:
  Soak(const std::vector<engine::Request>& kinds, std::vector<Alone> alone) : kinds_(kinds), alone_(std::move(alone)) {}

  /// `hangs_up`: tokens after which it is given up; -1: never.
  void submit(engine::AsyncEngine& service, size_t kind, int64_t hangs_up) {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    auto one = std::make_shared<One>(One{.kind = kind, .hangs_up = hangs_up});
    const engine::RequestId id =
        service.submit(kinds_[kind], [this, &service, one](engine::RequestId named, const engine::RequestEvent& event) {
          take(service, *one, named, event);
        });
    if (hangs_up == 0) service.abort(id);
  }
  /// Until no more than `most` are under way; those that have ended.
  int64_t wait(int64_t most) {
    std::unique_lock lock(mutex_);
    while (under_way_ > most) {
      const int64_t ended = result_.ended + result_.aborted;
      const bool goes_on = changed_.wait_for(
          lock, kPatience, [&] { return under_way_ <= most || result_.ended + result_.aborted > ended; });
      if (!goes_on)
        throw SystemError(fmt::format("[soak] none of {} requests under way has ended in a minute", under_way_));
    }
    if (!failure_.empty()) throw SystemError(failure_);
    return result_.ended + result_.aborted;
  }
  RequestSoakResult& result() { return result_; }

 private:
  struct One {
    size_t kind;
    int64_t hangs_up;
    int64_t step = 0;
    Alone made = {};
  };

  void take(engine::AsyncEngine& service, One& one, engine::RequestId id, const engine::RequestEvent& event) {
    if (event.token >= 0) {
      one.made.tokens.push_back(event.token);
      one.made.logprobs.push_back(event.logprob);
    }
    if (event.end == engine::RequestEnd::none && static_cast<int64_t>(one.made.tokens.size()) == one.hangs_up)
      service.abort(id);
    const std::lock_guard lock(mutex_);
    if (event.token >= 0) {
      ++result_.tokens;
      // Who has a token of this step already has one of the next.
      if (one.step == result_.steps) ++result_.steps;
      one.step = result_.steps;
    }
    if (event.end == engine::RequestEnd::none) return;
    --under_way_;
    if (event.end == engine::RequestEnd::failed)
      failure_ = fmt::format("[soak] request {} failed", id);
    else
      compare(one, event.end == engine::RequestEnd::aborted);
    changed_.notify_all();
  }
  void compare(const One& one, bool aborted) {
    ++(aborted ? result_.aborted : result_.ended);
    const Alone& wanted = alone_[one.kind];
    const auto [found, expected] = std::ranges::mismatch(one.made.tokens, wanted.tokens);
    const bool is_same = found == one.made.tokens.end() && (aborted || expected == wanted.tokens.end());
    const auto count = found - one.made.tokens.begin();
    const bool is_as_likely =
        std::equal(one.made.logprobs.begin(), one.made.logprobs.begin() + count, wanted.logprobs.begin());
    if (is_same && is_as_likely) return;
    ++(is_same ? result_.other_logprobs : result_.other_tokens);
    if (!is_same && takes_the_likeliest(kinds_[one.kind]) && expected != wanted.tokens.end()) {
      const std::vector<engine::TopToken>& top = wanted.top[static_cast<size_t>(count)];
      if (top.size() == 2)
        result_.largest_gap = std::max(result_.largest_gap, static_cast<double>(top[0].logprob) - top[1].logprob);
    }
    if (result_.first_difference.empty())
      result_.first_difference =
          fmt::format("request of {} tokens (kind {}), {}: {} of {} tokens are those that it makes alone, {}",
                      kinds_[one.kind].prompt.size(), one.kind, aborted ? "given up" : "ended", count,
                      wanted.tokens.size(), is_as_likely ? "as likely" : "with other log-probabilities");
  }

  const std::vector<engine::Request>& kinds_;
  const std::vector<Alone> alone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t under_way_ = 0;
  std::string failure_;
  RequestSoakResult result_;
};

/// Without a request: the end of one is told before its pages are counted.
engine::ServiceLoad settled(const engine::AsyncEngine& service) {
  const auto end = Clock::now() + kPatience;
  engine::ServiceLoad load = service.load();
  while ((load.running > 0 || load.waiting > 0 || load.pages_used > 0) && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    load = service.load();
  }
  return load;
}

}  // namespace

RequestSoakResult soak_requests(engine::Engine& engine, engine::Engine& alone, const RequestSoakOptions& options,
                                const std::function<bool(int64_t)>& on_ended) {
  Random random(options.seed);
  const int64_t num_kinds = std::clamp<int64_t>(options.requests / 4, 1, options.kinds);
  const std::vector<engine::Request> kinds = random_requests(random, engine, num_kinds);
  std::vector<Alone> wanted;
  for (const engine::Request& request : kinds) {
    const engine::Generation made = alone.generate({request});
    wanted.push_back({made.tokens[0], made.logprobs[0], made.top[0]});
    if (!on_ended(0)) return {.interrupted = true};
  }

  Soak soak(kinds, std::move(wanted));
  engine::AsyncEngine service(engine);
  const engine::ServiceLoad before = service.load();
  const auto begin = Clock::now();
  int64_t most = 1, resident_before = 0;
  int descriptors_before = 0;
  bool goes_on = true;
  for (int64_t i = 0; i < options.requests && goes_on; ++i) {
    if (i % kRequestsAPhase == 0) {
      const double load = kLoads[random.in(0, std::ssize(kLoads) - 1)];
      most =
          std::max<int64_t>(1, static_cast<int64_t>(load * static_cast<double>(engine.decoder_options().max_requests)));
    }
    const auto kind = static_cast<size_t>(random.in(0, num_kinds - 1));
    soak.submit(service, kind, random.one_in(3) ? random.in(0, kinds[kind].max_new_tokens - 1) : -1);
    goes_on = on_ended(soak.wait(most - 1));
    if (i == options.requests / 10) {
      resident_before = runtime::resident_memory().now;
      descriptors_before = descriptors();
    }
  }
  on_ended(soak.wait(0));

  RequestSoakResult result = soak.result();
  result.interrupted = !goes_on;
  result.seconds = jit::milliseconds_since(begin) / 1000;
  result.before = before;
  result.after = settled(service);
  result.resident_before = resident_before;
  result.descriptors_before = descriptors_before;
  result.resident_after = runtime::resident_memory().now;
  result.descriptors_after = descriptors();
  return result;
}

}  // namespace megalith::tools
