// From the engine's thread to the server's: the engine puts in what it made and never waits for more than another put; the
// server takes all there is at once. It is woken for the first one only, so a step of many sequences costs one wake-up.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "megalith/engine/token_service.h"

namespace megalith::serve {

template <class Receiver>
class EventQueue {
 public:
  struct Entry {
    Receiver receiver;
    size_t sequence;  // of it
    engine::RequestEvent event;
  };

  /// `wake` makes the server's thread call take(), soon.
  explicit EventQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(Entry entry) {
    bool is_first;
    {
      const std::lock_guard lock(mutex_);
      is_first = entries_.empty();
      entries_.push_back(std::move(entry));
    }
    if (is_first) wake_();
  }
  std::vector<Entry> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace megalith::serve
