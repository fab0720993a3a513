// Bytes to requests of HTTP/1.1, without a socket. The parser is Beast's; what it lets pass and two readers of one request
// could take for two requests is refused here, as is what no client of today sends.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megalith/serve/http.h"

namespace megalith::serve {

struct HttpComplaint {
  int status;
  std::string message;
};

/// Reads one request.
class HttpReader {
 public:
  HttpReader(size_t header_bytes, size_t body_bytes);
  ~HttpReader();
  HttpReader(HttpReader&&) noexcept;
  HttpReader& operator=(HttpReader&&) noexcept;

  /// Takes from the beginning of `bytes`, and says how many. What it leaves it wants to see again with more behind it, unless
  /// the head has just ended, the request is complete, or there is a complaint.
  size_t take(std::string_view bytes);
  const std::optional<HttpComplaint>& complaint() const;
  bool has_head() const;
  bool is_complete() const;

  /// Once the head is there: the bytes that the body may have, and whether the client waits to be told to send it.
  size_t body_bytes() const;
  bool waits_to_go_on() const;

  /// Once it is complete. Nothing unless its target is a path.
  std::optional<HttpRequest> request();
  bool keep_alive() const;
  /// Of HTTP/1.1 and not 1.0, whose answers have no chunks.
  bool takes_chunks() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megalith::serve
