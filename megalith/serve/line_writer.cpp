#include "megalith/serve/line_writer.h"

#include <fmt/format.h>

#include <utility>

#include "megalith/base/threads.h"

namespace megalith::serve {

LineWriter::LineWriter(std::function<void(const std::string&)> write, size_t most_waiting)
    : write_(std::move(write)), most_waiting_(most_waiting), thread_(start_thread("the log", [this] { run(); })) {}

LineWriter::~LineWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void LineWriter::put(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) {
      ++num_dropped_;
      return;
    }
    if (num_dropped_ > 0)
      waiting_.push_back(fmt::format("{{\"dropped_log_lines\":{}}}", std::exchange(num_dropped_, 0)));
    waiting_.push_back(std::move(line));
  }
  wake_.notify_one();
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string line = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    write_(line);
    lock.lock();
  }
}

}  // namespace megalith::serve
