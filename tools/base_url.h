// Where a server is, out of what a user writes: http://HOST:PORT/PREFIX.
#pragma once

#include <string>

namespace megalith::tools {

struct BaseUrl {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string prefix = {};  // of every path: "" or "/some/where"

  /// UserError unless it is plain http with a host and nothing behind the path.
  static BaseUrl parse(const std::string& text);
  /// As it stands in Host, and in a URL: an IPv6 address has brackets.
  std::string authority() const;
  /// The path on the server: a prefix that ends in /v1 and an `endpoint` that begins with it have it once.
  std::string path(const std::string& endpoint) const;
};

}  // namespace megalith::tools
