// Asio's sockets around LoadAnswers. A connection has one read going at any time, so that it is seen at once when a server
// closes one that is at rest.
#include "tools/load_client.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "megalith/base/error.h"

namespace megalith::tools {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using LoadClock = std::chrono::steady_clock;

// How often the client looks whether it is woken in time: often enough for thousands of samples in a short run, and at random,
// so that it does not keep step with a server's tokens. Each costs some 10 us of a core.
constexpr std::chrono::microseconds kLeastProbe{1000}, kMostProbe{3000};
// How often deadlines are looked at.
constexpr std::chrono::milliseconds kSweep{20};
// What the end of an answer's body may still take once its [DONE] is there.
constexpr std::chrono::milliseconds kDrain{1000};
// For what is asked about the server itself.
constexpr double kMostAsking = 10'000;
constexpr size_t kReadBytes = 16 << 10;
// Connections that are made before the first request of a run.
constexpr int64_t kMostAhead = 1024;

double ms_between(LoadClock::time_point from, LoadClock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}
LoadClock::duration duration_of(double ms) {
  return std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double, std::milli>(ms));
}
double thread_cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

}  // namespace

/// A request on its way.
struct LoadExchange {
  size_t index;
  std::string head;
  const std::string* body;
  LoadClock::time_point sent;
  double timeout_ms;
  LoadAnswer answer;
  LoadRecord record = {};
  bool was_sent_again = false;
};

class LoadConnection;

/// All that the client's thread works on.
class LoadReactor {
 public:
  explicit LoadReactor(LoadClientOptions from);
  ~LoadReactor();

  LoadRun run(const std::vector<LoadRequest>& requests, int64_t concurrency, const std::function<void()>& on_end);
  LoadClient::Reply get(const std::string& path);
  void cancel();

  // For connections.
  void begin(std::unique_ptr<LoadExchange> exchange, bool is_fresh);
  void ended(const LoadExchange& exchange, LoadClock::time_point now);
  void forget(const std::shared_ptr<LoadConnection>& connection);

  LoadClientOptions options;
  asio::io_context io{1};
  std::vector<tcp::endpoint> endpoints;                  // one once it is known which answers
  std::vector<std::shared_ptr<LoadConnection>> at_rest;  // the one used last is the next one to be used

 private:
  std::string head_of(const char* method, const std::string& path, size_t body_bytes) const;
  void open_ahead(int64_t count);
  void work_until(const std::function<bool()>& is_over);
  void dispatch();
  void probe();
  void sweep();

  asio::steady_timer due_timer_{io}, probe_timer_{io};
  std::set<std::shared_ptr<LoadConnection>> connections_;
  std::atomic<bool> is_cancelled_{false};
  std::minstd_rand random_;

  // Of the run that goes on.
  const std::vector<LoadRequest>* requests_ = nullptr;
  std::function<void(const LoadExchange&)> on_ended_;
  LoadRun run_;
  int64_t concurrency_ = 1, active_ = 0;
  size_t next_ = 0;
  LoadClock::time_point begin_, place_since_, next_sweep_;
};

class LoadConnection : public std::enable_shared_from_this<LoadConnection> {
 public:
  explicit LoadConnection(LoadReactor& reactor) : reactor_(reactor), socket_(reactor.io) {}

  /// Connects, and then sends what there is to send.
  void connect();
  void send(std::unique_ptr<LoadExchange> exchange);
  void look_at_deadline(LoadClock::time_point now);
  /// Ends what it works on as a failure.
  void fail(const char* kind, std::string detail);
  void close();
  bool is_connecting() const { return state_ == State::connecting; }
  bool is_at_work() const { return state_ == State::busy || (state_ == State::connecting && exchange_); }

 private:
  enum class State { connecting, at_rest, busy, draining, closed };

  void write();
  void read();
  void take(size_t bytes);
  void lost(error_code error);
  void rest();

  LoadReactor& reactor_;
  tcp::socket socket_;
  State state_ = State::connecting;
  std::unique_ptr<LoadExchange> exchange_;
  bool was_used_ = false;  // before what it works on now
  bool is_writing_ = false;
  std::array<char, kReadBytes> in_;
  std::optional<LoadClock::time_point> deadline_;
};

// ---- a connection ----------------------------------------------------------------------------

void LoadConnection::connect() {
  deadline_ = LoadClock::now() + duration_of(reactor_.options.connect_timeout_ms);
  asio::async_connect(socket_, reactor_.endpoints,
                      [self = shared_from_this()](error_code error, const tcp::endpoint& endpoint) {
                        if (self->state_ == State::closed) return;
                        if (error) return self->fail("cannot connect", error.message());
                        self->reactor_.endpoints = {endpoint};
                        error_code ignored;
                        self->socket_.set_option(tcp::no_delay(true), ignored);
                        self->read();
                        if (!self->exchange_) return self->rest();
                        self->write();
                      });
}

void LoadConnection::send(std::unique_ptr<LoadExchange> exchange) {
  exchange_ = std::move(exchange);
  if (state_ == State::connecting) return;
  was_used_ = true;
  write();
}

void LoadConnection::write() {
  state_ = State::busy;
  deadline_ = exchange_->sent + duration_of(exchange_->timeout_ms);
  is_writing_ = true;
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(exchange_->head), asio::buffer(*exchange_->body)};
  // An error of writing is one of reading, too, and a server may have said why before it closed its side.
  asio::async_write(socket_, parts,
                    [self = shared_from_this()](error_code error, size_t) { self->is_writing_ = bool(error); });
}

void LoadConnection::read() {
  socket_.async_read_some(asio::buffer(in_), [self = shared_from_this()](error_code error, size_t bytes) {
    if (self->state_ == State::closed) return;
    if (error) return self->lost(error);
    self->take(bytes);
    if (self->state_ != State::closed) self->read();
  });
}

void LoadConnection::take(size_t bytes) {
  const auto now = LoadClock::now();
  if (!exchange_) return close();  // nobody has asked for anything
  LoadAnswer& answer = exchange_->answer;
  answer.take({in_.data(), bytes}, ms_between(exchange_->sent, now));
  if (!answer.is_over()) return;
  if (state_ == State::busy) {
    state_ = State::draining;
    deadline_ = now + kDrain;
    reactor_.ended(*exchange_, now);
  }
  if (is_writing_ || (answer.failure() && !answer.is_reusable())) return close();
  if (answer.is_reusable()) rest();
}

// The server has closed its side, or the connection is broken.
void LoadConnection::lost(error_code error) {
  if (state_ != State::busy) return close();
  LoadAnswer& answer = exchange_->answer;
  // A server may close a connection at rest while a request is on its way there: it was not that request's fault.
  if (was_used_ && !answer.has_begun() && !std::exchange(exchange_->was_sent_again, true)) {
    std::unique_ptr<LoadExchange> exchange = std::move(exchange_);
    close();
    return reactor_.begin(std::move(exchange), true);
  }
  if (error == asio::error::eof)
    answer.take_end();
  else
    answer.fail({"disconnected", error.message()});
  reactor_.ended(*exchange_, LoadClock::now());
  close();
}

void LoadConnection::rest() {
  state_ = State::at_rest;
  exchange_.reset();
  deadline_.reset();
  reactor_.at_rest.push_back(shared_from_this());
}

void LoadConnection::fail(const char* kind, std::string detail) {
  if (is_at_work()) {
    exchange_->answer.fail({kind, std::move(detail)});
    reactor_.ended(*exchange_, LoadClock::now());
  }
  close();
}

void LoadConnection::look_at_deadline(LoadClock::time_point now) {
  if (!deadline_ || now < *deadline_) return;
  if (state_ == State::connecting)
    return fail("cannot connect", fmt::format("no answer in {} ms", reactor_.options.connect_timeout_ms));
  fail("timeout", fmt::format("the answer had not ended after {} s", exchange_ ? exchange_->timeout_ms / 1e3 : 0));
}

void LoadConnection::close() {
  if (std::exchange(state_, State::closed) == State::closed) return;
  error_code ignored;
  socket_.close(ignored);
  reactor_.forget(shared_from_this());
}

// ---- the client ------------------------------------------------------------------------------

LoadReactor::LoadReactor(LoadClientOptions from) : options(std::move(from)) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(options.url.host, std::to_string(options.url.port), error);
  if (error || found.empty())
    throw SystemError(fmt::format("there is no host \"{}\": {}", options.url.host, error.message()));
  for (const auto& one : found) endpoints.push_back(one.endpoint());
}

LoadReactor::~LoadReactor() {
  for (const auto& connection : std::exchange(connections_, {})) connection->close();
}

void LoadReactor::forget(const std::shared_ptr<LoadConnection>& connection) {
  std::erase(at_rest, connection);
  connections_.erase(connection);
}

std::string LoadReactor::head_of(const char* method, const std::string& path, size_t body_bytes) const {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: megalith/{}\r\nAccept: */*\r\n", method,
                                 path, options.url.authority(), MEGALITH_VERSION);
  if (!options.api_key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", options.api_key);
  if (body_bytes > 0) head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body_bytes);
  return head + "\r\n";
}

void LoadReactor::begin(std::unique_ptr<LoadExchange> exchange, bool is_fresh) {
  if (!is_fresh && !at_rest.empty()) {
    const std::shared_ptr<LoadConnection> connection = std::move(at_rest.back());
    at_rest.pop_back();
    return connection->send(std::move(exchange));
  }
  const auto connection = std::make_shared<LoadConnection>(*this);
  connections_.insert(connection);
  connection->send(std::move(exchange));
  connection->connect();
}

void LoadReactor::ended(const LoadExchange& exchange, LoadClock::time_point now) {
  if (active_-- == concurrency_) place_since_ = now;
  on_ended_(exchange);
  asio::post(io, [this] { dispatch(); });
}

// Sends the next request if its time has come, and sees to it that it is looked at the one behind it. What has arrived
// meanwhile has its turn in between.
void LoadReactor::dispatch() {
  if (!requests_ || is_cancelled_ || next_ == requests_->size() || active_ >= concurrency_) return;
  const LoadRequest& request = (*requests_)[next_];
  const auto due = begin_ + duration_of(request.due_ms), now = LoadClock::now();
  if (due > now) {
    due_timer_.expires_at(due);
    return due_timer_.async_wait([this](error_code error) {
      if (!error) dispatch();
    });
  }
  std::unique_ptr<LoadExchange> exchange(
      new LoadExchange{.index = next_++,
                       .head = head_of("POST", options.url.path(options.endpoint), request.body.size()),
                       .body = &request.body,
                       .sent = now,
                       .timeout_ms = options.timeout_ms,
                       .answer = LoadAnswer(true)});
  exchange->record = {.sent_ms = ms_between(begin_, now),
                      .late_ms = ms_between(std::max(due, place_since_), now),
                      .prompt_tokens = request.prompt_tokens,
                      .asked_tokens = request.asked_tokens};
  run_.peak = std::max(run_.peak, ++active_);
  begin(std::move(exchange), false);
  asio::post(io, [this] { dispatch(); });
}

void LoadReactor::probe() {
  probe_timer_.expires_at(
      LoadClock::now() + kLeastProbe +
      std::chrono::microseconds(random_() % static_cast<unsigned>((kMostProbe - kLeastProbe).count())));
  probe_timer_.async_wait([this](error_code error) {
    if (error || !requests_) return;
    run_.wake_late_ms.push_back(ms_between(probe_timer_.expiry(), LoadClock::now()));
    sweep();
    probe();
  });
}

void LoadReactor::sweep() {
  const auto now = LoadClock::now();
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweep;
  const auto all = connections_;
  for (const auto& connection : all) connection->look_at_deadline(now);
}

void LoadReactor::work_until(const std::function<bool()>& is_over) {
  io.restart();
  while (!is_over()) {
    io.run_one_for(kSweep);
    sweep();
  }
}

// So that the first requests of a run measure the server, and not how connections are made. One that fails here will be tried
// again, and counted, with its request.
void LoadReactor::open_ahead(int64_t count) {
  io.restart();
  io.poll();  // what the server has closed meanwhile
  for (auto have = static_cast<int64_t>(at_rest.size()); have < std::min(count, kMostAhead); ++have) {
    const auto connection = std::make_shared<LoadConnection>(*this);
    connections_.insert(connection);
    connection->connect();
  }
  work_until([this] {
    return is_cancelled_ || std::ranges::none_of(connections_, [](const auto& one) { return one->is_connecting(); });
  });
}

LoadRun LoadReactor::run(const std::vector<LoadRequest>& requests, int64_t concurrency,
                         const std::function<void()>& on_end) {
  int64_t at_once = 0;  // as far as it is known before it is seen how long answers take
  for (const LoadRequest& request : requests) at_once += request.due_ms <= 0;
  open_ahead(std::min(concurrency, at_once));

  std::vector<std::optional<LoadRecord>> records(requests.size());
  size_t num_ended = 0;
  on_ended_ = [&](const LoadExchange& exchange) {
    LoadRecord record = exchange.record;
    exchange.answer.fill(record);
    record.ended_ms = ms_between(begin_, LoadClock::now());
    records[exchange.index] = std::move(record);
    ++num_ended;
    on_end();
  };
  run_ = {};
  requests_ = &requests;
  concurrency_ = concurrency;
  next_ = 0;
  const double cpu_ms = thread_cpu_ms();
  begin_ = place_since_ = LoadClock::now();
  probe();
  dispatch();
  work_until([&] { return num_ended == (is_cancelled_ ? next_ : requests.size()); });
  run_.core_share = (thread_cpu_ms() - cpu_ms) / std::max(1e-9, ms_between(begin_, LoadClock::now()));
  requests_ = nullptr;
  on_ended_ = [](const LoadExchange&) {};
  probe_timer_.cancel();
  due_timer_.cancel();
  for (std::optional<LoadRecord>& record : records)
    if (record) run_.records.push_back(*std::move(record));
  return std::move(run_);
}

LoadClient::Reply LoadReactor::get(const std::string& path) {
  const std::string no_body;
  bool is_over = false;
  LoadClient::Reply reply;
  std::optional<LoadFailure> failure;
  on_ended_ = [&](const LoadExchange& exchange) {
    is_over = true;
    reply.body = exchange.answer.body();
    failure = exchange.answer.failure();
  };
  ++active_;
  begin(std::unique_ptr<LoadExchange>(new LoadExchange{.index = 0,
                                                       .head = head_of("GET", path, 0),
                                                       .body = &no_body,
                                                       .sent = LoadClock::now(),
                                                       .timeout_ms = std::min(options.timeout_ms, kMostAsking),
                                                       .answer = LoadAnswer(false)}),
        false);
  work_until([&] { return is_over || is_cancelled_; });
  on_ended_ = [](const LoadExchange&) {};
  constexpr std::string_view kStatus = "status ";
  if (failure && failure->kind.starts_with(kStatus))
    reply.status = std::stoi(failure->kind.substr(kStatus.size()));
  else if (failure)
    throw SystemError(
        fmt::format("no answer from http://{}{}: {}: {}; is the server running, and is this its address "
                    "(--base-url, or --host and --port)?",
                    options.url.authority(), path, failure->kind, failure->detail));
  return reply;
}

void LoadReactor::cancel() {
  if (is_cancelled_.exchange(true)) return;
  asio::post(io, [this] {
    const auto all = connections_;
    for (const auto& connection : all)
      if (connection->is_at_work()) connection->fail("interrupted", "Ctrl-C came before the answer had ended");
  });
}

LoadClient::LoadClient(LoadClientOptions options) : reactor_(std::make_unique<LoadReactor>(std::move(options))) {}
LoadClient::~LoadClient() = default;
LoadClient::Reply LoadClient::get(const std::string& path) { return reactor_->get(path); }
LoadRun LoadClient::run(const std::vector<LoadRequest>& requests, int64_t concurrency,
                        const std::function<void()>& on_end) {
  return reactor_->run(requests, concurrency, on_end);
}
void LoadClient::cancel() { reactor_->cancel(); }

}  // namespace megalith::tools
