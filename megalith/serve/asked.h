// A request on its way through the front: what it is called, what every answer to it carries, and the line that the log has
// of it. The log never has what was said.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "megalith/serve/http.h"

namespace megalith::serve {

/// Of a generation, beside what every line has.
struct LogDetails {
  std::string model = {};
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::string finish = {};                    // of its sequences, by commas
  std::optional<double> first_token_ms = {};  // since the request came
};

/// Takes a line of JSON, without its end.
using LogSink = std::function<void(const std::string& line)>;

struct Asked {
  std::shared_ptr<Exchange> exchange;
  std::string id;       // the client's own X-Request-Id, or one made up
  HttpHeaders headers;  // of every answer

  /// `reply` with the headers.
  HttpReply with_headers(HttpReply reply) const;
};

/// The client's id if it is one that a header and a log can carry; or a new one.
std::string request_id(const HttpRequest& request);
/// The log's line.
std::string log_line_json(const Asked& asked, int status, const std::optional<LogDetails>& details);

}  // namespace megalith::serve
