// Asio's sockets around an HttpReader.
//
// A connection has one read going at any time, whatever its state, so that a client's end is seen at once; what arrives
// early waits in `in_`. It has one write going at most; what is to follow collects in `next_`, so the chunks of one step of
// the engine leave in one system call.
#include "megalith/serve/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <set>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/threads.h"
#include "megalith/serve/http_reader.h"

namespace megalith::serve {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

// How often deadlines are looked at: a timer for each connection would be set anew with every token.
constexpr std::chrono::milliseconds kSweep{50};
// How long a connection that is to be closed is still read: to close it with bytes unread would take back the answer.
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kReadBytes = 64 << 10;
// Of requests that a client sends before it has its answer.
constexpr size_t kMaxAheadBytes = 64 << 10;

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

class HttpConnection;

/// All that the server's thread works on.
class HttpReactor {
 public:
  HttpReactor(HttpServerOptions from, HttpServer::Handler to) : options(std::move(from)), handler(std::move(to)) {}

  void listen();
  void accept();
  void sweep();
  void stop_soon(std::chrono::milliseconds patience);
  void stop_if_empty() {
    if (is_stopping && connections.empty()) io.stop();
  }

  HttpServerOptions options;
  HttpServer::Handler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer timer{io};
  std::set<std::shared_ptr<HttpConnection>> connections;
  std::atomic<int> num_connections{0};
  size_t body_bytes = 0;  // of all connections, as far as they are known
  Clock::time_point next_tick = Clock::now(), stop_at = {};
  bool is_stopping = false;
  std::thread thread;
};

/// The answer to one request, as the handler has it. It may outlive its connection, and end on any thread.
class HttpExchange : public Exchange {
 public:
  HttpExchange(std::weak_ptr<HttpConnection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}
  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override;
  void begin(HttpReply head) override;
  void write(std::string_view part) override;
  void end() override;

 private:
  std::shared_ptr<HttpConnection> connection() const;

  std::weak_ptr<HttpConnection> connection_;
  HttpRequest request_;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpReactor& server, tcp::socket socket, std::string peer)
      : server_(server), limits_(server.options.limits), socket_(std::move(socket)), peer_(std::move(peer)) {}

  void start() {
    next_request();
    deadline_ = Clock::now() + limits_.header_time;  // a client that connects has something to say
    read();
  }

  bool answers(const HttpExchange* exchange) const { return exchange_.get() == exchange; }
  void reply(HttpReply reply, bool is_whole);
  void write(std::string_view part);
  void end();
  void look_at_deadline(Clock::time_point now);
  /// Takes no further request.
  void finish_soon() {
    keep_alive_ = false;
    if (state_ == State::idle || state_ == State::head) close();
  }
  void close();

 private:
  enum class State { idle, head, body, answer, closing, closed };

  void next_request();
  void read();
  void consume();
  bool take_head();
  void take_request();
  void refuse(const HttpComplaint& complaint);
  void flush_soon();
  void flush();
  void answered();
  void release_body() { server_.body_bytes -= std::exchange(body_bytes_, 0); }

  HttpReactor& server_;
  const HttpLimits& limits_;
  tcp::socket socket_;
  std::string peer_;
  State state_ = State::idle;
  boost::beast::flat_buffer in_;
  std::optional<HttpReader> reader_;
  size_t body_bytes_ = 0;  // this request's share of the server's
  std::shared_ptr<HttpExchange> exchange_;
  bool keep_alive_ = true, is_chunked_ = false, has_ended_ = false, is_bodyless_ = false;
  std::string out_, next_;  // being written; to be written then
  size_t written_ = 0;      // of out_
  bool is_writing_ = false, will_flush_ = false;
  std::optional<Clock::time_point> deadline_;  // of the read; while a write is going on, of that
};

// ---- reading ---------------------------------------------------------------------------------

void HttpConnection::next_request() {
  state_ = State::idle;
  exchange_.reset();
  has_ended_ = false;
  reader_.emplace(limits_.header_bytes, limits_.body_bytes);
  deadline_ = Clock::now() + limits_.idle_time;
}

void HttpConnection::read() {
  socket_.async_read_some(in_.prepare(kReadBytes), [self = shared_from_this()](error_code error, size_t bytes) {
    if (self->state_ == State::closed) return;
    if (error) return self->close();
    self->in_.commit(bytes);
    self->consume();
    if (self->state_ != State::closed) self->read();
  });
}

void HttpConnection::consume() {
  if (state_ == State::closing || (state_ == State::answer && !exchange_)) in_.consume(in_.size());
  if (state_ == State::answer && in_.size() > kMaxAheadBytes) return close();
  if (state_ == State::idle && in_.size() > 0) {
    state_ = State::head;
    deadline_ = Clock::now() + limits_.header_time;
  }
  while (state_ == State::head || state_ == State::body) {
    const auto bytes = in_.data();
    const size_t taken = reader_->take({static_cast<const char*>(bytes.data()), bytes.size()});
    in_.consume(taken);
    if (reader_->complaint()) return refuse(*reader_->complaint());
    const bool is_new = state_ == State::head && reader_->has_head();
    if (is_new && !take_head()) return;
    if (reader_->is_complete()) return take_request();
    if ((taken == 0 && !is_new) || in_.size() == 0) return;
  }
}

// The head is there, and the body may come. False if it may not.
bool HttpConnection::take_head() {
  body_bytes_ = reader_->body_bytes();
  server_.body_bytes += body_bytes_;
  if (server_.body_bytes > limits_.all_body_bytes)
    return refuse({503, "the bodies of all requests together are too large just now: try again"}), false;
  state_ = State::body;
  deadline_ = Clock::now() + limits_.body_time;
  if (reader_->waits_to_go_on() && in_.size() == 0) {
    next_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush_soon();
  }
  return true;
}

void HttpConnection::take_request() {
  std::optional<HttpRequest> request = reader_->request();
  if (!request) return refuse({400, "the request's target is no path"});
  is_chunked_ = reader_->takes_chunks();
  is_bodyless_ = request->method == "HEAD";
  // Of HTTP/1.0 a client that wants to go on would have to be told so.
  keep_alive_ = reader_->keep_alive() && is_chunked_ && !server_.is_stopping;
  request->peer = peer_;
  request->arrived = Clock::now();
  state_ = State::answer;
  deadline_.reset();
  exchange_ = std::make_shared<HttpExchange>(weak_from_this(), std::move(*request));
  server_.handler(exchange_);
}

void HttpConnection::refuse(const HttpComplaint& complaint) {
  keep_alive_ = false;
  is_bodyless_ = false;
  state_ = State::answer;
  const auto& refusal = server_.options.refusal;
  reply(refusal ? refusal(complaint.status, complaint.message)
                : HttpReply{complaint.status, complaint.message + "\n", "text/plain"},
        true);
}

void HttpConnection::look_at_deadline(Clock::time_point now) {
  if (!deadline_ || now < *deadline_) return;
  if (state_ == State::head) return refuse({408, "the head of the request took too long to arrive"});
  if (state_ == State::body) return refuse({408, "the body of the request took too long to arrive"});
  close();
}

// ---- writing ---------------------------------------------------------------------------------

void HttpConnection::reply(HttpReply reply, bool is_whole) {
  deadline_.reset();
  if (!is_whole && !is_chunked_) keep_alive_ = false;  // its end is the connection's
  next_ += fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: megalith\r\n", reply.status, http_phrase(reply.status),
                       http_date());
  for (const auto& [name, value] : reply.headers) next_ += fmt::format("{}: {}\r\n", name, value);
  if (reply.status != 204) next_ += fmt::format("Content-Type: {}\r\n", reply.content_type);
  if (is_whole && reply.status != 204)
    next_ += fmt::format("Content-Length: {}\r\n", reply.body.size());
  else if (!is_whole && is_chunked_)
    next_ += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_) next_ += "Connection: close\r\n";
  next_ += "\r\n";
  if (is_whole) {
    if (!is_bodyless_) next_ += reply.body;
    has_ended_ = true;
    flush_soon();
  } else {
    write(reply.body);
    flush_soon();
  }
}

void HttpConnection::write(std::string_view part) {
  if (part.empty() || is_bodyless_) return;  // a chunk of no bytes would be the last one
  if (is_chunked_)
    fmt::format_to(std::back_inserter(next_), "{:x}\r\n{}\r\n", part.size(), part);
  else
    next_ += part;
  if (next_.size() + out_.size() - written_ > limits_.pending_bytes) return close();
  flush_soon();
}

void HttpConnection::end() {
  if (is_chunked_ && !is_bodyless_) next_ += "0\r\n\r\n";
  has_ended_ = true;
  flush_soon();
}

void HttpConnection::flush_soon() {
  if (is_writing_ || std::exchange(will_flush_, true)) return;
  asio::post(server_.io, [self = shared_from_this()] {
    self->will_flush_ = false;
    if (!self->is_writing_ && self->state_ != State::closed) self->flush();
  });
}

void HttpConnection::flush() {
  if (written_ == out_.size()) {
    out_.clear();
    std::swap(out_, next_);
    written_ = 0;
  }
  if (out_.empty()) {
    is_writing_ = false;
    if (state_ == State::answer) deadline_.reset();
    if (has_ended_) answered();
    return;
  }
  is_writing_ = true;
  if (state_ == State::answer) deadline_ = Clock::now() + limits_.write_time;
  socket_.async_write_some(asio::buffer(out_.data() + written_, out_.size() - written_),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             if (self->state_ == State::closed) return;
                             if (error) return self->close();
                             self->written_ += bytes;
                             self->flush();
                           });
}

void HttpConnection::answered() {
  if (state_ != State::answer) return;
  release_body();
  if (keep_alive_) {
    next_request();
    consume();  // of the next request something may be there
    return;
  }
  exchange_.reset();
  state_ = State::closing;
  deadline_ = Clock::now() + kLinger;
  in_.consume(in_.size());
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpConnection::close() {
  if (std::exchange(state_, State::closed) == State::closed) return;
  const auto self = shared_from_this();
  error_code ignored;
  socket_.close(ignored);
  release_body();
  server_.connections.erase(self);
  --server_.num_connections;
  if (exchange_ && !has_ended_) {
    // Later, because this may be in the middle of the handler's own work.
    asio::post(server_.io, [exchange = exchange_] {
      if (exchange->on_gone) std::exchange(exchange->on_gone, nullptr)();
    });
  }
  exchange_.reset();
  asio::post(server_.io, [&server = server_] { server.stop_if_empty(); });
}

// ---- the handler's side ----------------------------------------------------------------------

std::shared_ptr<HttpConnection> HttpExchange::connection() const {
  std::shared_ptr<HttpConnection> connection = connection_.lock();
  return connection && connection->answers(this) ? connection : nullptr;
}

void HttpExchange::reply(HttpReply reply) {
  if (const auto to = connection()) to->reply(std::move(reply), true);
}
void HttpExchange::begin(HttpReply head) {
  if (const auto to = connection()) to->reply(std::move(head), false);
}
void HttpExchange::write(std::string_view part) {
  if (const auto to = connection()) to->write(part);
}
void HttpExchange::end() {
  if (const auto to = connection()) to->end();
}

// ---- the server ------------------------------------------------------------------------------

void HttpReactor::listen() {
  const std::string where = fmt::format("{} port {}", options.host, options.port);
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    throw SystemError(fmt::format("cannot listen on {}: no such address: {}", where, error.message()));
  const tcp::endpoint endpoint = *found.begin();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error)
    throw SystemError(fmt::format("cannot listen on {}: {}{}", where, error.message(),
                                  error == asio::error::address_in_use ? "; take another --port" : ""));
}

void HttpReactor::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (error) {
      // No descriptors are left, most likely: others must end first.
      log_warn("[serve] a connection was not taken: {}", error.message());
      auto pause = std::make_shared<asio::steady_timer>(io, std::chrono::milliseconds(100));
      return pause->async_wait([this, pause](error_code) { accept(); });
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (static_cast<int>(connections.size()) >= options.limits.connections) {
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
    } else {
      const tcp::endpoint from = socket.remote_endpoint(ignored);
      auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), from.address().to_string());
      connections.insert(connection);
      ++num_connections;
      connection->start();
    }
    accept();
  });
}

void HttpReactor::sweep() {
  timer.expires_after(kSweep);
  timer.async_wait([this](error_code error) {
    if (error) return;
    const Clock::time_point now = Clock::now();
    const std::vector<std::shared_ptr<HttpConnection>> all(connections.begin(), connections.end());
    for (const auto& connection : all) {
      connection->look_at_deadline(now);
      if (is_stopping && now >= stop_at) connection->close();
    }
    if (options.on_tick && now >= next_tick) {
      next_tick = now + options.tick;
      options.on_tick();
    }
    sweep();
  });
}

void HttpReactor::stop_soon(std::chrono::milliseconds patience) {
  is_stopping = true;
  stop_at = Clock::now() + patience;
  error_code ignored;
  acceptor.close(ignored);
  const std::vector<std::shared_ptr<HttpConnection>> all(connections.begin(), connections.end());
  for (const auto& connection : all) connection->finish_soon();
  stop_if_empty();
}

HttpServer::HttpServer(HttpServerOptions options, Handler handler)
    : reactor_(std::make_unique<HttpReactor>(std::move(options), std::move(handler))) {
  reactor_->listen();
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

std::string HttpServer::address() const { return reactor_->acceptor.local_endpoint().address().to_string(); }
int HttpServer::port() const { return reactor_->acceptor.local_endpoint().port(); }
bool HttpServer::is_loopback() const { return reactor_->acceptor.local_endpoint().address().is_loopback(); }
int HttpServer::connections() const { return reactor_->num_connections; }

void HttpServer::start() {
  reactor_->accept();
  reactor_->sweep();
  reactor_->thread = start_thread("the HTTP server", [this] { reactor_->io.run(); });
}

void HttpServer::post(std::function<void()> work) { asio::post(reactor_->io, std::move(work)); }

void HttpServer::stop(std::chrono::milliseconds patience) {
  if (!reactor_->thread.joinable()) return;
  post([this, patience] { reactor_->stop_soon(patience); });
  reactor_->thread.join();
  reactor_->connections.clear();
}

}  // namespace megalith::serve
