// Bytes to one answer of HTTP/1.1, without a socket, for clients of servers that nobody vouches for. The parser is Beast's. The
// body is handed on as it comes, because a stream of events may have no end.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace megalith::serve {

class HttpAnswerReader {
 public:
  /// `header_bytes`: what the head may have, and each line between the chunks of the body.
  explicit HttpAnswerReader(size_t header_bytes);
  ~HttpAnswerReader();
  HttpAnswerReader(HttpAnswerReader&&) noexcept;
  HttpAnswerReader& operator=(HttpAnswerReader&&) noexcept;

  /// Takes from the beginning of `bytes`, and says how many. What it leaves it wants to see again with more behind it, unless
  /// the head has just ended, the answer is complete, or there is a complaint.
  size_t take(std::string_view bytes);
  /// The server has closed its side: the end of a body without a length, and a complaint otherwise.
  void take_end();
  const std::optional<std::string>& complaint() const;
  bool has_head() const;
  bool is_complete() const;

  /// Once the head is there.
  int status() const;
  /// Of several with that name the first; "" if there is none. `name` is in lower case.
  std::string_view header(std::string_view name) const;
  bool keep_alive() const;

  /// What has come of the body since the last call.
  std::string take_body();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megalith::serve
