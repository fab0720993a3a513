// The one file that knows Beast, which takes long to compile.
#include "megalith/serve/http_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>

namespace megalith::serve {

namespace {

namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;

HttpComplaint complaint_about_length(size_t header_bytes) {
  return {431, fmt::format("the head of the request has more than {} bytes", header_bytes)};
}

HttpComplaint complaint_of(const boost::system::error_code& error, size_t header_bytes, size_t body_bytes) {
  if (error == http::error::header_limit) return complaint_about_length(header_bytes);
  if (error == http::error::body_limit)
    return {413, fmt::format("the body of the request has more than {} bytes", body_bytes)};
  if (error == http::error::bad_version)
    return {400, "this is not HTTP/1.1 or HTTP/1.0, with lines that end as those do"};
  return {400, fmt::format("this is no HTTP request: {}", error.message())};
}

std::optional<HttpComplaint> complaint_about_head(const Parser::value_type& head) {
  const auto lengths = head.count(http::field::content_length);
  const auto encodings = head.count(http::field::transfer_encoding);
  if (lengths > 1) return HttpComplaint{400, "the request has several Content-Length, want one"};
  if (lengths && encodings)
    return HttpComplaint{400, "the request has both Content-Length and Transfer-Encoding, want one"};
  if (encodings > 1 || (encodings && lower_case(trimmed(head[http::field::transfer_encoding])) != "chunked"))
    return HttpComplaint{400, "the request has a Transfer-Encoding other than chunked, the only one known here"};
  if (encodings && head.version() < 11)
    return HttpComplaint{400, "the request has a Transfer-Encoding, but is HTTP/1.0"};
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() >= 11))
    return HttpComplaint{400, fmt::format("the request has {} Host headers, want one", hosts)};
  const bool wants_body =
      head.method() == http::verb::post || head.method() == http::verb::put || head.method() == http::verb::patch;
  if (wants_body && !lengths && !encodings) return HttpComplaint{411, "the request has no Content-Length"};
  return std::nullopt;
}

// Splits "/path?query", also of the form that proxies use: "http://host/path". False if it is neither.
bool read_target(std::string_view target, HttpRequest& request) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      target.remove_prefix(std::min(target.size(), target.find('/', scheme.size())));
      if (target.empty()) target = "/";
    }
  if (target != "*" && !target.starts_with('/')) return false;
  const size_t question = std::min(target.size(), target.find('?'));
  std::optional<std::string> path = percent_decode(target.substr(0, question));
  if (!path) return false;
  request.path = std::move(*path);
  request.query = target.substr(std::min(target.size(), question + 1));
  return true;
}

}  // namespace

struct HttpReader::Impl {
  Parser parser;
  size_t header_bytes, most_body_bytes;
  std::optional<HttpComplaint> complaint = {};
  size_t head_taken = 0;  // bytes of the head so far
  bool knows_head = false;
};

HttpReader::HttpReader(size_t header_bytes, size_t body_bytes)
    : impl_(new Impl{.parser = {}, .header_bytes = header_bytes, .most_body_bytes = body_bytes}) {
  // A head that is a few bytes longer Beast refuses or not, as it arrives in pieces or at once. So it is counted here, and Beast
  // refuses what is far longer.
  constexpr size_t kFurther = 64;
  impl_->parser.header_limit(static_cast<uint32_t>(header_bytes + kFurther));
  impl_->parser.body_limit(body_bytes);
}

HttpReader::~HttpReader() = default;
HttpReader::HttpReader(HttpReader&&) noexcept = default;
HttpReader& HttpReader::operator=(HttpReader&&) noexcept = default;

size_t HttpReader::take(std::string_view bytes) {
  Parser& parser = impl_->parser;
  if (impl_->complaint || is_complete()) return 0;
  // Beast takes for granted that all of it is there when it looks at a last chunk for the second time, and ends the process
  // otherwise. Of chunks there are never fewer bytes to come.
  constexpr size_t kLastChunkBytes = std::string_view("0\r\n\r\n").size();
  if (impl_->knows_head && parser.chunked() && bytes.size() < kLastChunkBytes) return 0;
  boost::system::error_code error;
  const size_t taken = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error && error != http::error::need_more) {
    impl_->complaint = complaint_of(error, impl_->header_bytes, impl_->most_body_bytes);
  } else if (!impl_->knows_head) {
    impl_->knows_head = parser.is_header_done();
    impl_->head_taken += taken;
    const size_t seen = impl_->knows_head ? 0 : bytes.size() - taken;  // of the head, and not taken yet
    if (impl_->head_taken + seen > impl_->header_bytes)
      impl_->complaint = complaint_about_length(impl_->header_bytes);
    else if (impl_->knows_head)
      impl_->complaint = complaint_about_head(parser.get());
    parser.eager(impl_->knows_head);  // the body is read on without further questions
  }
  return taken;
}

const std::optional<HttpComplaint>& HttpReader::complaint() const { return impl_->complaint; }
bool HttpReader::has_head() const { return impl_->knows_head; }
bool HttpReader::is_complete() const { return impl_->parser.is_done(); }

size_t HttpReader::body_bytes() const {
  const auto length = impl_->parser.content_length();
  return impl_->parser.chunked() ? impl_->most_body_bytes : static_cast<size_t>(length.value_or(0));
}

bool HttpReader::waits_to_go_on() const {
  return takes_chunks() && !is_complete() && lower_case(impl_->parser.get()[http::field::expect]) == "100-continue";
}

bool HttpReader::keep_alive() const { return impl_->parser.get().keep_alive(); }
bool HttpReader::takes_chunks() const { return impl_->parser.get().version() >= 11; }

std::optional<HttpRequest> HttpReader::request() {
  auto& message = impl_->parser.get();
  HttpRequest request;
  request.method = message.method_string();
  for (const auto& field : message)
    request.headers.emplace_back(lower_case(field.name_string()), std::string(field.value()));
  if (!read_target(message.target(), request)) return std::nullopt;
  request.body = std::move(message.body());
  return request;
}

}  // namespace megalith::serve
