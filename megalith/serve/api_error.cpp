#include "megalith/serve/api_error.h"

#include <fmt/format.h>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

ApiError ApiError::of_status(int status, const std::string& message) {
  const auto type = [&] {
    switch (status) {
      case 401: return "authentication_error";
      case 403: return "permission_error";
      case 404: return "not_found_error";
      case 429: return "rate_limit_error";
      case 500: return "server_error";
      case 501: return "not_supported_error";
      case 503: return "unavailable_error";
      default: return "invalid_request_error";
    }
  };
  return {status, type(), message};
}

ApiError& ApiError::with(const std::string& key, const std::string& json) {
  more_ += fmt::format(",{}:{}", json_quote(key), json);
  return *this;
}

ApiError& ApiError::retry_after(int seconds) {
  headers_.emplace_back("Retry-After", std::to_string(seconds));
  return *this;
}

std::string ApiError::json() const {
  return fmt::format(R"({{"error":{{"message":{},"type":{},"param":{},"code":{}{}}}}})", json_quote(what()),
                     json_quote(type_), param_.empty() ? "null" : json_quote(param_), status_, more_);
}

HttpReply ApiError::reply() const {
  HttpReply reply{.status = status_, .body = json(), .headers = headers_};
  // OpenAI's clients ask twice more after anything from 500 on; these would say the same again.
  if (status_ == 500 || status_ == 501) reply.headers.emplace_back("X-Should-Retry", "false");
  return reply;
}

}  // namespace megalith::serve
