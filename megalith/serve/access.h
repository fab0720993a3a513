// Whom a server answers: keys, the names by which it may be called, and which web pages may read its answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/serve/api_error.h"
#include "megalith/serve/http.h"

namespace megalith::serve {

struct AccessOptions {
  std::vector<std::string> keys;  // one of them is asked for; empty: none
  // Names of this machine in a request's Host, beside localhost and loopback addresses. A page in a browser can make its
  // own name lead to 127.0.0.1 and then talk to whatever listens there, but it cannot say another name than its own.
  std::vector<std::string> hosts;
  bool checks_host = true;
  std::vector<std::string> origins;  // of pages that browsers let read answers; "*": all of them
};

class Access {
 public:
  explicit Access(AccessOptions options);

  /// 401 or 403; `is_open`: what needs no key.
  std::optional<ApiError> refusal(const HttpRequest& request, bool is_open) const;
  /// What browsers want to see in every answer to a page that may read it.
  HttpHeaders cors_headers(const HttpRequest& request) const;
  bool allows_origin(const HttpRequest& request) const;

 private:
  bool has_key(const HttpRequest& request) const;
  bool is_our_name(std::string_view host) const;

  AccessOptions options_;
};

/// Whether two are equal, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace megalith::serve
