// HTTP/1.1 on one thread: requests in, answers or streams of events out. Nothing here knows what is asked for.
//
// What a client may do to others is bounded: the sizes of head and body, the time that each may take, the bytes of all
// bodies together, the connections, and what may wait for a client that does not read. A client that closes its side has
// gone: its answer is given up at once, be it whole or a stream, and whoever works for it is told (Exchange::on_gone).
//
//   HttpServer server({.port = 8000}, [](std::shared_ptr<Exchange> exchange) { exchange->reply({.body = "{}"}); });
//   server.start();
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "megalith/serve/http.h"

namespace megalith::serve {

struct HttpLimits {
  size_t header_bytes = 32 << 10;
  size_t body_bytes = 16 << 20;
  size_t all_body_bytes = 256 << 20;  // of all requests that are being read or answered
  size_t pending_bytes = 4 << 20;     // that a client has not taken yet; beyond this it is given up
  int connections = 1024;
  std::chrono::milliseconds header_time{10'000};  // from the first byte of a request to the end of its head
  std::chrono::milliseconds body_time{60'000};
  std::chrono::milliseconds idle_time{75'000};   // between two requests of a connection
  std::chrono::milliseconds write_time{60'000};  // without a byte taken
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name that has one
  int port = 0;                    // 0: any that is free
  HttpLimits limits = {};
  /// What is said of a request that never became one: malformed (400), too slow (408), too large (413, 431), ...
  std::function<HttpReply(int status, const std::string& message)> refusal;
  /// Called each time, on the server's thread.
  std::function<void()> on_tick = {};
  std::chrono::milliseconds tick{1000};
};

class HttpReactor;

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  /// Listens, but answers nobody yet. SystemError if the address is not this machine's, or the port is taken.
  HttpServer(HttpServerOptions options, Handler handler);
  /// Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  /// Where it listens: the address, and the port, which was found if it was given as 0.
  std::string address() const;
  int port() const;
  bool is_loopback() const;

  void start();
  /// Runs `work` on the server's thread, soon; from any thread.
  void post(std::function<void()> work);
  /// Takes no further connection and closes those at rest; the others after the answer that is being written, or after
  /// `patience`. Returns when all are closed. From any thread but the server's.
  void stop(std::chrono::milliseconds patience);
  /// Connections that are open; for metrics and tests. From any thread.
  int connections() const;

 private:
  std::unique_ptr<HttpReactor> reactor_;
};

}  // namespace megalith::serve
