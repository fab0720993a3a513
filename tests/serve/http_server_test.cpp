// The server against clients that do what they should, and against those that do not.
#include "megalith/serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/limits.h"
#include "serve/socket_client.h"

namespace megalith::serve {
namespace {

using namespace std::chrono_literals;
using test::SocketClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

HttpLimits short_limits() {
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.body_bytes = 100'000;
  limits.header_time = limits.body_time = 300ms;
  limits.idle_time = 300ms;
  limits.write_time = 300ms;
  return limits;
}

// Answers with what it was asked; keeps exchanges of /wait and /stream, for the test to go on with.
class Served {
 public:
  explicit Served(HttpLimits limits = short_limits())
      : server_({.limits = limits,
                 .refusal =
                     [](int status, const std::string& message) {
                       return HttpReply{status, "refused: " + message, "text/plain"};
                     }},
                [this](std::shared_ptr<Exchange> exchange) { take(std::move(exchange)); }) {
    server_.start();
  }
  // Exchanges that were kept lead to connections of the server.
  ~Served() { server_.stop(0ms); }

  int port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  int gone() const { return gone_; }

  /// The exchange that was kept, once there is one.
  std::shared_ptr<Exchange> kept() {
    for (int i = 0; i < 2000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (!kept_.empty()) {
          auto exchange = kept_.back();
          kept_.pop_back();
          return exchange;
        }
      }
      std::this_thread::sleep_for(1ms);
    }
    ADD_FAILURE() << "no request came";
    return nullptr;
  }
  void on_thread(const std::function<void()>& work) {
    std::promise<void> done;
    server_.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  bool saw_gone(std::chrono::milliseconds patience) const {
    for (auto left = patience; left > 0ms; left -= 1ms) {
      if (gone_ > 0) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }

 private:
  void take(std::shared_ptr<Exchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (request.path == "/wait" || request.path == "/stream") {
      exchange->on_gone = [this] { ++gone_; };
      if (request.path == "/stream") exchange->begin({.body = "first\n", .content_type = "text/event-stream"});
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(exchange));
      return;
    }
    exchange->reply({.body = request.method + " " + request.path + " [" + request.query + "] " +
                             std::string(request.header("x-test")) + " " + std::to_string(request.body.size()),
                     .content_type = "text/plain"});
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> kept_;
  std::atomic<int> gone_{0};
  HttpServer server_;
};

std::string get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
}

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more +
         "\r\n" + body;
}

TEST(HttpServer, AnswersSeveralRequestsOfOneConnection) {
  Served served;
  SocketClient client(served.port());
  for (int i = 0; i < 3; ++i) {
    client.send(get("/a%20b?x=1&y", "X-Test: hi\r\n"));
    const std::string answer = client.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\nGET /a b [x=1&y] hi 0"));
    client.send(post("/p", "12345"));
    EXPECT_THAT(client.read_answer(), HasSubstr("POST /p [] "));
  }
  EXPECT_EQ(served.server().connections(), 1);
}

TEST(HttpServer, TakesARequestInAnyPieces) {
  HttpLimits limits = short_limits();
  limits.header_time = limits.body_time = 20s;
  Served served(limits);
  SocketClient client(served.port());
  for (const char c : post("/p", "1234567890")) {
    client.send({&c, 1});
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_THAT(client.read_answer(), HasSubstr("POST /p [] "));
  const std::string chunked = "POST /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& body : {std::string("0\r\n\r\n"), std::string("2\r\nab\r\n0\r\n\r\n")}) {
    for (const char c : chunked + body) {
      client.send({&c, 1});
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_THAT(client.read_answer(), HasSubstr("POST /e [] "));
  }
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n3;x=y\r\n");
  std::this_thread::sleep_for(5ms);
  client.send("678\r\n0\r\nTrailer: 1\r\n\r\n");
  EXPECT_THAT(client.read_answer(), HasSubstr("POST /c []  8"));
}

TEST(HttpServer, AnswersRequestsThatCameTogetherOneBehindTheOther) {
  Served served;
  SocketClient client(served.port());
  client.send(get("/1") + post("/2", "abc") + get("/3"));
  EXPECT_THAT(client.read_answer(), HasSubstr("GET /1"));
  EXPECT_THAT(client.read_answer(), HasSubstr("POST /2 []  3"));
  EXPECT_THAT(client.read_answer(), HasSubstr("GET /3"));
}

TEST(HttpServer, HeadHasNoBody) {
  Served served;
  SocketClient client(served.port());
  client.send("HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n" + get("/g"));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: "));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200 OK"));
}

TEST(HttpServer, TellsAClientThatWaitsToGoOn) {
  Served served;
  SocketClient client(served.port());
  client.send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_THAT(client.read_answer(), HasSubstr("POST /p []  3"));
}

struct BadRequest {
  const char* name;
  std::string request;
  int status;
  const char* message;
};

class HttpServerRefuses : public ::testing::TestWithParam<BadRequest> {};

// The status, that the connection ends, and that nothing behind it is taken for a request.
TEST_P(HttpServerRefuses, AndCloses) {
  Served served;
  SocketClient client(served.port());
  client.send(GetParam().request + get("/smuggled"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + std::to_string(GetParam().status) + " "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr(GetParam().message));
  EXPECT_THAT(answer, Not(HasSubstr("smuggled")));
}

const std::string kHost = "Host: x\r\n";
INSTANTIATE_TEST_SUITE_P(
    Requests, HttpServerRefuses,
    ::testing::Values(
        BadRequest{"Noise", "\x16\x03\x01\x02", 400, "no HTTP request"},
        BadRequest{"BothLengths",
                   "POST / HTTP/1.1\r\n" + kHost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                   400, "Content-Length"},
        BadRequest{"BothLengthsTurned",
                   "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
                   400, "Content-Length"},
        BadRequest{"TwoLengths", "POST / HTTP/1.1\r\n" + kHost + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 400,
                   "Content-Length"},
        BadRequest{"TwoEqualLengths", "POST / HTTP/1.1\r\n" + kHost + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
                   400, "several Content-Length"},
        BadRequest{"NegativeLength", "POST / HTTP/1.1\r\n" + kHost + "Content-Length: -5\r\n\r\n", 400,
                   "Content-Length"},
        BadRequest{"UnknownEncoding",
                   "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400,
                   "other than chunked"},
        BadRequest{"NearlyChunked", "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400,
                   "other than chunked"},
        BadRequest{"OldChunked", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "HTTP/1.0"},
        BadRequest{"NegativeChunk",
                   "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n", 400,
                   "no HTTP request"},
        BadRequest{"BareLineFeeds", "GET / HTTP/1.1\nHost: x\n\n", 400, "HTTP/1.1"},
        BadRequest{"SpaceBeforeColon", "GET / HTTP/1.1\r\n" + kHost + "X-Test : 1\r\n\r\n", 400, "no HTTP request"},
        BadRequest{"NoHost", "GET / HTTP/1.1\r\n\r\n", 400, "0 Host headers"},
        BadRequest{"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "2 Host headers"},
        BadRequest{"NoLength", "POST / HTTP/1.1\r\n" + kHost + "\r\n", 411, "no Content-Length"},
        BadRequest{"BadEscape", "GET /%zz HTTP/1.1\r\n" + kHost + "\r\n", 400, "no path"},
        BadRequest{"NoPath", "GET x HTTP/1.1\r\n" + kHost + "\r\n", 400, "no path"},
        BadRequest{"OtherVersion", "GET / HTTP/3.0\r\n" + kHost + "\r\n", 400, "HTTP/1.1"},
        BadRequest{"LongHead", "GET / HTTP/1.1\r\n" + kHost + "X: " + std::string(5000, 'x') + "\r\n\r\n", 431,
                   "4096 bytes"},
        BadRequest{"LongTarget", "GET /" + std::string(5000, 'x') + " HTTP/1.1\r\n" + kHost + "\r\n", 431,
                   "4096 bytes"},
        BadRequest{"LongBody", "POST / HTTP/1.1\r\n" + kHost + "Content-Length: 100001\r\n\r\n", 413, "100000 bytes"},
        BadRequest{"LongBodySent",
                   "POST / HTTP/1.1\r\n" + kHost + "Content-Length: 900000\r\n\r\n" + std::string(900000, 'x'), 413,
                   "100000 bytes"},
        BadRequest{
            "LongChunks",
            "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + std::string(0x20000, 'x'),
            413, "100000 bytes"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(HttpServer, GivesUpSlowHeadsAndBodies) {
  Served served;
  SocketClient head(served.port()), body(served.port()), silent(served.port());
  head.send("GET / HTTP/1.1\r\nHo");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345");
  // Drops do not make it longer.
  std::thread drops([&] {
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(100ms);
      body.send("6");
    }
  });
  EXPECT_THAT(head.read_all(), StartsWith("HTTP/1.1 408 Request Timeout"));
  EXPECT_THAT(body.read_all(), StartsWith("HTTP/1.1 408 Request Timeout"));
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.is_closed_by_server());
  drops.join();
}

TEST(HttpServer, ClosesAnIdleConnection) {
  Served served;
  SocketClient client(served.port());
  client.send(get("/"));
  client.read_answer();
  EXPECT_EQ(client.read_all(5s), "");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, SeesAtOnceThatAClientHasGone) {
  for (const bool is_reset : {false, true})
    for (const char* path : {"/wait", "/stream"}) {
      Served served;
      SocketClient client(served.port());
      client.send(get(path));
      const auto exchange = served.kept();
      const auto start = std::chrono::steady_clock::now();
      is_reset ? client.reset() : client.close();
      EXPECT_TRUE(served.saw_gone(2s)) << path;
      EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
      served.on_thread([&] {
        exchange->write("for nobody");
        exchange->end();
      });
      EXPECT_EQ(served.gone(), 1);
      EXPECT_EQ(served.server().connections(), 0);
    }
}

TEST(HttpServer, StreamsInChunks) {
  Served served;
  SocketClient client(served.port());
  client.send(get("/stream"));
  const auto exchange = served.kept();
  const std::string head = client.read_until("first\n\r\n");
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\n"));
  served.on_thread([&] {
    exchange->write("one");
    exchange->write("");
    exchange->write("two");
  });
  EXPECT_EQ(client.read_until("two\r\n"), "3\r\none\r\n3\r\ntwo\r\n");
  served.on_thread([&] { exchange->end(); });
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  client.send(get("/next"));
  EXPECT_THAT(client.read_answer(), HasSubstr("GET /next"));
  EXPECT_EQ(served.gone(), 0);
}

TEST(HttpServer, AnOldClientGetsAStreamUntilTheConnectionEnds) {
  Served served;
  SocketClient client(served.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto exchange = served.kept();
  served.on_thread([&] {
    exchange->write("second\n");
    exchange->end();
  });
  const std::string answer = client.read_all();
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nfirst\nsecond\n"));
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
}

TEST(HttpServer, ASlowClientIsGivenUpAndHoldsUpNobody) {
  HttpLimits limits = short_limits();
  limits.pending_bytes = 100'000;
  limits.write_time = 20s;
  Served served(limits);
  SocketClient slow(served.port(), 4096), other(served.port());
  slow.send(get("/stream"));
  const auto exchange = served.kept();
  const std::string part(10'000, 'x');
  for (int i = 0; i < 2000 && served.gone() == 0; ++i) {
    served.on_thread([&] { exchange->write(part); });
    if (i % 100) continue;
    other.send(get("/other"));
    EXPECT_THAT(other.read_answer(), HasSubstr("GET /other"));
  }
  EXPECT_TRUE(served.saw_gone(2s));
}

TEST(HttpServer, AClientThatTakesNothingForLongIsGivenUp) {
  Served served;
  SocketClient client(served.port(), 4096);
  client.send(get("/stream"));
  const auto exchange = served.kept();
  served.on_thread([&] { exchange->write(std::string(3'900'000, 'x')); });
  EXPECT_TRUE(served.saw_gone(3s));
}

TEST(HttpServer, HasALimitOfConnections) {
  HttpLimits limits = short_limits();
  limits.connections = 2;
  limits.header_time = 20s;
  Served served(limits);
  SocketClient one(served.port()), two(served.port());
  one.send(get("/1"));
  two.send(get("/2"));
  one.read_answer(), two.read_answer();
  SocketClient three(served.port());
  EXPECT_THAT(three.read_all(), StartsWith("HTTP/1.1 503"));
  one.close();
  for (int i = 0; i < 1000 && served.server().connections() > 1; ++i) std::this_thread::sleep_for(1ms);
  SocketClient four(served.port());
  four.send(get("/4"));
  EXPECT_THAT(four.read_answer(), HasSubstr("GET /4"));
}

// Silent ones, half a head, half a body, and some that have their answer: who asks beside them is answered, and nothing is left of them.
TEST(HttpServer, AThousandConnectionsThatWaitHoldUpNobody) {
  constexpr int kConnections = 1000, kRounds = 4;
  if (open_files_raise(2 * kConnections + 200) < 2 * kConnections + 200) GTEST_SKIP() << "[SKIP] ulimit -n is too low";
  HttpLimits limits = short_limits();
  limits.connections = kConnections + 1;
  limits.header_time = limits.body_time = limits.idle_time = 60s;
  Served served(limits);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto resident_pages = [] {
    int64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident;
  };
  const auto wait_for = [&](int connections) {
    for (int i = 0; i < 10000 && served.server().connections() != connections; ++i) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(served.server().connections(), connections);
  };
  const auto files = open_files();
  [[maybe_unused]] int64_t pages = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::deque<SocketClient> waiting;
    for (int i = 0; i < kConnections; ++i) {
      SocketClient& one = waiting.emplace_back(served.port());
      if (i % 4 == 1) one.send("GET / HTTP/1.1\r\nHo");
      if (i % 4 == 2) one.send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n12345");
      if (i % 4 == 3) one.send(get("/3"));
    }
    wait_for(kConnections);
    SocketClient other(served.port());
    for (int i = 0; i < 100; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      other.send(get("/other"));
      EXPECT_THAT(other.read_answer(), HasSubstr("GET /other"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    }
    other.close();
    for (size_t i = 0; i < waiting.size(); ++i) i % 3 == 0 ? waiting[i].reset() : waiting[i].close();
    wait_for(0);
    if (round == 0) pages = resident_pages();
  }
  EXPECT_EQ(open_files(), files);
#ifndef MEGALITH_SANITIZE  // a sanitizer keeps what was freed
  EXPECT_LT(resident_pages() - pages, (4 << 20) / ::sysconf(_SC_PAGESIZE));
#endif
}

TEST(HttpServer, HasALimitForAllBodiesTogether) {
  HttpLimits limits = short_limits();
  limits.all_body_bytes = 150'000;
  limits.body_time = 20s;
  Served served(limits);
  SocketClient first(served.port()), second(served.port());
  first.send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n1");
  for (int i = 0; i < 1000 && served.server().connections() < 2; ++i) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  second.send(post("/q", std::string(60'000, 'x')));
  EXPECT_THAT(second.read_all(), StartsWith("HTTP/1.1 503"));
  first.send(std::string(99'999, 'x'));
  EXPECT_THAT(first.read_answer(), HasSubstr("POST /p []  100000"));
  SocketClient third(served.port());  // what was taken is given back
  third.send(post("/r", std::string(100'000, 'x')));
  EXPECT_THAT(third.read_answer(), HasSubstr("POST /r []  100000"));
}

TEST(HttpServer, SendsNoMoreThanAClientAsksAhead) {
  Served served;
  SocketClient client(served.port());
  client.send(get("/wait"));
  served.kept();
  for (int i = 0; i < 100; ++i) client.send(get("/" + std::string(1000, 'x')));
  EXPECT_TRUE(served.saw_gone(2s));
}

TEST(HttpServer, StopsWhenTheLastAnswerHasEnded) {
  Served served;
  SocketClient idle(served.port()), busy(served.port());
  idle.send(get("/"));
  idle.read_answer();
  busy.send(get("/stream"));
  const auto exchange = served.kept();
  std::atomic<bool> has_stopped = false;
  std::thread stop([&] {
    served.server().stop(20s);
    has_stopped = true;
  });
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_FALSE(has_stopped);
  served.server().post([&] {
    exchange->write("last");
    exchange->end();
  });
  EXPECT_THAT(busy.read_until("0\r\n\r\n"), HasSubstr("last"));
  busy.close();
  stop.join();
}

TEST(HttpServer, StopsForAClientThatNeverEnds) {
  Served served;
  SocketClient client(served.port());
  client.send(get("/stream"));
  const auto exchange = served.kept();
  const auto start = std::chrono::steady_clock::now();
  served.server().stop(200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_THAT(client.read_all(), HasSubstr("first"));
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpServer, SaysWhyItCannotListen) {
  Served served;
  try {
    HttpServer({.port = served.port()}, [](auto) {});
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(std::string(error.what()), "cannot listen on 127.0.0.1 port " + std::to_string(served.port()) +
                                             ": Address already in use; take another --port");
  }
  EXPECT_THROW(HttpServer({.host = "no.such.name.invalid"}, [](auto) {}), SystemError);
  EXPECT_TRUE(served.server().is_loopback());
  EXPECT_EQ(served.server().address(), "127.0.0.1");
}

}  // namespace
}  // namespace megalith::serve
