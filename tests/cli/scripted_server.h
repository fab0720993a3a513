// A server that answers as a test says, byte by byte and as late as it likes: what clients may meet. Each connection has a
// thread. /v1/models is answered by itself.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace megalith::test {

class ScriptedServer {
 public:
  /// The server's side of one request.
  class Turn {
   public:
    Turn(int socket, int given_number, std::string given_head, std::string given_body)
        : number(given_number), head(std::move(given_head)), body(std::move(given_body)), socket_(socket) {}
    const int number;  // of the requests that came, from 0
    const std::string head, body;

    void send(std::string_view bytes) {
      while (!bytes.empty()) {
        const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes.remove_prefix(static_cast<size_t>(sent));
      }
    }
    void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
    /// The head of a stream in chunks, and the chunks.
    void begin() {
      send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
    void event(const std::string& data) { send(chunk(data)); }
    /// A token's event; `count`: of the answer's tokens so far, as servers say it in each event if they are asked to.
    void token(int count = 0, const char* finish = "null") {
      event(R"({"choices":[{"index":0,"text":" x","finish_reason":)" + std::string(finish) + "}]" +
            (count > 0 ? R"(,"usage":{"prompt_tokens":9,"completion_tokens":)" + std::to_string(count) + "}}" : "}"));
    }
    /// In one piece: whoever saw the last event before the end would take another connection for its next request.
    void end() { send(chunk("[DONE]") + "0\r\n\r\n"); }
    void answer(const std::string& status, const std::string& headers, const std::string& text) {
      send("HTTP/1.1 " + status + "\r\n" + headers + "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" +
           text);
    }
    /// Takes no further request from this connection.
    void close() { is_closed = true; }
    bool is_closed = false;

   private:
    static std::string chunk(const std::string& data) {
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", data.size() + 8);
      return size + ("data: " + data) + "\n\n\r\n";
    }

    int socket_;
  };
  using Script = std::function<void(Turn& turn)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener_, 128) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("the scripted server cannot listen");
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept(); });
  }
  ~ScriptedServer() {
    is_over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;

  std::string port() const { return std::to_string(port_); }
  /// So often it answers that it still loads its model.
  void load_for(int answers) { loading_answers_ = answers; }
  int num_requests() const { return num_requests_; }
  int num_connections() const { return num_connections_; }
  /// Bodies of all requests, in the order in which they came.
  std::vector<std::string> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  void accept() {
    while (!is_over_) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) return;
      const int now = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
      ++num_connections_;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    std::string held;
    const auto receive = [&] {
      char bytes[16384];
      const ssize_t count = ::recv(socket, bytes, sizeof bytes, 0);
      if (count > 0) held.append(bytes, static_cast<size_t>(count));
      return count > 0;
    };
    while (true) {
      size_t end;
      while ((end = held.find("\r\n\r\n")) == std::string::npos)
        if (!receive()) return;
      const std::string head = held.substr(0, end + 4);
      const size_t at = head.find("Content-Length: ");
      const size_t bytes = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
      while (held.size() < head.size() + bytes)
        if (!receive()) return;
      const std::string body = held.substr(head.size(), bytes);
      held.erase(0, head.size() + bytes);
      if (head.starts_with("GET ")) {
        if (loading_answers_ > 0 && loading_answers_-- > 0) {
          Turn(socket, -1, head, body).answer("503 Service Unavailable", "", "{}");
          continue;
        }
        Turn(socket, -1, head, body).answer("200 OK", "", R"({"data":[{"id":"scripted","meta":{"n_vocab":500}}]})");
        continue;
      }
      int number;
      {
        const std::lock_guard lock(mutex_);
        number = num_requests_++;
        bodies_.push_back(body);
      }
      Turn turn(socket, number, head, body);
      script_(turn);
      if (turn.is_closed) {
        ::shutdown(socket, SHUT_RDWR);
        return;
      }
    }
  }

  Script script_;
  int listener_, port_ = 0;
  std::atomic<bool> is_over_{false};
  std::atomic<int> num_requests_{0}, num_connections_{0}, loading_answers_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace megalith::test
