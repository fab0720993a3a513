// megalith bench arrival: how soon the kernel begins with a request, and how soon it has forgotten one. One sequence makes tokens all the
// time, so each of them says when an iteration ended; requests of one token come at any time in between.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "megalith/engine/async_engine.h"
#include "megalith/runtime/cpu/sync.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr uint64_t kNanosecondsOfMicrosecond = 1000;

struct ArrivalOptions {
  ModelOptions model;
  int64_t requests = 200, input_len = 32;
};

/// When tokens of a sequence were made, and whether it has ended, which it must before this goes: the service tells it.
class Tokens {
 public:
  Tokens() = default;
  Tokens(const Tokens&) = delete;
  ~Tokens() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_ended_; });
  }
  engine::RequestSink sink() {
    return [this](engine::RequestId, const engine::RequestEvent& event) {
      const std::lock_guard lock(mutex_);
      if (event.token >= 0) made_ns_.push_back(event.posted_ns);
      has_ended_ = event.end != engine::RequestEnd::none;
      error_ = event.error;
      changed_.notify_all();
    };
  }
  /// False once it has ended without.
  bool wait(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_ended_ || made_ns_.size() >= count; });
    if (error_) std::rethrow_exception(error_);
    return made_ns_.size() >= count;
  }
  std::vector<uint64_t> made_ns() const {
    const std::lock_guard lock(mutex_);
    return made_ns_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> made_ns_;
  bool has_ended_ = false;
  std::exception_ptr error_;
};

/// A request: when submit() was called and had returned, and when its token was made.
struct Arrival {
  uint64_t asked_ns = 0, posted_ns = 0, made_ns = 0;
};
/// What it waited for, by the ends of iterations: until the one behind which it had a row, and, if an iteration had ended in between
/// without it, how long before that one submit() was called, or had returned.
struct Admission {
  double submit_us = 0, wait_us = 0, missed_us = 0, missed_posted_us = 0;
};
Admission admission(const std::vector<uint64_t>& ends_ns, const Arrival& arrival) {
  // Its token was made in the iteration whose end is nearest; times of one iteration differ by what posting takes.
  size_t own = 0;
  for (size_t i = 0; i < ends_ns.size(); ++i)
    if (std::llabs(static_cast<int64_t>(ends_ns[i] - arrival.made_ns)) <
        std::llabs(static_cast<int64_t>(ends_ns[own] - arrival.made_ns)))
      own = i;
  MEGALITH_CHECK(own >= 2, "a request had its token before the sequence beside it had two");
  const auto us = [](uint64_t from, uint64_t to) {
    return static_cast<double>(static_cast<int64_t>(to - from)) * 1e-3;
  };
  return {us(arrival.asked_ns, arrival.posted_ns), us(arrival.asked_ns, ends_ns[own - 1]),
          std::max(us(arrival.asked_ns, ends_ns[own - 2]), 0.0),
          std::max(us(arrival.posted_ns, ends_ns[own - 2]), 0.0)};
}

void sleep_until(uint64_t ns) {
  while (runtime::monotonic_ns() < ns)
    if (ns > runtime::monotonic_ns() + 200 * kNanosecondsOfMicrosecond)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// Evenly over a step, in an order in which neighbours are far apart.
double phase(int64_t i) { return std::fmod(static_cast<double>(i) * 0.6180339887, 1); }

class ArrivalBench {
 public:
  ArrivalBench(engine::Engine& engine, const ArrivalOptions& options)
      : options_(options), service_(engine, {.prefix_cache = false}) {
    const int64_t longest = engine.decoder_options().max_seq_len;
    for (int64_t i = 0; i < options.input_len; ++i)
      long_.prompt.push_back(static_cast<int>((i * 7919 + 13) % engine.config().vocab_size));
    long_.max_new_tokens = longest - options.input_len;
    long_.ignore_stop_tokens = true;
    MEGALITH_CHECK(long_.max_new_tokens >= 64, "--max-seq-len is {}, want at least 64 tokens more than --input-len",
                   longest);
    brief_ = {.prompt = {long_.prompt[0]}, .max_new_tokens = 1, .ignore_stop_tokens = true};
  }

  /// Requests that come beside one that makes tokens. `step_us` gets what its steps took while nobody came.
  std::vector<Admission> admissions(std::vector<double>* steps_us, const std::atomic<bool>& goes_on) {
    std::vector<Admission> found;
    while (std::ssize(found) < options_.requests && goes_on) {
      struct Asked {
        Arrival arrival;
        std::unique_ptr<Tokens> tokens = std::make_unique<Tokens>();
      };
      Tokens beside;
      const engine::RequestId id = service_.submit(long_, beside.sink());
      std::vector<Asked> asked;
      constexpr size_t kBetween = 8;
      for (size_t count = kBetween; goes_on && beside.wait(count + kBetween); count += kBetween) {
        const std::vector<uint64_t> ends = beside.made_ns();
        for (size_t i = ends.size() - 4; i < ends.size(); ++i)
          steps_us->push_back(static_cast<double>(ends[i] - ends[i - 1]) * 1e-3);
        if (std::ssize(found) + std::ssize(asked) >= options_.requests) break;
        const double step_ns = static_cast<double>(ends.back() - ends[ends.size() - 2]);
        const int64_t number = std::ssize(found) + std::ssize(asked);
        sleep_until(runtime::monotonic_ns() + static_cast<uint64_t>(phase(number) * step_ns));
        asked.push_back({{.asked_ns = runtime::monotonic_ns()}});
        service_.submit(brief_, asked.back().tokens->sink());
        asked.back().arrival.posted_ns = runtime::monotonic_ns();
        if (!asked.back().tokens->wait(1) || !beside.wait(count + kBetween + 2)) {
          asked.pop_back();
          break;
        }
      }
      service_.abort(id);
      const size_t before = found.size();
      const std::vector<uint64_t> ends = beside.made_ns();
      for (Asked& one : asked) {
        one.arrival.made_ns = one.tokens->made_ns()[0];
        if (one.arrival.made_ns < ends.back()) found.push_back(admission(ends, one.arrival));
      }
      settle();
      MEGALITH_CHECK(found.size() > before || !goes_on,
                     "no request had its token beside the other one: want --max-batch 2 or more, and pages for both "
                     "(--num-pages)");
    }
    return found;
  }

  /// From abort() until no page is in use any more, in microseconds.
  std::vector<double> cancellations(double step_us, const std::atomic<bool>& goes_on) {
    std::vector<double> found;
    while (std::ssize(found) < options_.requests && goes_on) {
      Tokens tokens;
      const engine::RequestId id = service_.submit(long_, tokens.sink());
      if (!tokens.wait(3 + found.size() % 5)) break;
      sleep_until(runtime::monotonic_ns() + static_cast<uint64_t>(phase(std::ssize(found)) * step_us * 1e3));
      const uint64_t begin = runtime::monotonic_ns();
      service_.abort(id);
      settle();
      found.push_back(static_cast<double>(runtime::monotonic_ns() - begin) * 1e-3);
    }
    return found;
  }

 private:
  void settle() const {
    for (;;) {
      const engine::ServiceLoad load = service_.load();
      if (load.running == 0 && load.pages_used == 0) return;
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  }

  const ArrivalOptions& options_;
  engine::Request long_, brief_;
  engine::AsyncEngine service_;
};

std::string row(const char* what, const std::vector<double>& us) {
  return fmt::format("{:32} p50 {:9.1f} us   p99 {:9.1f}   most {:9.1f}\n", what, percentile(us, 50),
                     percentile(us, 99), percentile(us, 100));
}

int run_bench_arrival(const ArrivalOptions& options) {
  ModelOptions model = options.model;
  if (model.num_workers == 0) model.num_workers = engine::default_service_workers(model.target);
  engine::Engine engine(model.folder(), model.engine(engine::default_service_batch(model.target)));
  std::atomic<bool> goes_on{true};
  const InterruptGuard guard([&] {
    goes_on = false;
    engine.cancel();
  });
  ArrivalBench bench(engine, options);
  std::vector<double> steps_us, submits_us, waits_us;
  const std::vector<Admission> admissions = bench.admissions(&steps_us, goes_on);
  if (guard.interrupted()) return kExitInterrupt;
  const double step_us = percentile(steps_us, 50);
  size_t missed = 0;
  double most_missed_us = 0, most_missed_posted_us = 0;
  for (const Admission& one : admissions) {
    submits_us.push_back(one.submit_us);
    waits_us.push_back(one.wait_us);
    missed += one.missed_us > 0;
    most_missed_us = std::max(most_missed_us, one.missed_us);
    most_missed_posted_us = std::max(most_missed_posted_us, one.missed_posted_us);
  }
  const std::vector<double> cancellations_us = bench.cancellations(step_us, goes_on);
  if (guard.interrupted()) return kExitInterrupt;
  print(
      row("a step", steps_us) + row("submit", submits_us) + row("submit to the iteration with it", waits_us) +
      fmt::format("  {} of {} came too late for the next iteration, at most {:.1f} us before it began, and {:.1f} with "
                  "submit() behind them\n",
                  missed, admissions.size(), most_missed_us, most_missed_posted_us) +
      row("abort to its pages being free", cancellations_us));
  return kExitOk;
}

Action declare_bench_arrival(Arguments& arguments) {
  auto options = std::make_shared<ArrivalOptions>();
  arguments.group("Test");
  arguments.integer("--requests", options->requests, "requests that come, and that are given up (200)", 1, 1 << 20);
  arguments.integer("--input-len", options->input_len, "tokens of the prompt of the sequence beside them (32)", 1,
                    1 << 20);
  options->model.declare(arguments, kDefaultContext, "as many as a server has");
  return [options] { return run_bench_arrival(*options); };
}

}  // namespace

Command bench_arrival_command() {
  return {"bench arrival", "how soon a running kernel begins with a request, and has forgotten one",
          "megalith bench arrival models/storyteller", declare_bench_arrival};
}

}  // namespace megalith::tools
