// A client that sends whatever a test likes, byte by byte, and sees what comes back.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

namespace megalith::test {

class SocketClient {
 public:
  explicit SocketClient(int port, int receive_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~SocketClient() { close(); }
  SocketClient(const SocketClient&) = delete;

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t bytes = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (bytes <= 0) return;  // the server closed: what it said is what counts
      text.remove_prefix(static_cast<size_t>(bytes));
    }
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// As a process that dies does it, or a cable that is pulled out.
  void reset() {
    const linger now = {1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  /// What came until `end` was seen, the server closed, or nothing came for `patience`.
  std::string read_until(std::string_view end, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    while (got_.find(end) == std::string::npos && receive(patience)) {}
    const size_t at = got_.find(end);
    const std::string result = got_.substr(0, at == std::string::npos ? at : at + end.size());
    got_.erase(0, result.size());
    return result;
  }
  /// All until the server closes.
  std::string read_all(std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    while (receive(patience)) {}
    return std::exchange(got_, "");
  }
  /// One answer with a Content-Length.
  std::string read_answer() {
    std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    size_t left = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
    while (got_.size() < left && receive(std::chrono::seconds(10))) {}
    head += got_.substr(0, left);
    got_.erase(0, left);
    return head;
  }
  bool is_closed_by_server() const { return is_closed_; }

 private:
  bool receive(std::chrono::milliseconds patience) {
    pollfd wanted = {socket_, POLLIN, 0};
    if (::poll(&wanted, 1, static_cast<int>(patience.count())) <= 0) return false;
    char bytes[16384];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    if (count <= 0) return is_closed_ = true, false;
    got_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  int socket_;
  std::string got_;
  bool is_closed_ = false;
};

}  // namespace megalith::test
