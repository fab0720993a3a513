// One request and its answer, as routes see them: without sockets, so that they are tested without any. The server
// (http_server.h) is one kind of Exchange, tests have another.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith::serve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // percent escapes undone
  std::string query;    // behind the '?', as it came
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;  // address of the client
  std::chrono::steady_clock::time_point arrived = {};

  /// Of several with that name the first; "" if there is none. `name` is in lower case.
  std::string_view header(std::string_view name) const;
  /// The value of `name` in the query; nothing if it is not there.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

/// Everything here is called on the server's one thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;

  /// The whole answer.
  virtual void reply(HttpReply reply) = 0;
  /// The head of an answer that goes on: `head.body` is its first part. Then write() any number of times, and end(). Nothing
  /// here waits for the client: what it does not take at once is kept up to a limit, beyond which it is gone.
  virtual void begin(HttpReply head) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end() = 0;

  /// Called once if the client goes, or is given up, before its answer is complete. What is written from then on is dropped.
  std::function<void()> on_gone = {};
};

/// "Not Found"; "" for a status that we never send.
std::string_view http_phrase(int status);
/// With %41 as A, nothing if an escape is wrong or stands for a zero byte.
std::optional<std::string> percent_decode(std::string_view text);
std::string lower_case(std::string_view text);
/// Without spaces and tabs around it.
std::string_view trimmed(std::string_view text);

}  // namespace megalith::serve
