#include "tools/base_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "megalith/base/error.h"

namespace megalith::tools {

BaseUrl BaseUrl::parse(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  MEGALITH_CHECK(
      !text.starts_with("https://"),
      "{} is https, and only plain http is spoken here: let a proxy on this machine (nginx, HAProxy, stunnel) "
      "do the TLS, and name that, as in http://127.0.0.1:8001",
      text);
  const auto refuse = [&](const char* why) {
    throw UserError(fmt::format("\"{}\" {}, want http://HOST:PORT", text, why));
  };
  if (!text.starts_with(kScheme)) refuse("does not begin with http://");
  const bool is_plain = std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (!is_plain || text.find_first_of("?#@\\\"") != std::string::npos)
    refuse("has a character that has no place in it (a space, ?, #, @)");
  BaseUrl url;
  const std::string_view rest = std::string_view(text).substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.prefix = rest.substr(slash);
  while (url.prefix.ends_with('/')) url.prefix.pop_back();
  std::string_view host = rest.substr(0, slash), port = "80";
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  if (bracket == std::string_view::npos) refuse("has a [ without its ]");
  if (const size_t colon = host.find(':', bracket); colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (code != std::errc() || end != port.data() + port.size() || url.port < 1 || url.port > 65535)
    refuse("has no port of 1 to 65535 behind its colon");
  url.host = bracket > 0 ? host.substr(1, bracket - 1) : host;
  if (url.host.empty()) refuse("has no host");
  return url;
}

std::string BaseUrl::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string BaseUrl::path(const std::string& endpoint) const {
  constexpr std::string_view kVersion = "/v1";
  if (prefix.ends_with(kVersion) && endpoint.starts_with("/v1/"))
    return prefix.substr(0, prefix.size() - kVersion.size()) + endpoint;
  return prefix + endpoint;
}

}  // namespace megalith::tools
