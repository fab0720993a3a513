#include "megalith/serve/http_answer_reader.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <utility>

#include "megalith/serve/http.h"

namespace megalith::serve {

namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;

class BeastParser final : public http::basic_parser<false> {
 public:
  int status = 0;
  HttpHeaders headers;
  std::string body;
  uint64_t left_of_chunk = 0;

 private:
  void on_request_impl(http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int code, string_view, int, error_code&) override { status = code; }
  void on_field_impl(http::field, string_view name, string_view value, error_code&) override {
    headers.emplace_back(lower_case({name.data(), name.size()}), std::string(value.data(), value.size()));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view piece, error_code&) override {
    body.append(piece.data(), piece.size());
    return piece.size();
  }
  void on_chunk_header_impl(uint64_t size, string_view, error_code&) override { left_of_chunk = size; }
  size_t on_chunk_body_impl(uint64_t left, string_view piece, error_code&) override {
    body.append(piece.data(), piece.size());
    left_of_chunk = left - piece.size();
    return piece.size();
  }
  void on_finish_impl(error_code&) override {}
};

}  // namespace

struct HttpAnswerReader::Impl {
  BeastParser parser = {};
  size_t header_bytes;
  std::optional<std::string> complaint = {};
  bool knows_head = false;
};

HttpAnswerReader::HttpAnswerReader(size_t header_bytes) : impl_(new Impl{.header_bytes = header_bytes}) {
  impl_->parser.header_limit(static_cast<uint32_t>(header_bytes));
  impl_->parser.body_limit(boost::none);  // none of it is kept here
}

HttpAnswerReader::~HttpAnswerReader() = default;
HttpAnswerReader::HttpAnswerReader(HttpAnswerReader&&) noexcept = default;
HttpAnswerReader& HttpAnswerReader::operator=(HttpAnswerReader&&) noexcept = default;

size_t HttpAnswerReader::take(std::string_view bytes) {
  BeastParser& parser = impl_->parser;
  if (impl_->complaint || is_complete()) return 0;
  // Beast takes for granted that all of it is there when it looks at a last chunk for the second time, and ends the process
  // otherwise. Between chunks there are never fewer bytes to come; within one each byte counts, since an event may end there.
  constexpr size_t kLastChunkBytes = std::string_view("0\r\n\r\n").size();
  if (impl_->knows_head && parser.chunked() && parser.left_of_chunk == 0 && bytes.size() < kLastChunkBytes) return 0;
  error_code error;
  const size_t taken = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error == http::error::header_limit)
    impl_->complaint = fmt::format("the head of the answer has more than {} bytes", impl_->header_bytes);
  else if (error && error != http::error::need_more)
    impl_->complaint = fmt::format("this is no HTTP answer: {}", error.message());
  else if (error && impl_->knows_head && bytes.size() - taken > impl_->header_bytes)
    impl_->complaint = fmt::format("the answer has more than {} bytes between two chunks", impl_->header_bytes);
  else if (parser.is_header_done() && !std::exchange(impl_->knows_head, true))
    parser.eager(true);  // the body is read on without further questions
  return taken;
}

void HttpAnswerReader::take_end() {
  if (impl_->complaint || is_complete()) return;
  error_code error = http::error::end_of_stream;
  if (impl_->knows_head) impl_->parser.put_eof(error = {});
  if (error) impl_->complaint = "the connection ended in the middle of the answer";
}

const std::optional<std::string>& HttpAnswerReader::complaint() const { return impl_->complaint; }
bool HttpAnswerReader::has_head() const { return impl_->knows_head; }
bool HttpAnswerReader::is_complete() const { return impl_->parser.is_done(); }
int HttpAnswerReader::status() const { return impl_->parser.status; }
bool HttpAnswerReader::keep_alive() const { return impl_->parser.keep_alive(); }
std::string HttpAnswerReader::take_body() { return std::exchange(impl_->parser.body, ""); }

std::string_view HttpAnswerReader::header(std::string_view name) const {
  for (const auto& [key, value] : impl_->parser.headers)
    if (key == name) return value;
  return {};
}

}  // namespace megalith::serve
