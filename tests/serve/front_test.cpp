// The front between a client and an engine, both of which a test plays.
#include "megalith/serve/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/model/json.h"
#include "serve/fake_exchange.h"
#include "serve/fake_service.h"
#include "serve/storyteller.h"

namespace megalith::serve {
namespace {

using namespace std::chrono_literals;
using engine::RequestEnd;
using test::FakeExchange;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kSlots = 2;

class FrontTest : public ::testing::Test {
 protected:
  void start(FrontOptions options = {}, bool is_ready = true) {
    options.log = [this](const std::string& line) { log.push_back(line); };
    front =
        std::make_unique<Front>(std::move(options), [this](std::function<void()> work) { loop.post(std::move(work)); });
    if (is_ready) front->ready(model, service, kSlots);
  }

  std::shared_ptr<FakeExchange> ask(HttpRequest request) {
    if (request.header("host").empty()) request.headers.emplace_back("host", "localhost:8000");
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    front->handle(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> get(const std::string& path, HttpHeaders headers = {}) {
    const size_t question = std::min(path.find('?'), path.size());
    return ask({.method = "GET",
                .path = path.substr(0, question),
                .query = question < path.size() ? path.substr(question + 1) : "",
                .headers = std::move(headers)});
  }
  std::shared_ptr<FakeExchange> post(const std::string& path, const std::string& body, HttpHeaders headers = {}) {
    headers.emplace_back("content-type", "application/json");
    return ask({.method = "POST", .path = path, .headers = std::move(headers), .body = body});
  }
  /// What is answered without the engine.
  std::string answer(const std::string& path, const std::string& body) {
    const auto exchange = post(path, body);
    loop.run_until([&] { return exchange->has_ended; });
    return exchange->body;
  }
  /// Asked, and with the engine or answered.
  std::shared_ptr<FakeExchange> submit(const std::string& members = "", const std::string& path = "/v1/completions") {
    const size_t before = service.requests.size();
    auto exchange = post(path, R"({"prompt":[1,2])" + members + "}");
    loop.run_until([&] { return service.requests.size() > before || exchange->has_ended; });
    return exchange;
  }
  void emit(engine::RequestId id, const std::vector<int>& tokens, RequestEnd end = RequestEnd::none) {
    service.emit(id, tokens, end);
    loop.run();
  }
  std::string metrics() { return get("/metrics")->body; }

  std::vector<std::string> log;
  test::FakeLoop loop;
  test::FakeService service;
  ServedModel model = test::numbers();
  std::unique_ptr<Front> front;
};

TEST_F(FrontTest, AnswersACompletion) {
  start();
  const auto exchange = submit();
  ASSERT_THAT(service.requests, SizeIs(1));
  EXPECT_THAT(service.requests[0].prompt, ElementsAre(1, 2));
  EXPECT_FALSE(exchange->head);
  emit(1, {5, 6}, RequestEnd::length);
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_THAT(exchange->body, HasSubstr(R"("text":" 5 6")"));
  const std::string id = exchange->header("X-Request-Id");
  EXPECT_THAT(exchange->body, HasSubstr(R"("id":"cmpl-)" + id + "\""));
  EXPECT_THAT(service.aborted, IsEmpty());
}

TEST_F(FrontTest, StreamsACompletion) {
  start();
  const auto exchange = submit(R"(,"stream":true)");
  EXPECT_FALSE(exchange->head);  // an error could still have a status of its own
  emit(1, {5});
  EXPECT_EQ(exchange->head->content_type, "text/event-stream");
  EXPECT_THAT(exchange->parts, ElementsAre(HasSubstr(R"("text":" 5")")));
  emit(1, {6});
  EXPECT_THAT(exchange->parts.back(), HasSubstr(R"("text":" 6")"));
  emit(1, {}, RequestEnd::stop);
  EXPECT_THAT(exchange->body, EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(exchange->has_ended);
}

TEST_F(FrontTest, WorksWithAndWithoutTheVersion) {
  model = test::storyteller();
  start();
  engine::RequestId id = 0;
  for (const char* path : {"/v1/chat/completions", "/chat/completions"}) {
    const auto exchange = post(path, R"({"messages":[{"role":"user","content":"Once"}]})");
    loop.run_until([&] { return service.requests.size() > id; });
    emit(++id, {5}, RequestEnd::stop);
    EXPECT_THAT(exchange->body, HasSubstr("\"chat.completion\""));
  }
  EXPECT_EQ(get("/models")->status(), 200);
  EXPECT_EQ(get("/v1/models")->status(), 200);
}

TEST_F(FrontTest, AbortsWhatAClientNoLongerWants) {
  for (const char* stream : {"false", "true"}) {
    service.aborted.clear();
    start();
    const auto exchange = submit(std::string(R"(,"n":2,"stream":)") + stream);
    const engine::RequestId first = service.requests.size() - 1;
    emit(first, {5});
    exchange->go();
    loop.run();
    EXPECT_THAT(service.aborted, ElementsAre(first, first + 1));
    EXPECT_THAT(log.back(), HasSubstr("\"status\":499"));
    EXPECT_THAT(log.back(), HasSubstr("\"finish\":\"abort,abort\""));
    EXPECT_FALSE(exchange->has_ended);
    EXPECT_THAT(metrics(),
                HasSubstr("vllm:request_success_total{model_name=\"numbers\",finished_reason=\"abort\"} 2\n"));
    EXPECT_EQ(get("/load")->body, R"({"server_load":0})");
  }
}

TEST_F(FrontTest, AClientThatGoesBeforeItsPromptIsTokensIsNeverSubmitted) {
  start();
  const auto exchange = post("/v1/completions", R"({"prompt":[1]})");
  exchange->go();
  bool is_idle = false;
  front->drain([&] { is_idle = true; });
  loop.run_until([&] { return is_idle; });
  EXPECT_THAT(service.requests, IsEmpty());
}

TEST_F(FrontTest, AStopStringAbortsAtTheEngine) {
  start();
  const auto exchange = submit(R"(,"stop":" 6")");
  emit(1, {5, 6});
  EXPECT_THAT(service.aborted, ElementsAre(1U));
  EXPECT_THAT(exchange->body, HasSubstr(R"("text":" 5","logprobs":null,"finish_reason":"stop")"));
}

TEST_F(FrontTest, TurnsAwayWhatTheQueueDoesNotHold) {
  start({.generations = {.max_queue = 1}});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(submit()->head) << i;
  const auto refused = post("/v1/completions", R"({"prompt":[1]})");
  EXPECT_EQ(refused->status(), 429);  // before its body is looked at
  EXPECT_EQ(refused->header("Retry-After"), "1");
  EXPECT_THAT(refused->body, HasSubstr("rate_limit_error"));
  EXPECT_THAT(metrics(),
              HasSubstr("megalith:requests_refused_total{model_name=\"numbers\",reason=\"queue_full\"} 1\n"));
  emit(1, {5}, RequestEnd::stop);
  EXPECT_EQ(submit(R"(,"n":2)")->status(), 429);  // there is room for one
  EXPECT_FALSE(submit()->head);
}

TEST_F(FrontTest, AnAbortedSequenceKeepsItsPlaceUntilTheEngineIsDone) {
  service.aborts_at_once = false;
  start({.generations = {.max_queue = 0}});
  submit()->go();
  submit()->go();
  EXPECT_EQ(submit()->status(), 429);
  emit(1, {}, RequestEnd::aborted);
  EXPECT_FALSE(submit()->head);
}

TEST_F(FrontTest, SaysWhatTheEngineRefuses) {
  service.refuses = "the prompts take 9 KV pages, but there are 8 (--num-pages)";
  start();
  const auto exchange = submit();
  EXPECT_EQ(exchange->status(), 400);
  EXPECT_THAT(exchange->body, HasSubstr("there are 8 (--num-pages)"));
  EXPECT_EQ(get("/load")->body, R"({"server_load":0})");
}

TEST_F(FrontTest, AFailureIsAStatusBeforeTheFirstTokenAndAnEventAfterIt) {
  start();
  auto exchange = submit(R"(,"stream":true)");
  emit(1, {}, RequestEnd::failed);
  EXPECT_EQ(exchange->status(), 500);
  EXPECT_THAT(exchange->body, StartsWith("{\"error\":"));
  exchange = submit(R"(,"stream":true,"n":2)");
  emit(2, {5});
  emit(2, {}, RequestEnd::failed);
  EXPECT_THAT(exchange->body, HasSubstr("data: {\"error\":{\"message\":\"the model made values"));
  EXPECT_THAT(exchange->body, EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(service.aborted, ElementsAre(3U));  // the other one is for nobody
  exchange = submit();
  emit(4, {5}, RequestEnd::aborted);
  EXPECT_EQ(exchange->status(), 503);
}

TEST_F(FrontTest, DrainsBeforeItEnds) {
  start();
  const auto running = submit();
  bool is_idle = false;
  front->drain([&] { is_idle = true; });
  EXPECT_FALSE(is_idle);
  EXPECT_EQ(get("/health")->status(), 503);
  const auto refused = post("/v1/completions", R"({"prompt":[1]})");
  EXPECT_EQ(refused->status(), 503);
  EXPECT_EQ(refused->header("Retry-After"), "1");
  emit(1, {5}, RequestEnd::stop);
  EXPECT_EQ(running->status(), 200);
  EXPECT_TRUE(is_idle);
}

TEST_F(FrontTest, EndsWhatTakesTooLongToDrain) {
  start();
  const auto whole = submit(), stream = submit(R"(,"stream":true)");
  emit(2, {5});
  bool is_idle = false;
  front->drain([&] { is_idle = true; });
  front->abort_all();
  loop.run_until([&] { return is_idle; });
  EXPECT_EQ(whole->status(), 503);
  EXPECT_THAT(stream->body, HasSubstr("data: {\"error\":"));
  EXPECT_TRUE(stream->has_ended);
}

TEST_F(FrontTest, IsNotReadyBeforeThereIsAModel) {
  start({}, false);
  for (const char* path : {"/health", "/v1/models", "/v1/models/numbers"}) EXPECT_EQ(get(path)->status(), 503) << path;
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const auto exchange = post(path, "{}");
    EXPECT_EQ(exchange->status(), 503) << path;
    EXPECT_EQ(exchange->header("Retry-After"), "1");
  }
  EXPECT_EQ(get("/metrics")->status(), 200);
  EXPECT_EQ(get("/version")->body, "{\"version\":\"" MEGALITH_VERSION "\"}");
  front->ready(model, service, kSlots);
  EXPECT_EQ(get("/health")->body, R"({"status":"ok"})");
}

TEST_F(FrontTest, TellsAWaitingClientThatItGoesOn) {
  start({.generations = {.ping = 0ms}});
  const auto stream = submit(R"(,"stream":true)"), whole = submit();
  front->tick();
  EXPECT_EQ(stream->body, ":\n\n");
  EXPECT_EQ(stream->status(), 200);
  EXPECT_FALSE(whole->head);
  emit(1, {5}, RequestEnd::failed);
  EXPECT_THAT(stream->body, HasSubstr("data: {\"error\":"));
}

TEST_F(FrontTest, SpeaksOnlyJson) {
  start();
  const auto exchange = ask({.method = "POST", .path = "/v1/completions", .headers = {{"content-type", "text/plain"}}});
  EXPECT_EQ(exchange->status(), 415);
  EXPECT_THAT(exchange->body, HasSubstr("want application/json"));
  EXPECT_EQ(ask({.method = "POST", .path = "/v1/completions"})->status(), 415);
  const auto with_more = ask({.method = "POST",
                              .path = "/v1/completions",
                              .headers = {{"content-type", "Application/JSON; charset=utf-8"}},
                              .body = "["});
  loop.run_until([&] { return with_more->has_ended; });
  EXPECT_EQ(with_more->status(), 400);
}

TEST_F(FrontTest, KnowsItsPathsAndMethods) {
  start();
  EXPECT_EQ(get("/nothing")->status(), 404);
  const auto elsewhere = post("/v1/embeddings", "{}");
  EXPECT_EQ(elsewhere->status(), 501);
  EXPECT_EQ(elsewhere->header("X-Should-Retry"), "false");
  const auto wrong = get("/v1/chat/completions");
  EXPECT_EQ(wrong->status(), 405);
  EXPECT_EQ(wrong->header("Allow"), "POST");
  EXPECT_EQ(post("/health", "{}")->header("Allow"), "GET");
  EXPECT_EQ(ask({.method = "HEAD", .path = "/health"})->status(), 200);
  EXPECT_EQ(ask({.method = "OPTIONS", .path = "/v1/models"})->status(), 405);
}

TEST_F(FrontTest, ShowsAPageThatMayFetchNothingFromElsewhere) {
  start({.access = {.keys = {"k"}}});
  const auto page = get("/");
  EXPECT_EQ(page->status(), 200);
  EXPECT_EQ(page->head->content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page->header("Content-Security-Policy"), HasSubstr("connect-src 'self'"));
  EXPECT_THAT(page->body, StartsWith("<!doctype html>"));
  EXPECT_THAT(page->body, Not(HasSubstr("://")));
  EXPECT_THAT(page->body, Not(HasSubstr("innerHTML")));
}

TEST_F(FrontTest, ListsItsModels) {
  model = test::storyteller();
  start();
  const auto list = get("/v1/models");
  const JsonFile json = JsonFile::parse(list->body, "models");
  const auto data = json.root().at("data").elements();
  ASSERT_THAT(data, SizeIs(2));
  EXPECT_EQ(data[0].at("id").string(), "storyteller");
  EXPECT_EQ(data[1].at("id").string(), "tales");
  EXPECT_EQ(data[0].at("max_model_len").integer(), 256);
  EXPECT_EQ(get("/v1/models/tales")->status(), 200);
  EXPECT_EQ(get("/v1/models/gpt")->status(), 404);
}

TEST_F(FrontTest, TokenizesInBothDialects) {
  model = test::storyteller();
  start();
  const std::vector<int> tokens = test::storyteller_tokenizer().encode("Once upon", false);
  const std::string list = fmt::format("[{}]", fmt::join(tokens, ","));
  EXPECT_EQ(answer("/tokenize", R"({"content":"Once upon"})"),
            fmt::format(R"({{"tokens":{},"count":{},"max_model_len":256}})", list, tokens.size()));
  EXPECT_THAT(answer("/tokenize", R"({"prompt":"Once upon","add_special_tokens":false,"return_token_strs":true})"),
              HasSubstr(R"("token_strs":["Once"," upon"])"));
  EXPECT_THAT(answer("/tokenize", R"({"content":"\u9f9c","with_pieces":true})"), HasSubstr(R"("piece":[)"));
  EXPECT_THAT(answer("/tokenize", R"({"messages":[{"role":"user","content":"Once upon"}]})"), HasSubstr(list));
  EXPECT_EQ(answer("/detokenize", "{\"tokens\":" + list + "}"), R"({"prompt":"Once upon","content":"Once upon"})");
  EXPECT_THAT(answer("/detokenize", R"({"tokens":[4096]})"), HasSubstr("\\\"tokens[0]\\\" is 4096, want 0 to 4095"));
  EXPECT_THAT(answer("/tokenize", "{}"), HasSubstr("lacks"));
}

// Whoever sends a grammar that takes seconds to compile waits for it, and nobody else.
TEST_F(FrontTest, AHostileGrammarHoldsUpNobodyElse) {
  if (!grammar::has_grammars()) GTEST_SKIP() << "this build has no grammars";
  model = test::storyteller();
  grammar::GrammarCompiler grammars(test::storyteller_tokenizer(), 4096, {.processor_ms = 1000});
  model.grammars = &grammars;
  grammars.compile({grammar::GrammarKind::regex, "[0-9]+"});
  start();
  const auto ask_for = [&](const std::string& members) {
    return post("/v1/completions", R"({"prompt":"Once")" + members + "}");
  };
  std::string schema;
  for (int i = 0; i < 2000; ++i)
    schema += fmt::format(R"({}{{"type":"string","pattern":"^(a|b){{{}}}c+$"}})", i ? "," : "", i);
  const auto hostile = ask_for(R"(,"guided_json":{"anyOf":[)" + schema + "]}");
  const auto plain = ask_for("");
  const auto known = ask_for(R"(,"guided_regex":"[0-9]+")");
  loop.run_until([&] { return service.requests.size() == 2; });
  EXPECT_FALSE(hostile->has_ended);
  emit(1, {5}, RequestEnd::length);
  EXPECT_EQ(plain->status(), 200);
  EXPECT_FALSE(hostile->has_ended);
  loop.run_until([&] { return hostile->has_ended; });
  EXPECT_EQ(hostile->status(), 400);
  EXPECT_THAT(hostile->body, HasSubstr("takes too much"));
  EXPECT_THAT(service.requests, SizeIs(2));
}

TEST_F(FrontTest, LaysOutAConversation) {
  model = test::storyteller();
  start();
  const std::string chat = R"({"messages":[{"role":"user","content":"Once upon"}]})";
  EXPECT_EQ(answer("/apply-template", chat), R"({"prompt":"Once upon"})");
  const size_t count = test::storyteller_tokenizer().encode("Once upon", false).size();
  EXPECT_EQ(answer("/v1/chat/completions/input_tokens", chat),
            fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})", count));
  EXPECT_THAT(answer("/apply-template", "{}"), HasSubstr("lacks \\\"messages\\\""));
}

TEST_F(FrontTest, SaysHowTheModelIsSampled) {
  model = test::storyteller();
  model.folder = "models/storyteller";
  start();
  const auto props = get("/props");
  const JsonFile json = JsonFile::parse(props->body, "props");
  const JsonValue usual = json.root().at("default_generation_settings");
  EXPECT_EQ(usual.at("n_ctx").integer(), 256);
  EXPECT_EQ(usual.at("params").at("seed").integer(), 7);
  EXPECT_EQ(usual.at("params").at("n_predict").integer(), -1);
  EXPECT_EQ(json.root().at("total_slots").integer(), kSlots);
  EXPECT_EQ(json.root().at("model_path").string(), "models/storyteller");
  EXPECT_EQ(json.root().at("chat_template").string(), model.chat_template->source());
}

TEST_F(FrontTest, SaysWhatCanBeAsked) {
  start();
  const JsonFile json = JsonFile::parse(get("/openapi.json")->body, "openapi.json");
  const JsonValue paths = json.root().at("paths");
  for (const char* path : {"/v1/chat/completions", "/completion", "/v1/models/{id}", "/metrics", "/openapi.json"})
    EXPECT_TRUE(paths.has(path)) << path;
}

TEST_F(FrontTest, ShowsSlotsOnlyIfAllowed) {
  start();
  EXPECT_EQ(get("/slots")->status(), 501);
  start({.shows_slots = true});
  EXPECT_EQ(get("/slots")->body,
            R"([{"id":0,"n_ctx":64,"is_processing":false},{"id":1,"n_ctx":64,"is_processing":false}])");
  EXPECT_EQ(get("/slots?fail_on_no_slot=1")->status(), 200);
  submit(), submit();
  emit(1, {5});
  EXPECT_THAT(get("/slots")->body, HasSubstr(R"("n_prompt_tokens":2,"n_decoded":1)"));
  EXPECT_EQ(get("/slots?fail_on_no_slot=1")->status(), 503);
  EXPECT_EQ(get("/load")->body, R"({"server_load":2})");
}

TEST_F(FrontTest, AsksForAKey) {
  start({.access = {.keys = {"first", "second"}}});
  EXPECT_EQ(get("/health")->status(), 200);
  const auto without = get("/v1/models");
  EXPECT_EQ(without->status(), 401);
  EXPECT_EQ(without->header("WWW-Authenticate"), "Bearer");
  EXPECT_THAT(without->body, HasSubstr("authentication_error"));
  EXPECT_EQ(get("/metrics")->status(), 401);
  EXPECT_EQ(get("/nothing")->status(), 401);
  EXPECT_EQ(get("/v1/models", {{"authorization", "Bearer first"}})->status(), 200);
  EXPECT_EQ(get("/v1/models", {{"authorization", "bearer  second"}})->status(), 200);
  EXPECT_EQ(get("/v1/models", {{"x-api-key", "second"}})->status(), 200);
  for (const char* wrong : {"Bearer ", "Bearer firs", "Bearer first2", "first", "Basic first", "Bearer second first"})
    EXPECT_EQ(get("/v1/models", {{"authorization", wrong}})->status(), 401) << wrong;
}

TEST_F(FrontTest, AnswersOnlyToItsNames) {
  start({.access = {.hosts = {"My.Box"}}});
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "my.box:80"})
    EXPECT_EQ(get("/health", {{"host", host}})->status(), 200) << host;
  for (const char* host : {"evil.org", "127.0.0.1.evil.org", "localhost.evil.org:8000", "[::2]", "[::1", "10.0.0.1"})
    EXPECT_EQ(get("/health", {{"host", host}})->status(), 403) << host;
  start({.access = {.checks_host = false}});
  EXPECT_EQ(get("/health", {{"host", "evil.org"}})->status(), 200);
}

TEST_F(FrontTest, LetsOnlyNamedPagesReadAnswers) {
  start();
  EXPECT_EQ(get("/v1/models", {{"origin", "https://a.org"}})->header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(ask({.method = "OPTIONS", .path = "/v1/models", .headers = {{"origin", "https://a.org"}}})->status(), 405);
  start({.access = {.keys = {"k"}, .origins = {"https://a.org"}}});
  const auto before =
      ask({.method = "OPTIONS", .path = "/v1/chat/completions", .headers = {{"origin", "https://a.org"}}});
  EXPECT_EQ(before->status(), 204);
  EXPECT_EQ(before->header("Access-Control-Allow-Origin"), "https://a.org");
  EXPECT_THAT(before->header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  EXPECT_EQ(get("/v1/models", {{"origin", "https://a.org"}})->header("Access-Control-Allow-Origin"), "https://a.org");
  EXPECT_EQ(get("/v1/models", {{"origin", "https://b.org"}})->header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(get("/v1/models", {{"origin", "https://b.org"}})->header("Vary"), "Origin");
}

TEST_F(FrontTest, GivesBackTheRequestsName) {
  start();
  EXPECT_EQ(get("/v1/models", {{"x-request-id", "my-id_1.2:3"}})->header("X-Request-Id"), "my-id_1.2:3");
  for (const std::string& bad : {std::string("a\r\nb"), std::string("a b"), std::string(200, 'a'), std::string()})
    EXPECT_THAT(get("/v1/models", {{"x-request-id", bad}})->header("X-Request-Id"), SizeIs(32));
}

TEST_F(FrontTest, LogsALineWithoutWhatWasSaid) {
  start();
  post("/v1/completions", R"({"prompt":"my secret","user":"me"})", {{"x-request-id", "one"}});
  loop.run_until([&] { return !log.empty(); });
  submit(R"(,"user":"me","stop":"secret")");
  emit(1, {5}, RequestEnd::stop);
  get("/health"), get("/metrics");
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_THAT(log, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(log[0],
              HasSubstr(R"("id":"one","client":"10.1.2.3","method":"POST","path":"/v1/completions","status":400)"));
  const JsonFile line = JsonFile::parse(log[1], "log");
  EXPECT_EQ(line.root().at("model").string(), "numbers");
  EXPECT_EQ(line.root().at("prompt_tokens").integer(), 2);
  EXPECT_EQ(line.root().at("completion_tokens").integer(), 1);
  EXPECT_EQ(line.root().at("finish").string(), "stop");
  EXPECT_GE(line.root().at("first_token_ms").number(0, 1e9), 0);
}

TEST_F(FrontTest, Counts) {
  start();
  service.reported = {.running = 3, .waiting = 4, .pages = 8, .pages_used = 2, .preemptions = 5};
  submit();
  const uint64_t now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  service.emit(1, {.token = 5, .posted_ns = now + 3'000'000'000, .admitted_ns = now + 1'000'000'000});
  service.emit(1, {.token = 6, .posted_ns = now + 3'000'300'000});
  service.emit(1, {.token = 7, .posted_ns = now + 3'000'900'000, .end = RequestEnd::length});
  loop.run();
  front->set_connections([] { return 6; });
  front->refusal(413, "too large");
  const std::string text = metrics();
  for (const char* line : {"vllm:num_requests_running{model_name=\"numbers\"} 3\n",
                           "vllm:num_requests_waiting{model_name=\"numbers\"} 4\n",
                           "vllm:kv_cache_usage_perc{model_name=\"numbers\"} 0.25\n",
                           "vllm:prompt_tokens_total{model_name=\"numbers\"} 2\n",
                           "vllm:generation_tokens_total{model_name=\"numbers\"} 3\n",
                           "vllm:num_preemptions_total{model_name=\"numbers\"} 5\n",
                           "vllm:request_success_total{model_name=\"numbers\",finished_reason=\"length\"} 1\n",
                           "vllm:time_to_first_token_seconds_count{model_name=\"numbers\"} 1\n",
                           "vllm:inter_token_latency_seconds_count{model_name=\"numbers\"} 2\n",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"numbers\",le=\"+Inf\"} 2\n",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"numbers\",le=\"0.0002\"} 0\n",
                           "vllm:inter_token_latency_seconds_bucket{model_name=\"numbers\",le=\"0.0004\"} 1\n",
                           "vllm:request_queue_time_seconds_bucket{model_name=\"numbers\",le=\"0.5\"} 0\n",
                           "vllm:request_queue_time_seconds_bucket{model_name=\"numbers\",le=\"2\"} 1\n",
                           "vllm:request_prefill_time_seconds_bucket{model_name=\"numbers\",le=\"2\"} 1\n",
                           "vllm:request_decode_time_seconds_bucket{model_name=\"numbers\",le=\"0.001\"} 1\n",
                           "vllm:request_generation_tokens_bucket{model_name=\"numbers\",le=\"5\"} 1\n",
                           "vllm:request_generation_tokens_bucket{model_name=\"numbers\",le=\"2\"} 0\n",
                           "megalith:http_replies_total{model_name=\"numbers\",status=\"413\"} 1\n",
                           "megalith:connections{model_name=\"numbers\"} 6\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Histogram, PutsAValueIntoTheBucketOfItsBound) {
  constexpr double kBounds[] = {1, 2};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.observe(value);
  std::string text;
  histogram.write(text, "h", "Help.", "a=\"b\"");
  EXPECT_EQ(text,
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2\"} 3\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 4\nh_sum{a=\"b\"} 12\nh_count{a=\"b\"} 4\n");
}

TEST(Access, ComparesKeysWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "xbc"})
    EXPECT_FALSE(equal_in_constant_time("abc", other)) << other;
}

TEST(HttpRequest, ReadsItsQuery) {
  const HttpRequest request{.query = "a=1&b&c=%41%20&a=2"};
  EXPECT_EQ(request.parameter("a"), "1");
  EXPECT_EQ(request.parameter("b"), "");
  EXPECT_EQ(request.parameter("c"), "A ");
  EXPECT_FALSE(request.parameter("d"));
  EXPECT_FALSE(percent_decode("%4"));
  EXPECT_FALSE(percent_decode("%00"));
  EXPECT_FALSE(percent_decode("%-1"));
}

}  // namespace
}  // namespace megalith::serve
