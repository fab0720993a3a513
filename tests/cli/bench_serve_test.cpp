// megalith bench serve against `megalith serve`, and against servers that do what they should not.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "cli/command_run.h"
#include "cli/scripted_server.h"
#include "cli/serve_run.h"

namespace megalith::test {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Turn = ScriptedServer::Turn;

CommandResult bench_serve(const std::string& port, std::vector<std::string> more, const CommandInput& input = {}) {
  std::vector<std::string> words = {"bench", "serve", "--port", port, "--num-warmups", "0", "--input-len", "9"};
  words.insert(words.end(), more.begin(), more.end());
  return megalith_command(words, input);
}

// The only row.
Json row_of(const std::string& port, std::vector<std::string> more, int code = 0) {
  more.insert(more.end(), {"-o", "json"});
  const CommandResult result = bench_serve(port, more);
  EXPECT_EQ(result.code, code) << result.err;
  const Json rows = Json::parse(result.out);
  EXPECT_EQ(rows.size(), 1u);
  return rows.at(0);
}

void five_tokens(Turn& turn) {
  turn.begin();
  for (int count = 1; count <= 5; ++count) turn.token(count, count == 5 ? "\"length\"" : "null");
  turn.end();
}

// 1, 3 and 1 tokens in three events. With a single request each figure follows from three times.
TEST(BenchServe, CountsTheTokensOfEachEvent) {
  ScriptedServer server([](Turn& turn) {
    turn.pause(30);
    turn.begin();
    turn.event(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]})");
    turn.token(1);
    turn.pause(20);
    turn.token(4);
    turn.pause(20);
    turn.token(5);
    turn.event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":{"completion_tokens":5}})");
    turn.event(
        R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}})");
    turn.end();
  });
  const Json row = row_of(server.port(), {"--num-prompts", "1", "--output-len", "5"});
  EXPECT_EQ(row.at("completed"), 1);
  EXPECT_EQ(row.at("failed"), 0);
  EXPECT_EQ(row.at("model_id"), "scripted");
  EXPECT_EQ(row.at("total_input_tokens"), 9);
  EXPECT_EQ(row.at("cached_input_tokens"), 8);
  EXPECT_THAT(row.at("notes").dump(), HasSubstr("8 of 9 prompt tokens were in the server's prefix cache"));
  EXPECT_EQ(row.at("total_output_tokens"), 5);
  EXPECT_EQ(row.at("answers_counted_by_event"), 1);
  EXPECT_NEAR(row.at("tokens_per_event").get<double>(), 5.0 / 3, 1e-3);
  const double ttft = row.at("median_ttft_ms"), e2el = row.at("median_e2el_ms"), seconds = row.at("duration");
  EXPECT_GE(ttft, 30);
  EXPECT_GE(e2el, 70);
  EXPECT_NEAR(row.at("mean_itl_ms").get<double>(), (e2el - ttft) / 2, 1e-3);
  EXPECT_NEAR(row.at("median_tpot_ms").get<double>(), (e2el - ttft) / 4, 1e-3);
  EXPECT_GE(seconds, e2el / 1e3);
  EXPECT_LT(seconds, e2el / 1e3 + 0.5);
  EXPECT_NEAR(row.at("output_throughput").get<double>() * seconds, 5, 1e-2);
  EXPECT_NEAR(row.at("total_token_throughput").get<double>() * seconds, 14, 1e-2);
  EXPECT_NEAR(row.at("request_throughput").get<double>() * seconds, 1, 1e-2);
  EXPECT_THAT(row.at("notes").dump(), HasSubstr("an event holds 1.67 tokens on average"));
}

// One byte at a time, with other ends of lines, comments, and a body that ends with the connection: no other figures.
TEST(BenchServe, ReadsStreamsHoweverTheyAreCut) {
  ScriptedServer server([](Turn& turn) {
    const std::string event = R"({"choices":[{"text":" x","finish_reason":null}]})";
    std::string bytes = ": hello\r\ndata: " + event + "\r\n\r\n";
    for (int i = 0; i < 3; ++i) bytes += "event: x\ndata:" + event + "\r\r";
    bytes += "data: {\"choices\":[],\ndata: \"usage\":{\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";
    turn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
    if (turn.number % 2 == 0) {
      turn.send("\r\n");
      for (const char byte : bytes) turn.send({&byte, 1});
      turn.close();
    } else {
      turn.send("Transfer-Encoding: chunked\r\n\r\n");
      for (const char byte : bytes)
        for (const char sent : std::string("1\r\n") + byte + "\r\n") turn.send({&sent, 1});
      turn.send("0\r\n\r\n");
    }
  });
  const Json row = row_of(server.port(), {"--num-prompts", "4", "--max-concurrency", "2"});
  EXPECT_EQ(row.at("completed"), 4) << row.dump(1);
  EXPECT_EQ(row.at("total_output_tokens"), 16);
  EXPECT_EQ(row.at("answers_counted_by_server"), 4);
  EXPECT_EQ(row.at("answers_counted_by_event"), 0);
  EXPECT_EQ(row.at("tokens_per_event"), 1);
}

TEST(BenchServe, SaysWhereNobodyCountsTokens) {
  ScriptedServer server([](Turn& turn) {
    turn.begin();
    for (int i = 0; i < 3; ++i) turn.token();
    turn.end();
  });
  const Json row = row_of(server.port(), {"--num-prompts", "2", "--output-len", "3"});
  EXPECT_EQ(row.at("total_output_tokens"), 6);
  EXPECT_EQ(row.at("total_input_tokens"), 18);  // as they were sent
  EXPECT_EQ(row.at("answers_counted_by_server"), 0);
  EXPECT_THAT(row.at("notes").dump(), HasSubstr("of 2 of 2 answers the server did not count the tokens"));
}

TEST(BenchServe, CountsFailuresByTheirKind) {
  const auto script = [](Turn& turn) {
    constexpr const char* kStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    switch (turn.number) {
      case 0:
      case 1:
        return turn.answer("429 Too Many Requests", "Retry-After: 7\r\nContent-Type: application/json\r\n",
                           R"({"error":{"message":"the queue is full","type":"rate_limit_error"}})");
      case 2: return turn.answer("500 Internal Server Error", "", "no \x1b[31mjson");
      case 3: turn.begin(), turn.token(1); return turn.close();
      case 4: return turn.close();
      case 5: turn.begin(), turn.token(1); return turn.pause(1500);  // the client has given up by then
      case 6: turn.begin(), turn.token(1); return turn.event(R"({"error":{"message":"the kernel failed"}})");
      case 7: turn.begin(); return turn.event("{\"choices\": [");
      case 8: return turn.answer("200 OK", "Content-Type: application/json\r\n", "{}");
      case 9: turn.send("SSH-2.0-OpenSSH_9.2\r\n"); return turn.close();
      case 10: turn.send(kStream), turn.send("data: " + std::string(2 << 20, 'x')); return turn.close();
      case 11: turn.begin(); return turn.end();
      case 12: turn.send(kStream), turn.send("data: {\"choices\":[{\"text\":\"x\"}]}\n\n"); return turn.close();
      default: return five_tokens(turn);
    }
  };
  ScriptedServer server(script);
  const Json row =
      row_of(server.port(), {"--num-prompts", "15", "--max-concurrency", "1", "--timeout", "1", "--output-len", "5"});
  EXPECT_EQ(row.at("completed"), 2);
  EXPECT_EQ(row.at("failed"), 13);
  EXPECT_EQ(row.at("total_output_tokens"), 10);  // only of answers that came to their end
  std::map<std::string, int> counts;
  std::map<std::string, std::string> examples;
  for (const Json& failure : row.at("failures")) {
    counts[failure.at("kind")] = failure.at("count");
    examples[failure.at("kind")] = failure.at("example");
    EXPECT_EQ(failure.at("retry_after").is_null(), failure.at("kind") != "status 429");
  }
  const std::map<std::string, int> wanted = {
      {"status 429", 2}, {"status 500", 1}, {"disconnected", 2}, {"timeout", 1},   {"error event", 1}, {"bad event", 1},
      {"no stream", 1},  {"bad http", 1},   {"too large", 1},    {"no tokens", 1}, {"cut short", 1}};
  EXPECT_EQ(counts, wanted);
  EXPECT_EQ(examples["status 429"], "the queue is full");
  EXPECT_EQ(examples["error event"], "the kernel failed");
  EXPECT_THAT(examples["bad event"], HasSubstr("the event"));
  EXPECT_THAT(examples["timeout"], HasSubstr("had not ended after 1 s"));

  ScriptedServer again(script);
  const CommandResult table = bench_serve(
      again.port(), {"--num-prompts", "15", "--max-concurrency", "1", "--timeout", "1", "--output-len", "5"});
  EXPECT_THAT(table.out, ContainsRegex("\\| 1 at a time \\| +2 \\| +13 \\|"));
  EXPECT_THAT(table.out, HasSubstr("\nfailed, 1 at a time: 2 x status 429 (Retry-After: 7): the queue is full\n"));
  EXPECT_THAT(table.out, AllOf(HasSubstr("1 x status 500: no \\x1b[31mjson\n"), Not(HasSubstr("\x1b"))));
}

TEST(BenchServe, NothingThatCameThroughIsAnError) {
  ScriptedServer server([](Turn& turn) { turn.answer("404 Not Found", "", "{\"error\":\"no such model\"}"); });
  const Json row = row_of(server.port(), {"--num-prompts", "3"}, 1);
  EXPECT_EQ(row.at("failed"), 3);
  EXPECT_TRUE(row.at("median_ttft_ms").is_null());
  EXPECT_EQ(row.at("output_throughput"), 0);
  const CommandResult warm = bench_serve(server.port(), {"--num-warmups", "2"});
  EXPECT_EQ(warm.code, 1);
  EXPECT_THAT(warm.err, StartsWith("megalith: error: a request to warm up failed: status 404: no such model"));
}

TEST(BenchServe, KeepsToTheConcurrencyAndToItsConnections) {
  std::atomic<int> at_work{0}, most{0};
  ScriptedServer server([&](Turn& turn) {
    const int now = ++at_work;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {}
    turn.begin();
    turn.token(1);
    turn.pause(20);
    --at_work;
    turn.token(2, "\"length\"");
    turn.end();
  });
  const CommandResult result = bench_serve(
      server.port(), {"--num-prompts", "12", "--max-concurrency", "1,4", "--output-len", "2", "-o", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json rows = Json::parse(result.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("max_concurrency"), 1);
  EXPECT_EQ(rows[0].at("max_concurrent_requests"), 1);
  EXPECT_GE(rows[0].at("duration").get<double>(), 12 * 0.020);
  EXPECT_EQ(rows[1].at("max_concurrent_requests"), 4);
  EXPECT_EQ(most, 4);
  EXPECT_EQ(rows[1].at("completed"), 12);
  EXPECT_GE(rows[1].at("duration").get<double>(), 3 * 0.020);
  EXPECT_LE(server.num_connections(), 4 + 1);  // each kept for the next request
}

// As a server does that has waited for a request for too long.
TEST(BenchServe, SendsAgainWhereAConnectionAtRestWasClosed) {
  ScriptedServer server([](Turn& turn) {
    five_tokens(turn);
    turn.close();
  });
  const Json row = row_of(server.port(), {"--num-prompts", "8", "--max-concurrency", "1", "--output-len", "5"});
  EXPECT_EQ(row.at("completed"), 8) << row.dump(1);
  EXPECT_EQ(server.num_requests(), 8);
}

TEST(BenchServe, KeepsToTheRate) {
  ScriptedServer server(five_tokens);
  const Json row = row_of(server.port(), {"--num-prompts", "40", "--request-rate", "200", "--output-len", "5"});
  EXPECT_EQ(row.at("completed"), 40);
  EXPECT_EQ(row.at("request_rate"), 200);
  EXPECT_TRUE(row.at("max_concurrency").is_null());
  // All are due within 40 / 200 s, the first one a little behind the beginning.
  EXPECT_GE(row.at("duration").get<double>(), 0.1);
  EXPECT_GE(row.at("client").at("send_late_max_ms").get<double>(),
            row.at("client").at("send_late_p50_ms").get<double>());
  EXPECT_GT(row.at("client").at("wake_late_max_ms").get<double>(), 0);
  EXPECT_GT(row.at("client").at("core_share").get<double>(), 0);
}

TEST(BenchServe, CountsGoodRequests) {
  ScriptedServer server([](Turn& turn) {
    if (turn.number % 2) turn.pause(900);
    five_tokens(turn);
  });
  const std::vector<std::string> words = {"--num-prompts", "6",        "--output-len", "5", "--max-concurrency", "6",
                                          "--goodput",     "ttft:800", "e2el:10000"};
  const Json row = row_of(server.port(), words);
  EXPECT_EQ(row.at("completed"), 6);
  EXPECT_EQ(row.at("good_requests"), 3);
  EXPECT_NEAR(row.at("request_goodput").get<double>() * row.at("duration").get<double>(), 3, 1e-2);
  EXPECT_THAT(bench_serve(server.port(), words).out, ContainsRegex("\\| good \\| +good/s \\|.*\\| +3 \\|"));
  EXPECT_TRUE(row_of(server.port(), {"--num-prompts", "1", "--output-len", "5"}).at("good_requests").is_null());
}

TEST(BenchServe, TheTableHasTheColumnsThatWereAskedFor) {
  const TemporaryFolder folder;
  ScriptedServer server(five_tokens);
  const CommandResult result =
      bench_serve(server.port(), {"--num-prompts", "3", "--output-len", "5", "--percentile-metrics", "e2el,ttft",
                                  "--metric-percentiles", "25,99.9", "--save-result", folder / "rows.json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              ContainsRegex("^\\| load +\\| requests \\| failed \\| +req/s \\| out tok/s \\| total tok/s \\|"));
  EXPECT_THAT(result.out, ContainsRegex("\\| e2el ms p25 \\| +p99.9 \\| ttft ms p25 \\| +p99.9 \\|\n"));
  EXPECT_THAT(result.out, ContainsRegex("\n\\| all at once \\| +3 \\| +0 \\|"));
  EXPECT_THAT(result.out, HasSubstr("\nscripted at http://127.0.0.1:" + server.port() +
                                    "/v1/completions: random prompts of 9 tokens, 5 made\n"));
  EXPECT_THAT(
      result.out,
      ContainsRegex("\nclient, all at once: woken (in too short a time to say|[0-9.]+ ms late \\(p99; at most "
                    "[0-9.]+\\)), requests "
                    "sent [0-9.]+ ms late \\(p99; at most [0-9.]+\\), [0-9.]+ % of a core, [1-3] at a time at most\n"));
  const Json rows = Json::parse(read_text(folder / "rows.json"));
  EXPECT_TRUE(rows.at(0).contains("p99.9_itl_ms"));
  EXPECT_LE(rows.at(0).at("p25_e2el_ms"), rows.at(0).at("p99.9_e2el_ms"));
}

TEST(BenchServe, SendsWhatWasAskedFor) {
  ScriptedServer server(five_tokens);
  const std::vector<std::string> words = {"--num-prompts",
                                          "4",
                                          "--max-concurrency",
                                          "1",
                                          "--output-len",
                                          "20",
                                          "--prefix-len",
                                          "6",
                                          "--seed",
                                          "3",
                                          "--ignore-eos",
                                          "--random-range-ratio",
                                          "0.5",
                                          "--extra-body",
                                          R"({"temperature": 0.5, "top_k": 4})"};
  EXPECT_EQ(row_of(server.port(), words).at("answers_shorter").get<int>() > 0, true);
  row_of(server.port(), words);
  const std::vector<std::string> bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 8u);
  std::vector<Json> prefixes;
  for (size_t i = 0; i < 8; ++i) {
    const Json body = Json::parse(bodies[i]);
    EXPECT_EQ(bodies[i], bodies[i % 4]);  // the same seed
    EXPECT_EQ(body.at("model"), "scripted");
    EXPECT_EQ(body.at("stream"), true);
    EXPECT_EQ(body.at("ignore_eos"), true);
    EXPECT_EQ(body.at("temperature"), 0.5);
    EXPECT_EQ(body.at("top_k"), 4);
    EXPECT_EQ(body.at("stream_options").at("continuous_usage_stats"), true);
    const int tokens = body.at("max_tokens");
    EXPECT_TRUE(tokens >= 10 && tokens <= 30) << tokens;
    const Json& prompt = body.at("prompt");
    EXPECT_TRUE(prompt.size() >= 6 + 4 && prompt.size() <= 6 + 14) << prompt.size();
    for (const Json& id : prompt) EXPECT_TRUE(id >= 10 && id < 500);  // as large as the server's vocabulary is
    prefixes.emplace_back(Json(prompt.begin(), prompt.begin() + 6));
    EXPECT_EQ(prefixes[i], prefixes[0]);
  }
  EXPECT_NE(bodies[0], bodies[1]);
  row_of(server.port(), {"--num-prompts", "1", "--seed", "4", "--prefix-len", "6"});
  EXPECT_NE(Json::parse(server.bodies()[8]).at("prompt"), Json::parse(bodies[0]).at("prompt"));
}

TEST(BenchServe, WaitsForAServerThatLoadsItsModel) {
  ScriptedServer server(five_tokens);
  server.load_for(2);
  EXPECT_EQ(bench_serve(server.port(), {"--num-prompts", "1"}).code, 0);
  server.load_for(1 << 20);
  const CommandResult result = bench_serve(server.port(), {"--num-prompts", "1", "--ready-timeout", "0"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("answers /v1/models with status 503"));
  EXPECT_EQ(server.num_requests(), 1);
}

TEST(BenchServe, RowsHaveDifferentPrompts) {
  ScriptedServer server(five_tokens);
  EXPECT_EQ(bench_serve(server.port(), {"--num-prompts", "2", "--num-warmups", "1", "--max-concurrency", "1,2"}).code,
            0);
  std::vector<std::string> bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 6u);
  std::ranges::sort(bodies);
  EXPECT_EQ(std::ranges::adjacent_find(bodies), bodies.end());
}

TEST(BenchServe, TakesPromptsFromAFile) {
  const TemporaryFolder folder;
  write_text(folder / "prompts",
             "{\"prompt\": \"Once \\\"upon\\\"\"}\n\n{\"prompt\": [1, 2, 3], \"output_tokens\": 7}\n");
  ScriptedServer server(five_tokens);
  const CommandResult result = bench_serve(
      server.port(), {"--num-prompts", "3", "--max-concurrency", "1", "--dataset-path", folder / "prompts"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has 2 prompts, so some were sent again"));
  const std::vector<std::string> bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 3u);
  EXPECT_EQ(Json::parse(bodies[0]).at("prompt"), "Once \"upon\"");
  EXPECT_EQ(Json::parse(bodies[0]).at("max_tokens"), 128);
  EXPECT_EQ(Json::parse(bodies[1]).at("prompt"), Json({1, 2, 3}));
  EXPECT_EQ(Json::parse(bodies[1]).at("max_tokens"), 7);
  EXPECT_EQ(bodies[2], bodies[0]);
  const CommandResult chat =
      bench_serve(server.port(), {"--endpoint", "/v1/chat/completions", "--dataset-path", folder / "prompts"});
  EXPECT_EQ(chat.code, 1);
  EXPECT_THAT(chat.err, HasSubstr("line 3 of " + (folder / "prompts") +
                                  ": \"prompt\" is a list, and a chat takes no token "
                                  "ids: want a string, or --endpoint /v1/completions\n"));
}

TEST(BenchServe, ChatsWithAKeyBehindAPrefix) {
  std::mutex mutex;
  std::string head;
  ScriptedServer server([&](Turn& turn) {
    {
      const std::lock_guard lock(mutex);
      head = turn.head;
    }
    turn.begin();
    turn.event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
    turn.event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})");
    turn.event(R"({"choices":[{"delta":{"content":"x"}}]})");
    turn.event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})");
    turn.send("0\r\n\r\n");
  });
  CommandInput input;
  input.environment["OPENAI_API_KEY"] = "secret";
  const CommandResult result = megalith_command(
      {"bench", "serve", "--base-url", "http://localhost:" + server.port() + "/a/v1/", "--endpoint",
       "/v1/chat/completions", "--num-prompts", "1", "--num-warmups", "0", "--input-len", "5", "-o", "json"},
      input);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at(0).at("total_output_tokens"), 2);
  EXPECT_THAT(head, StartsWith("POST /a/v1/chat/completions HTTP/1.1\r\nHost: localhost:" + server.port() + "\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nAuthorization: Bearer secret\r\n"));
  const Json body = Json::parse(server.bodies()[0]);
  const std::string content = body.at("messages").at(0).at("content");
  EXPECT_EQ(std::ranges::count(content, ' '), 4);
  EXPECT_EQ(body.at("max_completion_tokens"), 128);
  EXPECT_FALSE(body.contains("prompt"));
}

// What there is by then is told, and what was at work is no success.
TEST(BenchServe, CtrlCEndsItWithWhatThereIs) {
  ScriptedServer server([](Turn& turn) {
    if (turn.number < 2) return five_tokens(turn);
    turn.begin();
    turn.token(1);
    turn.pause(300);
  });
  CommandInput input;
  input.signal = SIGINT;
  input.kill_once = [&] { return server.num_requests() >= 3; };
  const CommandResult result =
      bench_serve(server.port(), {"--num-prompts", "100", "--max-concurrency", "1", "-o", "json"}, input);
  EXPECT_EQ(result.code, 130) << result.err;
  const Json row = Json::parse(result.out).at(0);
  EXPECT_EQ(row.at("interrupted"), true);
  EXPECT_EQ(row.at("completed"), 2);
  EXPECT_EQ(row.at("failures").at(0).at("kind"), "interrupted");
  EXPECT_LT(result.ms_after_signal, 5000);
}

TEST(BenchServe, SaysWhatItCannotDo) {
  const auto error = [](std::vector<std::string> more, int code) {
    more.insert(more.begin(), {"bench", "serve"});
    const CommandResult result = megalith_command(more);
    EXPECT_EQ(result.code, code) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(
      error({"--base-url", "https://api.example.com"}, 1),
      HasSubstr("https://api.example.com is https, and only plain http is spoken here: let a proxy on this machine"));
  EXPECT_THAT(error({"--base-url", "localhost:8000"}, 1), HasSubstr("does not begin with http://"));
  EXPECT_THAT(error({"--base-url", "http://localhost:0"}, 1), HasSubstr("has no port of 1 to 65535"));
  EXPECT_THAT(error({"--base-url", "http://u@localhost"}, 1), HasSubstr("has a character that has no place in it"));
  EXPECT_THAT(error({"--base-url", "http://localhost", "--port", "1"}, 2), HasSubstr("not both"));
  const std::string port = std::to_string(free_port());
  EXPECT_THAT(error({"--port", port}, 1),
              HasSubstr("no answer from http://127.0.0.1:" + port +
                        "/v1/models: cannot connect: Connection refused; is the server running"));
  EXPECT_THAT(error({"--request-rate", "0"}, 2), HasSubstr("--request-rate: \"0\" is not what it takes"));
  EXPECT_THAT(error({"--goodput", "itl:5"}, 2), HasSubstr("--goodput: \"itl:5\" is not what it takes, want ttft:MS"));
  EXPECT_THAT(error({"--goodput", "ttft"}, 2), HasSubstr("--goodput: \"ttft\" is not"));
  EXPECT_THAT(error({"--percentile-metrics", "ttft,x"}, 2), HasSubstr("\"x\" is none of ttft, tpot, itl, e2el"));
  EXPECT_THAT(error({"--metric-percentiles", "50,101"}, 2), HasSubstr("--metric-percentiles: \"101\""));
  EXPECT_THAT(error({"--max-concurrency", "1,0"}, 2), HasSubstr("--max-concurrency: \"0\""));
  EXPECT_THAT(error({"--extra-body", "[]"}, 1), HasSubstr("--extra-body is an array of 0, want a JSON object\n"));
  EXPECT_THAT(error({"--extra-body", R"({"stream": false})"}, 1), HasSubstr("times are measured on streams"));
  EXPECT_THAT(error({"--extra-body", R"({"n": 2})"}, 1), HasSubstr("\"n\" is 2, want"));
  EXPECT_THAT(error({"--extra-body", R"({"max_tokens": 2})"}, 1), HasSubstr("which has options of its own here"));
  EXPECT_THAT(error({"--api-key", "a b"}, 2), HasSubstr("has a space or a control character"));
  EXPECT_THAT(error({"--dataset-path", "/none"}, 1), HasSubstr("/none"));
  EXPECT_THAT(error({"--num-prompts", "10000000", "--input-len", "1000000"}, 1), HasSubstr("no answer from"));
}

// The tokens of a server of ours are those that were asked for, in rows that the server's own figures agree with.
TEST(BenchServe, MeasuresOurServer) {
  std::vector<Json> results;
  std::string table;
  const CommandResult server = serve({"-q"}, [&](int port) {
    const std::vector<std::string> load = {
        "--num-prompts", "6", "--output-len", "12", "--max-concurrency", "1,3", "--ignore-eos", "--num-warmups", "1"};
    for (const char* endpoint : {"/v1/completions", "/v1/chat/completions"}) {
      std::vector<std::string> words = load;
      words.insert(words.end(), {"--endpoint", endpoint, "-o", "json"});
      const CommandResult result = bench_serve(std::to_string(port), words);
      EXPECT_EQ(result.code, 0) << result.err;
      results.push_back(Json::parse(result.out));
    }
    table = answer_of(port, get("/metrics"));
  });
  EXPECT_EQ(server.code, 0) << server.err;
  ASSERT_EQ(results.size(), 2u);
  int64_t asked = 0;
  for (const Json& rows : results)
    for (const Json& row : rows) {
      EXPECT_EQ(row.at("model_id"), "storyteller");
      EXPECT_EQ(row.at("completed"), 6) << row.dump(1);
      EXPECT_EQ(row.at("total_output_tokens"), 72);
      EXPECT_EQ(row.at("answers_counted_by_event"), 6);
      EXPECT_EQ(row.at("answers_shorter"), 0);
      EXPECT_GE(row.at("tokens_per_event").get<double>(), 1);
      EXPECT_LT(row.at("median_ttft_ms"), row.at("median_e2el_ms"));
      EXPECT_LT(row.at("median_tpot_ms"), row.at("median_e2el_ms"));
      asked += 72 + 12;  // and the one that warmed up
    }
  for (const Json& row : results[0]) EXPECT_EQ(row.at("total_input_tokens"), 54);
  EXPECT_THAT(table,
              HasSubstr("vllm:generation_tokens_total{model_name=\"storyteller\"} " + std::to_string(asked) + "\n"));
}

}  // namespace
}  // namespace megalith::test
