// Sends requests to a server and notes when their tokens come: the client of `megalith bench serve`. One thread, on which
// everything happens: what one answer costs is a delay that others see. So the client measures itself, too: how late it is
// woken, how late it sends, and how much of a core it takes.
//
// TTFT begins when a request is sent, or where no connection is free, when one is made for it. Connections are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/base_url.h"
#include "tools/load_answer.h"

namespace megalith::tools {

struct LoadRequest {
  std::string body;
  double due_ms = 0;  // since the beginning of the run
  int64_t prompt_tokens = 0, asked_tokens = 0;
};

struct LoadClientOptions {
  BaseUrl url;
  std::string endpoint, api_key;  // the second one may be empty
  double connect_timeout_ms = 5'000, timeout_ms = 600'000;
};

struct LoadRun {
  std::vector<LoadRecord> records;   // of the requests that were sent, in their order
  int64_t peak = 0;                  // most requests at a time
  std::vector<double> wake_late_ms;  // of a timer of every few milliseconds
  double core_share = 0;             // CPU time of the client's thread by the time that passed
};

class LoadReactor;

class LoadClient {
 public:
  /// SystemError if the name has no address.
  explicit LoadClient(LoadClientOptions options);
  ~LoadClient();
  LoadClient(const LoadClient&) = delete;

  /// What is at a path of the server. SystemError if it cannot be reached; any status is an answer.
  struct Reply {
    int status = 200;
    std::string body;
  };
  Reply get(const std::string& path);

  /// Sends each request as soon as it is due and fewer than `concurrency` are at work; `on_end` is called behind each.
  LoadRun run(const std::vector<LoadRequest>& requests, int64_t concurrency, const std::function<void()>& on_end);
  /// Ends the run that goes on; requests at work have failed ("interrupted"). From any thread.
  void cancel();

 private:
  std::unique_ptr<LoadReactor> reactor_;
};

}  // namespace megalith::tools
