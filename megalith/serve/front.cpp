#include "megalith/serve/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "megalith/base/json_quote.h"
#include "megalith/base/printable.h"
#include "megalith/serve/llama_form.h"
#include "megalith/serve/openapi.h"
#include "megalith/serve/page.h"
#include "megalith/serve/tokenize.h"

namespace megalith::serve {

namespace {

constexpr size_t kShownBytes = 120;
constexpr std::string_view kModels = "/v1/models/";
// A grammar may take ten seconds (grammar::CompilerLimits), which nobody waits for but those who sent some. With two a single
// such one does not hold up the others.
constexpr int kCompilers = 2;
constexpr size_t kMaxCompiling = 64;
constexpr const char* kNoFreeSlot = "fail_on_no_slot";

// OpenAI's clients put "/v1" in front; llama-server's need not.
std::string_view without_version(std::string_view path) { return path.starts_with("/v1/") ? path.substr(3) : path; }

// Known to clients, and not to this server.
bool is_known_elsewhere(std::string_view path) {
  constexpr std::string_view kElsewhere[] = {"/embeddings", "/rerank", "/score",  "/classify",
                                             "/messages",   "/audio/", "/images", "/moderations",
                                             "/infill",     "/files",  "/batches"};
  return std::ranges::any_of(kElsewhere, [&](std::string_view one) { return path.starts_with(one); });
}

bool is_json(const HttpRequest& request) {
  const std::string_view type = request.header("content-type");
  return lower_case(trimmed(type.substr(0, type.find(';')))) == "application/json";
}

}  // namespace

struct Front::Route {
  RouteFacts facts;
  void (*answer)(Front&, Asked&);
  bool is_logged = true;  // also where nothing went wrong

  std::string_view path() const { return without_version(facts.path); }
};

const std::vector<Front::Route>& Front::routes() {
  static const std::vector<Route> table = {
      {{"POST", "/v1/chat/completions", "The next message of a conversation", "ChatCompletion",
        [] { return generation_members(Api::chat); }, true},
       [](Front& front, Asked& asked) { front.generations_.start(Api::chat, asked); }},
      {{"POST", "/v1/completions", "A text that goes on", "Completion",
        [] { return generation_members(Api::completion); }, true},
       [](Front& front, Asked& asked) { front.generations_.start(Api::completion, asked); }},
      {{"POST", "/v1/responses", "The next items of a conversation", "Response",
        [] { return generation_members(Api::responses); }, true},
       [](Front& front, Asked& asked) { front.generations_.start(Api::responses, asked); }},
      {{"POST", "/completion", "A text that goes on, in llama-server's form", "LlamaCompletion",
        [] { return generation_members(Api::llama); }, true},
       [](Front& front, Asked& asked) { front.generations_.start(Api::llama, asked); }},
      {{"POST", "/v1/chat/completions/input_tokens", "How many tokens a conversation has", "InputTokens",
        [] { return generation_members(Api::chat); }},
       [](Front& front, Asked& asked) { front.beside(asked, count_input_tokens); }},
      {{"POST", "/apply-template", "The text that a conversation becomes", "Prompt",
        [] { return generation_members(Api::chat); }},
       [](Front& front, Asked& asked) { front.beside(asked, apply_template); }},
      {{"POST", "/tokenize", "The tokens of a text or of a conversation", "Tokens", tokenize_members},
       [](Front& front, Asked& asked) { front.beside(asked, tokenize); }},
      {{"POST", "/detokenize", "The text of tokens", "Text", detokenize_members},
       [](Front& front, Asked& asked) { front.beside(asked, detokenize); }},
      {{"GET", "/v1/models", "The models that are served", "Models"},
       [](Front& front, Asked& asked) { front.models(asked); }},
      {{"GET", "/v1/models/{id}", "One of them", "Model"}, [](Front& front, Asked& asked) { front.one_model(asked); }},
      {{"GET", "/", "A page to talk to the model", "text/html", nullptr, false, true},
       [](Front& front, Asked& asked) { front.page(asked); }},
      {{"GET", "/openapi.json", "What the server can be asked", "OpenApi"},
       [](Front& front, Asked& asked) { front.openapi(asked); }},
      {{"GET", "/health", "Whether requests are taken", "Health", nullptr, false, true},
       [](Front& front, Asked& asked) { front.health(asked); },
       false},
      {{"GET", "/metrics", "Counts and times for Prometheus", "text/plain"},
       [](Front& front, Asked& asked) { front.metrics(asked); },
       false},
      {{"GET", "/version", "Which Megalith this is", "Version"},
       [](Front& front, Asked& asked) { front.version(asked); },
       false},
      {{"GET", "/load", "Requests at work", "Load"}, [](Front& front, Asked& asked) { front.load(asked); }, false},
      {{"GET", "/props", "The model and how it is sampled", "Props"},
       [](Front& front, Asked& asked) { front.props(asked); },
       false},
      {{"GET", "/slots", "What each slot works on", "Slots", nullptr, false, false, kNoFreeSlot},
       [](Front& front, Asked& asked) { front.slots(asked); },
       false},
  };
  return table;
}

Front::Front(FrontOptions options, std::function<void(std::function<void()>)> post)
    : options_(std::move(options)),
      access_(options_.access),
      post_(std::move(post)),
      created_(std::time(nullptr)),
      generations_(options_.generations,
                   {post_,
                    [this](const Asked& asked, HttpReply answer, const std::optional<LogDetails>& details) {
                      reply(asked, std::move(answer), details);
                    },
                    [this](const Asked& asked, int status, const std::optional<LogDetails>& details) {
                      ++metrics_.replies[status];
                      log(asked, status, details);
                    }},
                   workers_, compilers_, metrics_),
      compilers_(kCompilers, kMaxCompiling, "the grammar compiler"),
      workers_(options_.tokenizer_threads, options_.most_preparing, "the tokenizer") {}

Front::~Front() = default;

void Front::ready(const ServedModel& model, engine::TokenService& service, int64_t num_slots) {
  model_ = &model;
  service_ = &service;
  generations_.ready(model, service, num_slots);
}

void Front::drain(std::function<void()> on_idle) {
  is_draining_ = true;
  generations_.drain(std::move(on_idle));
}

// ---- every request ---------------------------------------------------------------------------

void Front::handle(std::shared_ptr<Exchange> exchange) {
  Asked asked{.exchange = std::move(exchange)};
  const HttpRequest& request = asked.exchange->request();
  asked.id = request_id(request);
  asked.headers = access_.cors_headers(request);
  asked.headers.emplace_back("X-Request-Id", asked.id);
  try {
    dispatch(asked);
  } catch (const ApiError& error) { reply(asked, error.reply()); } catch (const std::exception& error) {
    reply(asked, ApiError::of_status(500, error.what()).reply());
  }
}

void Front::dispatch(Asked& asked) {
  const HttpRequest& request = asked.exchange->request();
  const std::string_view path = without_version(request.path);
  const auto is_at = [&](const Route& route) {
    return path == route.path() || (route.path().ends_with("{id}") && request.path.starts_with(kModels));
  };
  std::vector<const Route*> found;
  for (const Route& route : routes())
    if (is_at(route)) found.push_back(&route);
  const bool is_open = !found.empty() && found.front()->facts.is_open;
  if (request.method == "OPTIONS" && access_.allows_origin(request)) return reply(asked, {.status = 204});
  if (const auto refused = access_.refusal(request, is_open)) {
    if (refused->status() == 401) asked.headers.emplace_back("WWW-Authenticate", "Bearer");
    throw ApiError(*refused);
  }
  const std::string shown = shortened(request.path, kShownBytes);
  if (found.empty() && is_known_elsewhere(path))
    throw ApiError::of_status(501, fmt::format("this server has no {}", shown));
  if (found.empty()) throw ApiError::of_status(404, fmt::format("there is nothing at {} {}", request.method, shown));
  for (const Route* route : found) {
    const std::string_view method = route->facts.method;
    const bool is_head = request.method == "HEAD" && method == "GET";
    if (request.method != method && !is_head) continue;
    if (method == "POST" && !is_json(request))
      throw ApiError::of_status(415, fmt::format("the Content-Type is \"{}\", want application/json",
                                                 shortened(request.header("content-type"), kShownBytes)));
    return route->answer(*this, asked);
  }
  asked.headers.emplace_back("Allow", found.front()->facts.method);
  throw ApiError::of_status(405, fmt::format("{} {}: want {}", request.method, shown, found.front()->facts.method));
}

void Front::reply(const Asked& asked, HttpReply answer, const std::optional<LogDetails>& details) {
  const int status = answer.status;
  ++metrics_.replies[status];
  asked.exchange->reply(asked.with_headers(std::move(answer)));
  log(asked, status, details);
}

void Front::log(const Asked& asked, int status, const std::optional<LogDetails>& details) {
  if (!options_.log) return;
  const std::string_view path = without_version(asked.exchange->request().path);
  const auto route = std::ranges::find_if(routes(), [&](const Route& one) { return path == one.path(); });
  // Those that look every few seconds whether the server is well.
  if (route != routes().end() && !route->is_logged && (status < 400 || status == 503)) return;
  options_.log(log_line_json(asked, status, details));
}

HttpReply Front::refusal(int status, const std::string& message) {
  ++metrics_.replies[status];
  HttpReply reply = ApiError::of_status(status, message).reply();
  if (status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

const ServedModel& Front::model() const {
  if (!model_) throw ApiError::of_status(503, "the model is being loaded: try again").retry_after(1);
  return *model_;
}

// Works on the body on another thread.
void Front::beside(const Asked& asked, std::string (*work)(const ServedModel& model, std::string_view body)) {
  const ServedModel& served = model();
  const bool is_taken = workers_.post([this, asked, work, &served] {
    HttpReply answer;
    try {
      answer.body = work(served, asked.exchange->request().body);
    } catch (const ApiError& error) { answer = error.reply(); } catch (const UserError& error) {
      answer = ApiError::invalid(error.what()).reply();
    } catch (const std::exception& error) { answer = ApiError::of_status(500, error.what()).reply(); }
    post_([this, asked, answer] { reply(asked, answer); });
  });
  if (!is_taken) throw ApiError::of_status(429, "too many texts wait to become tokens: try again").retry_after(1);
}

// ---- what can be read ------------------------------------------------------------------------

void Front::health(Asked& asked) {
  if (is_draining_) throw ApiError::of_status(503, "the server is shutting down");
  model();
  reply(asked, {.body = R"({"status":"ok"})"});
}

namespace {

std::string model_json(const ServedModel& model, const std::string& name, int64_t created) {
  return fmt::format(
      R"({{"id":{},"object":"model","created":{},"owned_by":"megalith","root":{},"parent":null,"max_model_len":{},)"
      R"("meta":{{"n_vocab":{},"n_ctx":{},"n_params":{}}}}})",
      json_quote(name), created, json_quote(model.names.front()), model.max_seq_len, model.vocab_size,
      model.max_seq_len, model.num_parameters);
}

}  // namespace

void Front::models(Asked& asked) {
  std::string list;
  for (const std::string& name : model().names) list += (list.empty() ? "" : ",") + model_json(model(), name, created_);
  reply(asked, {.body = fmt::format(R"({{"object":"list","data":[{}]}})", list)});
}

void Front::one_model(Asked& asked) {
  const std::string name = asked.exchange->request().path.substr(kModels.size());
  check_name(model(), name);
  reply(asked, {.body = model_json(model(), name, created_)});
}

void Front::metrics(Asked& asked) {
  const std::string name = model_ ? model_->names.front() : "";
  const grammar::CompilerLoad grammars =
      model_ && model_->grammars ? model_->grammars->load() : grammar::CompilerLoad();
  const engine::ServiceLoad load = service_ ? service_->load() : engine::ServiceLoad();
  reply(asked,
        {.body = metrics_.text(name, load, connections_(), grammars), .content_type = "text/plain; version=0.0.4"});
}

void Front::page(Asked& asked) {
  HttpReply page{.body = std::string(page_html()), .content_type = "text/html; charset=utf-8"};
  page.headers = {{"Content-Security-Policy", std::string(page_policy())}, {"X-Content-Type-Options", "nosniff"}};
  reply(asked, std::move(page));
}

void Front::openapi(Asked& asked) {
  std::vector<RouteFacts> facts;
  for (const Route& route : routes()) facts.push_back(route.facts);
  reply(asked, {.body = openapi_json(facts, model_ ? model_->names : std::vector<std::string>(),
                                     !options_.access.keys.empty())});
}

void Front::version(Asked& asked) { reply(asked, {.body = fmt::format("{{\"version\":\"{}\"}}", MEGALITH_VERSION)}); }

void Front::load(Asked& asked) {
  reply(asked, {.body = fmt::format(R"({{"server_load":{}}})", generations_.num_requests())});
}

// As llama-server's clients look for it.
void Front::props(Asked& asked) {
  const ServedModel& served = model();
  const SamplingFields& usual = served.sampling;
  const engine::Sampling sampling = sampling_of({}, usual);
  reply(
      asked,
      {.body = fmt::format(
           R"({{"default_generation_settings":{{"n_ctx":{},"params":{}}},"total_slots":{},"model_alias":{},)"
           R"("model_path":{},"modalities":{{"vision":false,"audio":false}},"chat_template":{},)"
           R"("build_info":"megalith-{}"}})",
           served.max_seq_len,
           settings_json(sampling, served.max_tokens.value_or(-1), usual.seed ? static_cast<int64_t>(*usual.seed) : -1),
           generations_.num_slots(), json_quote(served.names.front()), json_quote(served.folder),
           json_quote(served.chat_template ? served.chat_template->source() : ""), MEGALITH_VERSION)});
}

void Front::slots(Asked& asked) {
  if (!options_.shows_slots)
    throw ApiError::of_status(501, "this server does not show its slots: start it with --slots");
  model();
  if (asked.exchange->request().parameter(kNoFreeSlot) && !generations_.has_free_slot())
    throw ApiError::of_status(503, "no slot is free").retry_after(1);
  reply(asked, {.body = generations_.slots_json()});
}

}  // namespace megalith::serve
