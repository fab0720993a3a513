// Bytes to server-sent events (text/event-stream, https://html.spec.whatwg.org/multipage/server-sent-events.html), as far as
// APIs use them: the data of each event. Comments and other fields are passed over. An event without its empty line at the
// end is none.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace megalith::serve {

class SseReader {
 public:
  /// `event_bytes`: what an event may have, and a line.
  explicit SseReader(size_t event_bytes) : most_bytes_(event_bytes) {}

  /// Calls `on_event(data)` for each event that is complete; lines of data within one are joined by '\n'. False once a line or
  /// an event has too many bytes: nothing further is read then.
  bool take(std::string_view bytes, const std::function<void(std::string_view data)>& on_event);

 private:
  void end_line(const std::function<void(std::string_view)>& on_event);

  size_t most_bytes_;
  std::string line_, data_;
  bool has_data_ = false, ended_by_cr_ = false, is_first_line_ = true, is_too_long_ = false;
};

}  // namespace megalith::serve
