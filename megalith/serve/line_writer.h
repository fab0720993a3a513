// Lines on their way to where they may not be taken: a pipe whose reader sleeps would hold up the server's thread, and with
// it every client. They wait here, up to a limit, and a thread of their own writes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace megalith::serve {

class LineWriter {
 public:
  /// `write` takes a line without its end; it is called on one thread.
  LineWriter(std::function<void(const std::string& line)> write, size_t most_waiting = 10'000);
  /// Writes what waits.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;

  /// From any thread; never waits. A line beyond the limit is dropped, and a later one says how many were.
  void put(std::string line);

 private:
  void run();

  const std::function<void(const std::string&)> write_;
  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> waiting_;
  size_t num_dropped_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace megalith::serve
