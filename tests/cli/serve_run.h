// `megalith serve` as a process of a test, and requests to it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/command_run.h"
#include "serve/socket_client.h"

namespace megalith::test {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

inline bool is_listening(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_open = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return is_open;
}

inline std::string answer_of(int port, const std::string& request) {
  SocketClient client(port);
  client.send(request);
  return client.read_answer();
}

inline std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }

inline std::string completion(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-Id: mine\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// Runs the server until it is ready, calls `work` with its port, and ends it by SIGTERM.
inline CommandResult serve(const std::vector<std::string>& options, const std::function<void(int port)>& work) {
  const int port = free_port();
  std::vector<std::string> words = {"serve", kStoryteller, "--port", std::to_string(port), "-t", "1"};
  words.insert(words.end(), options.begin(), options.end());
  CommandInput input;
  input.signal = SIGTERM;
  input.kill_once = [&] {
    if (!is_listening(port) || !answer_of(port, get("/health")).starts_with("HTTP/1.1 200")) return false;
    work(port);
    return true;
  };
  return megalith_command(words, input);
}
/// The same, which asks it.
inline CommandResult serve(const std::vector<std::string>& options, const std::vector<std::string>& requests,
                           std::vector<std::string>& answers) {
  return serve(options, [&](int port) {
    for (const std::string& request : requests) answers.push_back(answer_of(port, request));
  });
}

}  // namespace megalith::test
