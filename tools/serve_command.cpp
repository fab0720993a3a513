// megalith serve: a model behind OpenAI's HTTP interface.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/engine.h"
#include "megalith/serve/front.h"
#include "megalith/serve/http_server.h"
#include "megalith/serve/line_writer.h"
#include "tools/chat_prompt.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/stop_signals.h"
#include "tools/terminal.h"
#include "tools/vocabulary.h"

namespace megalith::tools {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxKeyFileBytes = 1 << 20;
// For answers that are whole to reach clients that read them.
constexpr milliseconds kLastWrites{2000};

struct ServeOptions {
  ModelOptions model;
  SamplingOptions sampling;
  ChatPromptOptions prompt;
  std::string host = "127.0.0.1", key_file;
  std::string call_format = "auto", reasoning_format = "auto";
  int64_t port = 8000;
  std::vector<std::string> keys, names, hosts, origins;
  bool allow_unauthenticated = false, shows_slots = false, no_request_log = false, no_prefix_cache = false;
  std::optional<int64_t> max_new_tokens;
  int64_t max_queue = 512, shutdown_seconds = 30, tokenizer_threads = 1;
  int64_t max_connections = serve::HttpLimits{}.connections, body_mib = 16;
};

// A key a line; empty lines and those that begin with # are none.
std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  const std::string text = stream_read(path, kMaxKeyFileBytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = serve::trimmed(std::string_view(text).substr(begin, end - begin));
    if (line.ends_with('\r')) line = serve::trimmed(line.substr(0, line.size() - 1));
    if (!line.empty() && !line.starts_with('#')) keys.emplace_back(line);
    begin = end + 1;
  }
  MEGALITH_CHECK(!keys.empty(), "{} has no key: want one a line", path);
  return keys;
}

void write_log_line(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

serve::FrontOptions front_options(const ServeOptions& options, bool is_loopback, serve::LineWriter& log) {
  serve::FrontOptions front;
  front.access = {options.keys, options.hosts, is_loopback || !options.hosts.empty(), options.origins};
  front.generations.max_queue = options.max_queue;
  front.shows_slots = options.shows_slots;
  front.tokenizer_threads = static_cast<int>(options.tokenizer_threads);
  if (!options.no_request_log && log_level() > LogLevel::quiet)
    front.log = [&log](const std::string& line) { log.put(line); };
  return front;
}

serve::SamplingFields sampling_of(const SamplingOptions& given) {
  serve::SamplingFields fields{
      given.temperature,       given.top_p, given.min_p, given.repetition_penalty, given.presence_penalty,
      given.frequency_penalty, given.top_k};
  if (given.seed && *given.seed >= 0) fields.seed = static_cast<uint64_t>(*given.seed);
  return fields;
}

serve::AnswerSyntax answer_syntax_of(const ServeOptions& options, const std::string& chat_template) {
  std::optional<serve::CallFormat> calls = serve::call_format(options.call_format);
  if (options.call_format == "none") calls = serve::CallFormat::none;
  return serve::answer_syntax(chat_template, calls, serve::reasoning_format(options.reasoning_format).value());
}

std::vector<std::string> call_format_words() {
  std::vector<std::string> words = {"auto", "none"};
  words.insert(words.end(), serve::call_format_names().begin(), serve::call_format_names().end());
  return words;
}

/// A model and its engine.
class Loaded {
 public:
  explicit Loaded(const ServeOptions& options) : vocabulary_(options.model) {
    const std::string folder = options.model.folder();
    ChatPromptOptions prompt_options = options.prompt;
    prompt_options.no_template |= !vocabulary_.tokenizer();
    const ChatPrompt prompt(folder, prompt_options);
    const TurnTokens turns = vocabulary_.tokenizer() ? prompt.turn_tokens(*vocabulary_.tokenizer()) : TurnTokens();
    const GenerationConfig theirs = SamplingOptions::makers_wishes(folder);

    engine::EngineOptions engine_options = options.model.engine(engine::default_service_batch(options.model.target));
    engine_options.num_workers =
        options.model.num_workers > 0 ? options.model.workers() : engine::default_service_workers(options.model.target);
    engine_options.stop_tokens = turns.ends;
    engine_options.starts_early = true;
    if (const std::optional<int> end = vocabulary_.end_token()) engine_options.stop_tokens.push_back(*end);
    engine_ = std::make_unique<engine::Engine>(folder, engine_options);

    model_.names = options.names.empty() ? std::vector{engine_->config().name} : options.names;
    model_.max_seq_len = engine_->decoder_options().max_seq_len;
    model_.vocab_size = engine_->config().vocab_size;
    model_.max_sequences = num_slots() + options.max_queue;
    model_.num_parameters = engine_->num_parameters();
    model_.folder = folder;
    model_.tokenizer = vocabulary_.tokenizer();
    if (prompt.has_template()) model_.chat_template = ChatTemplate::from_folder(folder, prompt_options.template_name);
    if (model_.chat_template) model_.syntax = answer_syntax_of(options, model_.chat_template->source());
    model_.markers = turns.markers;
    if (model_.tokenizer)
      for (const int token : serve::marker_tokens(*model_.tokenizer, serve::call_markers(model_.syntax)))
        model_.markers.push_back(token);
    model_.stop_tokens = engine_->stop_tokens();
    model_.stops = theirs.stop_strings;
    model_.sampling = serve::default_sampling(theirs, sampling_of(options.sampling));
    model_.max_tokens = options.max_new_tokens;
    if (model_.tokenizer) grammars_.emplace(*model_.tokenizer, model_.vocab_size);
    if (grammars_) model_.grammars = &*grammars_;
    engine_options_ = std::move(engine_options);
  }

  const serve::ServedModel& model() const { return model_; }
  engine::Engine& engine() { return *engine_; }
  const engine::EngineOptions& engine_options() const { return engine_options_; }
  int64_t num_slots() const { return engine_->decoder_options().max_requests; }
  int num_workers() const { return engine_->num_workers(); }

 private:
  Vocabulary vocabulary_;
  std::optional<grammar::GrammarCompiler> grammars_;
  engine::EngineOptions engine_options_;
  std::unique_ptr<engine::Engine> engine_;
  serve::ServedModel model_;
};

/// Socket and front, which listen while the model is being loaded.
class Listener {
 public:
  explicit Listener(const ServeOptions& options)
      : server_(server_options(options),
                [this](std::shared_ptr<serve::Exchange> exchange) { front_->handle(std::move(exchange)); }) {
    if (!server_.is_loopback() && options.keys.empty() && !options.allow_unauthenticated)
      throw UsageError{
          fmt::format("--host {} can be reached from other machines, and there is no --api-key: give one, or "
                      "--allow-unauthenticated if whoever can reach it may use it",
                      options.host)};
    front_ = std::make_unique<serve::Front>(front_options(options, server_.is_loopback(), log_),
                                            [this](std::function<void()> work) { server_.post(std::move(work)); });
    front_->set_connections([this] { return server_.connections(); });
    server_.start();
  }
  ~Listener() {
    server_.stop(milliseconds(0));
    front_.reset();  // its threads still send the server what they did
  }

  std::string url() const {
    const std::string address = server_.address();
    const bool is_ipv6 = address.find(':') != std::string::npos;
    return fmt::format("http://{}:{}", is_ipv6 ? "[" + address + "]" : address, server_.port());
  }
  void ready(const Loaded& loaded, engine::TokenService& service) {
    server_.post([this, &loaded, &service] { front_->ready(loaded.model(), service, loaded.num_slots()); });
  }
  /// Ends when all that is at work has, or `patience` is over, or a second signal came, of which the process dies.
  void drain(StopSignals& signals, milliseconds patience) {
    std::atomic<bool> is_idle = false;
    server_.post([&] { front_->drain([&] { is_idle = true; }); });
    wait(signals, is_idle, patience);
    if (!is_idle) {
      note("stopping what is still at work (--shutdown-timeout)");
      server_.post([&] { front_->abort_all(); });
      wait(signals, is_idle, kLastWrites);
    }
    server_.stop(kLastWrites);
  }

 private:
  serve::HttpServerOptions server_options(const ServeOptions& options) {
    serve::HttpServerOptions server;
    server.host = options.host;
    server.port = static_cast<int>(options.port);
    server.limits.connections = static_cast<int>(options.max_connections);
    server.limits.body_bytes = static_cast<size_t>(options.body_mib) << 20;
    server.limits.all_body_bytes = std::max(server.limits.all_body_bytes, 2 * server.limits.body_bytes);
    server.refusal = [this](int status, const std::string& message) { return front_->refusal(status, message); };
    server.on_tick = [this] { front_->tick(); };
    return server;
  }
  static void wait(StopSignals& signals, const std::atomic<bool>& is_idle, milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!is_idle && std::chrono::steady_clock::now() < end)
      if (const int signal = signals.wait(milliseconds(10))) StopSignals::die_of(signal);
  }

  serve::LineWriter log_{write_log_line};
  std::unique_ptr<serve::Front> front_;
  serve::HttpServer server_;
};

int run_serve(ServeOptions options) {
  config_read(options.model.folder());  // a wrong folder is said before anything listens
  if (!options.key_file.empty())
    for (std::string& key : read_keys(options.key_file)) options.keys.push_back(std::move(key));
  // A login's usual limit is 1024, which so many connections and the model's own files exceed.
  constexpr int64_t kOwnFiles = 128;
  if (const int64_t files = open_files_raise(options.max_connections + kOwnFiles);
      files < options.max_connections + kOwnFiles)
    log_warn(
        "[serve] --max-connections is {}, but this process may have {} files and sockets open, some {} of them its "
        "own: "
        "raise ulimit -n, or further clients wait for others to leave",
        options.max_connections, files, kOwnFiles);
  // Ends in this order: the engine tells the front of its end, and the front works with the model until its own.
  std::optional<Loaded> loaded;
  Listener listener(options);
  note(fmt::format("listening on {}; loading {}", listener.url(), options.model.folder()));
  loaded.emplace(options);
  if (loaded->engine().has_late_regimes())
    note("some kernels are still being compiled: until then prompts take longer");
  engine::AsyncEngine service(loaded->engine(), {.prefix_cache = !options.no_prefix_cache});
  StopSignals signals;
  listener.ready(*loaded, service);
  const serve::ServedModel& model = loaded->model();
  note(fmt::format("serving {} at {}/v1: {} at a time, each of up to {} with its prompt; {} may wait; {}",
                   fmt::join(model.names, ", "), listener.url(), plural(loaded->num_slots(), "sequence"),
                   plural(model.max_seq_len, "token"), options.max_queue, plural(loaded->num_workers(), "worker")));
  if (!model.tokenizer)
    note("there is no tokenizer.json: prompts are token ids, and so are answers");
  else if (!model.chat_template)
    note("there is no chat template: a chat goes on from its messages as plain text");
  signals.wait();
  note("finishing what is at work; again to stop at once");
  listener.drain(signals, seconds(options.shutdown_seconds));
  return kExitOk;
}

Action declare_serve(Arguments& arguments) {
  auto options = std::make_shared<ServeOptions>();
  arguments.group("Server");
  arguments.text("--host", options->host, "ADDRESS", "address to listen on (127.0.0.1); 0.0.0.0 is every one");
  arguments.integer("--port", options->port, "port to listen on (8000); 0: one that is free", 0, 65535);
  arguments.texts("--api-key", options->keys, "KEY", "clients must send this one; may be given several times");
  arguments.text("--api-key-file", options->key_file, "FILE", "the same from a file, a key a line");
  arguments.flag("--allow-unauthenticated", options->allow_unauthenticated,
                 "listen where other machines can reach it, without a key");
  arguments.texts("--allowed-host", options->hosts, "NAME",
                  "further name that clients may call this machine by; may be given several times");
  arguments.texts(
      "--cors-origin,--allowed-origin", options->origins, "ORIGIN",
      "pages that browsers let read answers: https://example.org, or * for all; may be given several times");
  arguments.texts("--served-model-name,--alias", options->names, "NAME",
                  "what requests call the model (the folder's name); may be given several times");
  arguments.integer("--max-queue", options->max_queue, "sequences that may wait; further ones are sent away (512)", 0,
                    1 << 20);
  arguments.flag("--no-prefix-cache,--no-enable-prefix-caching", options->no_prefix_cache,
                 "work through every prompt from its beginning, also where another one began alike");
  arguments.integer("--shutdown-timeout", options->shutdown_seconds,
                    "seconds that answers have to end after Ctrl-C or SIGTERM (30)", 0, 86400);
  arguments.integer("--max-connections", options->max_connections,
                    fmt::format("connections at a time ({})", options->max_connections), 1, 1 << 16);
  arguments.integer("--max-body", options->body_mib, "MiB that a request's body may have (16)", 1, 1024);
  arguments.integer("--tokenizer-threads", options->tokenizer_threads, "threads that make prompts into tokens (1)", 1,
                    64);
  arguments.flag("--slots", options->shows_slots, "show at /slots what is being worked on, without texts");
  arguments.flag("--disable-log-requests,--no-request-log", options->no_request_log,
                 "no line on stderr for each request");
  arguments.group("Generation (of requests that do not say; what is not given is as generation_config.json says)");
  arguments.integer("-n,--max-new-tokens,--predict,--n-predict", options->max_new_tokens,
                    "tokens of an answer (the rest of the context; of /v1/completions 16)", 1, 1 << 24, 1 << 24);
  options->sampling.declare_drawing(arguments);
  arguments.text("--chat-template", options->prompt.template_name, "NAME|FILE",
                 "another template of the model's folder, or a file with one");
  arguments.choice("--tool-call-parser", options->call_format, call_format_words(),
                   "form in which the model calls tools (auto: as its chat template shows)");
  arguments.choice("--reasoning-format", options->reasoning_format, serve::reasoning_format_names(),
                   "deepseek: <think>...</think> is no content, but reasoning_content; none: it stays there "
                   "(auto: deepseek where the chat template knows of it)");
  arguments.flag("--no-chat-template", options->prompt.no_template, "a chat goes on from its messages as plain text");
  options->model.declare(arguments, kDefaultContext, "8; on a GPU 64");
  return [options] { return run_serve(*options); };
}

}  // namespace

Command serve_command() {
  return {"serve", "an HTTP server that OpenAI's clients can use", "megalith serve models/storyteller --port 8000",
          declare_serve};
}

}  // namespace megalith::tools
