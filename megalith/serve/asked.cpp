#include "megalith/serve/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "megalith/base/json_quote.h"
#include "megalith/base/printable.h"
#include "megalith/base/random_hex.h"

namespace megalith::serve {

namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr size_t kLoggedPathBytes = 200;

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxIdBytes && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  });
}

// 2026-11-26T21:25:07.123Z
std::string utc_now() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const std::time_t whole = system_clock::to_time_t(now);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  const auto milliseconds = duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{}.{:03}Z", std::string_view(text, length), milliseconds);
}

}  // namespace

HttpReply Asked::with_headers(HttpReply reply) const {
  reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
  return reply;
}

std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  return is_id(given) ? std::string(given) : random_hex();
}

std::string log_line_json(const Asked& asked, int status, const std::optional<LogDetails>& details) {
  const HttpRequest& request = asked.exchange->request();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - request.arrived;
  std::string line = fmt::format(R"({{"time":"{}","id":{},"client":{},"method":{},"path":{},"status":{},"ms":{:.1f})",
                                 utc_now(), json_quote(asked.id), json_quote(request.peer), json_quote(request.method),
                                 json_quote(shortened(request.path, kLoggedPathBytes)), status, took.count());
  if (details) {
    line +=
        fmt::format(R"(,"model":{},"prompt_tokens":{},"completion_tokens":{},"finish":{})", json_quote(details->model),
                    details->prompt_tokens, details->completion_tokens, json_quote(details->finish));
    if (details->first_token_ms) line += fmt::format(",\"first_token_ms\":{:.1f}", *details->first_token_ms);
  }
  return line + "}";
}

}  // namespace megalith::serve
