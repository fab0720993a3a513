// A server whose model says what it is told to: its answer is the last message. So openai_test.py sees calls of tools and
// reasoning, for which the bundled model is too small.
//   echo_server FORMAT     serves until its standard input ends
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>

#include "megalith/serve/front.h"
#include "megalith/serve/http_server.h"

namespace {

using namespace megalith;
using namespace megalith::serve;

constexpr int kStop = 0;

class EchoService : public engine::TokenService {
 public:
  engine::RequestId submit(engine::Request request, engine::RequestSink sink) override {
    const engine::RequestId id = ++last_;
    std::thread([request = std::move(request), sink = std::move(sink), id] {
      int64_t left = request.max_new_tokens;
      for (const int token : request.prompt) {
        // A stream has events of single tokens only if a client may be shown one before the next is made.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        sink(id, {.token = token, .end = --left ? engine::RequestEnd::none : engine::RequestEnd::length});
        if (!left) return;
      }
      sink(id, {.token = kStop, .end = engine::RequestEnd::stop});
    }).detach();
    return id;
  }
  void abort(engine::RequestId) override {}  // it ends soon by itself
  engine::ServiceLoad load() const override { return {}; }

 private:
  std::atomic<engine::RequestId> last_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const Tokenizer tokenizer = Tokenizer::open(MEGALITH_SOURCE_DIR "/models/storyteller");
  const ServedModel model = {
      .names = {"echo"},
      .max_seq_len = 4096,
      .vocab_size = 4096,
      .max_sequences = 64,
      .tokenizer = &tokenizer,
      .chat_template = ChatTemplate::parse("{{ messages[-1].content }}"),
      .syntax = answer_syntax("", call_format(argc > 1 ? argv[1] : ""), ReasoningFormat::deepseek),
      .stop_tokens = {kStop}};
  EchoService service;
  std::unique_ptr<Front> front;
  HttpServerOptions options;
  options.refusal = [&](int status, const std::string& message) { return front->refusal(status, message); };
  HttpServer server(options, [&](std::shared_ptr<Exchange> exchange) { front->handle(std::move(exchange)); });
  front = std::make_unique<Front>(FrontOptions{}, [&](std::function<void()> work) { server.post(std::move(work)); });
  server.post([&] { front->ready(model, service, 64); });
  server.start();
  std::fprintf(stderr, "serving echo at http://127.0.0.1:%d/v1\n", server.port());
  while (std::cin.get() != EOF) {}
  std::_Exit(0);  // threads may still speak
}
