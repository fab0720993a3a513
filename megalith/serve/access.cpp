#include "megalith/serve/access.h"

#include <algorithm>

#include "megalith/base/printable.h"

namespace megalith::serve {

namespace {

constexpr size_t kShownHostBytes = 80;

// "Example.org:8000" as "example.org", "[::1]:8000" as "[::1]".
std::string without_port(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : host.find(':', bracket);
  return lower_case(host.substr(0, colon));
}

bool is_loopback_name(const std::string& host) {
  if (host == "localhost" || host == "[::1]" || host.ends_with(".localhost")) return true;
  // An address and no name: "127.0.0.1.example.org" is somebody's.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

Access::Access(AccessOptions options) : options_(std::move(options)) {
  for (std::string& host : options_.hosts) host = lower_case(host);
}

bool Access::has_key(const HttpRequest& request) const {
  std::string_view key = request.header("x-api-key");
  const std::string_view bearer = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (lower_case(bearer.substr(0, kScheme.size())) == kScheme) key = trimmed(bearer.substr(kScheme.size()));
  bool is_known = false;
  for (const std::string& known : options_.keys) is_known |= equal_in_constant_time(key, known);
  return is_known;
}

bool Access::is_our_name(std::string_view host) const {
  const std::string name = without_port(host);
  return is_loopback_name(name) || std::ranges::find(options_.hosts, name) != options_.hosts.end();
}

std::optional<ApiError> Access::refusal(const HttpRequest& request, bool is_open) const {
  const std::string_view host = request.header("host");
  if (options_.checks_host && !host.empty() && !is_our_name(host))
    return ApiError::of_status(
        403, fmt::format("this server does not answer to the name \"{}\": --allowed-host names further ones",
                         shortened(host, kShownHostBytes)));
  if (is_open || options_.keys.empty() || has_key(request)) return std::nullopt;
  const bool has_any = !request.header("authorization").empty() || !request.header("x-api-key").empty();
  return ApiError::of_status(401, has_any ? "the API key is none that this server knows"
                                          : "an API key is wanted: send Authorization: Bearer KEY, or X-Api-Key: KEY");
}

bool Access::allows_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  return !origin.empty() && std::ranges::any_of(options_.origins, [&](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

HttpHeaders Access::cors_headers(const HttpRequest& request) const {
  if (options_.origins.empty()) return {};
  HttpHeaders headers = {{"Vary", "Origin"}};
  if (!allows_origin(request)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", request.header("origin"));
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (request.method == "OPTIONS") {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
    headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id");
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return headers;
}

}  // namespace megalith::serve
