// How long to wait for a compiler, be it a process or a library in this one, and what a user hears meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace megalith::jit {

/// The largest kernels take a minute or two, on a machine that has little time for it ten.
constexpr std::chrono::minutes kCompileTimeout{20};

struct PatienceLimits {
  std::chrono::milliseconds timeout = kCompileTimeout;
  /// Most kernels take less; whoever waits longer wants to know for what.
  std::chrono::milliseconds notice = std::chrono::seconds(60);
  /// Where it is part of something larger: set when that is over, and this as well.
  const std::atomic<bool>* is_over = nullptr;
};

/// Looked at every few tens of milliseconds by whoever waits.
class Patience {
 public:
  Patience(std::string whom, PatienceLimits limits) : whom_(std::move(whom)), limits_(limits) {}

  /// Whether it is over. Says, once, that it takes long; throws if the user wants an end (base/interruption.h).
  bool is_over();
  double ms() const;

 private:
  std::string whom_;
  PatienceLimits limits_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool told_ = false;
};

/// Runs `work`, a call into a library that nobody can end, on a thread of its own, and waits for it; what it throws comes
/// out here. SystemError after the timeout: then, and where the user wanted an end, the thread goes on by itself, so
/// `work` must own what it works on. A process that ends before the thread does so at once, without taking anything down.
void call_patiently(const std::string& whom, std::function<void()> work, PatienceLimits limits = {});

}  // namespace megalith::jit
