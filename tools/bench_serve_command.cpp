// megalith bench serve: what clients see of a server. Any server will do that has OpenAI's /v1/completions or
// /v1/chat/completions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/model/json.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/load_client.h"
#include "tools/load_figures.h"
#include "tools/load_plan.h"
#include "tools/output_file.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChatCompletions = "/v1/chat/completions";
constexpr const char* kMetrics[] = {"ttft", "tpot", "itl", "e2el"};
/// Below every vocabulary of today's models; of one that a server does not tell.
constexpr int64_t kSomeVocabulary = 4000;

struct ServeLoadOptions {
  std::string base_url, host, endpoint = kCompletions, model, api_key;
  std::optional<int64_t> port;
  std::string rate = "inf", dataset, output = "md", result_file, extra_body;
  std::vector<int64_t> concurrencies;
  std::optional<int64_t> num_prompts;
  int64_t warmups = 1, input_len = 512, output_len = 128, prefix_len = 0, vocab_size = 0, seed = 0, timeout_s = 600,
          connect_timeout_s = 5, ready_timeout_s = 600;
  std::optional<double> burstiness, range_ratio;
  bool ignore_eos = false;
  std::vector<std::string> goodput, metrics = {"ttft", "tpot", "itl"};
  std::vector<double> percentiles = {50, 90, 99};
};

std::optional<double> read_rate(const std::string& text) {
  if (text == "inf") return std::nullopt;
  double rate = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(rate) || rate <= 0 || rate > 1e6)
    throw UsageError{fmt::format(
        "--request-rate: \"{}\" is not what it takes, want requests a second, more than 0 to 1000000, or inf", text)};
  return rate;
}

LoadObjectives read_objectives(const std::vector<std::string>& words) {
  LoadObjectives objectives;
  for (const std::string& word : words) {
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string metric = word.substr(0, colon);
    double ms = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, code] = std::from_chars(word.data() + std::min(colon + 1, word.size()), end, ms);
    const bool is_known = metric == "ttft" || metric == "tpot" || metric == "e2el";
    if (!is_known || code != std::errc() || rest != end || !std::isfinite(ms) || ms <= 0)
      throw UsageError{fmt::format(
          "--goodput: \"{}\" is not what it takes, want ttft:MS, tpot:MS or e2el:MS, in milliseconds", word)};
    objectives[metric] = ms;
  }
  return objectives;
}

void check_metrics(const std::vector<std::string>& metrics) {
  for (const std::string& metric : metrics)
    if (std::ranges::find(kMetrics, metric) == std::end(kMetrics))
      throw UsageError{fmt::format("--percentile-metrics: \"{}\" is none of {}", metric, fmt::join(kMetrics, ", "))};
}

BaseUrl address_of(const ServeLoadOptions& options) {
  if (options.base_url.empty()) {
    const std::string host = options.host.empty() ? BaseUrl{}.host : options.host;
    const bool is_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
    return BaseUrl::parse(fmt::format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                                      options.port.value_or(BaseUrl{}.port)));
  }
  if (!options.host.empty() || options.port) throw UsageError{"--base-url, or --host and --port, not both"};
  return BaseUrl::parse(options.base_url);
}

std::string key_of(const ServeLoadOptions& options) {
  const char* const named = std::getenv("OPENAI_API_KEY");
  const std::string key = !options.api_key.empty() ? options.api_key : named ? named : "";
  const bool is_plain = std::ranges::all_of(key, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (!is_plain) throw UsageError{"the key (--api-key, or OPENAI_API_KEY) has a space or a control character"};
  return key;
}

struct ServedModels {
  std::string first;
  std::optional<int64_t> vocab_size;  // of `first`, or of the one that was asked for
  std::string why_none;               // where there is no `first`
};

// What is there once the server does not say any more that it loads its model, or after `seconds`, or if nobody wants it.
LoadClient::Reply get_when_ready(LoadClient& client, const std::string& path, int64_t seconds,
                                 const std::function<bool()>& is_wanted) {
  constexpr int kLoading = 503;
  constexpr std::chrono::milliseconds kLook(200);
  LoadClient::Reply reply = client.get(path);
  if (reply.status != kLoading) return reply;
  const Progress progress("waiting for the server");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (reply.status == kLoading && std::chrono::steady_clock::now() < end && is_wanted()) {
    std::this_thread::sleep_for(kLook);
    reply = client.get(path);
  }
  return reply;
}

// What /v1/models says. Nothing where a server has no such list.
ServedModels read_models(const LoadClient::Reply& reply, const BaseUrl& url, const std::string& wanted) {
  ServedModels models;
  if (reply.status != 200) {
    models.why_none = fmt::format("it answers {} with status {}", url.path("/v1/models"), reply.status);
    return models;
  }
  try {
    const JsonFile file = JsonFile::parse(reply.body, "the list of models");
    file.root().at("data").each_element([&](const JsonValue& model) {
      const std::string& id = model.at("id").string();
      if (models.first.empty()) models.first = id;
      if (id != (wanted.empty() ? models.first : wanted)) return;
      if (const auto meta = model.find("meta"); meta && meta->is_object())
        if (const auto size = meta->find("n_vocab")) models.vocab_size = size->integer(1, int64_t{1} << 31);
    });
    models.why_none = url.path("/v1/models") + " is empty";
  } catch (const UserError& error) { models.why_none = error.what(); }
  return models;
}

// Many requests at a time are many connections.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<LoadRow> rows_of(const ServeLoadOptions& options) {
  constexpr int64_t kEach = 8, kLeast = 32, kWithoutLimit = 100;
  std::vector<LoadRow> rows;
  for (const int64_t concurrency : options.concurrencies.empty() ? std::vector<int64_t>{0} : options.concurrencies) {
    const int64_t usual = concurrency > 0 ? std::max(kLeast, kEach * concurrency) : kWithoutLimit;
    rows.push_back(
        {.rate = read_rate(options.rate), .concurrency = concurrency, .requests = options.num_prompts.value_or(usual)});
  }
  return rows;
}

std::string title_of(const LoadPlan& plan, const ServeLoadOptions& options, const BaseUrl& url) {
  const std::string made = fmt::format("{}{} made", plan.range_ratio > 0 ? "about " : "", plan.output_len);
  const std::string lengths =
      !plan.prompts.empty()
          ? fmt::format("prompts of {}, {}", options.dataset, made)
          : fmt::format("random prompts of {}{} {}{}, {}", plan.range_ratio > 0 ? "about " : "", plan.input_len,
                        plan.is_chat ? "words" : "tokens",
                        plan.prefix_len > 0 ? fmt::format(" behind {} common to all", plan.prefix_len) : "", made);
  return fmt::format("{} at http://{}{}: {}", message_text(plan.model), url.authority(), url.path(options.endpoint),
                     lengths);
}

int64_t limit_of(const LoadRow& row) { return row.concurrency > 0 ? row.concurrency : row.requests; }

// Before the first row an answer that fails ends it all: with the same options the others would, too.
void warm_up(LoadClient& client, const LoadPlan& plan, const LoadRow& row, int64_t count, int64_t series) {
  LoadPlan at_once = plan;
  at_once.rate.reset();
  const std::vector<LoadRequest> requests = at_once.requests(count, series, 0);
  const LoadRun run = client.run(requests, std::max<int64_t>(1, std::min(count, limit_of(row))), [] {});
  for (const LoadRecord& record : run.records)
    if (record.failure && record.failure->kind != "interrupted")
      throw SystemError(fmt::format("a request to warm up failed: {}: {} (--num-warmups 0 does without)",
                                    record.failure->kind, record.failure->detail));
}

int run_bench_serve(const ServeLoadOptions& options) {
  const BaseUrl url = address_of(options);
  const std::vector<LoadRow> rows = rows_of(options);
  const LoadObjectives objectives = read_objectives(options.goodput);
  check_metrics(options.metrics);
  const bool is_chat = options.endpoint == kChatCompletions;
  if (!options.dataset.empty() && options.prefix_len > 0)
    throw UsageError{"--prefix-len goes with random prompts, and --dataset-path has its own"};
  if (options.output == "json" && options.result_file == "-")
    throw UsageError{"--output json and --save-result - are the same JSON on stdout: give one of them"};
  LoadPlan plan{.is_chat = is_chat,
                .ignore_eos = options.ignore_eos,
                .model = options.model,
                .input_len = options.input_len,
                .output_len = options.output_len,
                .prefix_len = options.prefix_len,
                .vocab_size = options.vocab_size,
                .seed = options.seed,
                .range_ratio = options.range_ratio.value_or(0),
                .rate = rows[0].rate,
                .burstiness = options.burstiness.value_or(1),
                .extra_body = options.extra_body};
  plan.check();
  if (!options.dataset.empty()) plan.prompts = read_prompts(options.dataset, is_chat);
  const OutputFile result_file(options.result_file);
  allow_many_descriptors();

  LoadClient client({.url = url,
                     .endpoint = options.endpoint,
                     .api_key = key_of(options),
                     .connect_timeout_ms = static_cast<double>(options.connect_timeout_s) * 1e3,
                     .timeout_ms = static_cast<double>(options.timeout_s) * 1e3});
  const InterruptGuard guard([&] { client.cancel(); });
  const ServedModels models = read_models(
      get_when_ready(client, url.path("/v1/models"), options.ready_timeout_s, [&] { return !guard.interrupted(); }),
      url, options.model);
  if (plan.model.empty()) plan.model = models.first;
  MEGALITH_CHECK(!plan.model.empty() || guard.interrupted(),
                 "the server at http://{} does not say which models it has: {}; name one by --model", url.authority(),
                 models.why_none);
  if (plan.vocab_size == 0) plan.vocab_size = models.vocab_size.value_or(kSomeVocabulary);

  LoadReport report{.title = title_of(plan, options, url),
                    .base_url = fmt::format("http://{}{}", url.authority(), url.prefix),
                    .endpoint = options.endpoint,
                    .model = plan.model,
                    .input_len = plan.input_len,
                    .output_len = plan.output_len,
                    .prefix_len = plan.prefix_len,
                    .seed = plan.seed,
                    .burstiness = plan.burstiness,
                    .has_objectives = !objectives.empty(),
                    .metrics = options.metrics,
                    .percentiles = options.percentiles};
  int64_t first_prompt = 0;
  for (size_t r = 0; r < rows.size() && !guard.interrupted(); ++r) {
    const LoadRow& row = rows[r];
    const auto series = static_cast<int64_t>(2 * r);
    if (options.warmups > 0) warm_up(client, plan, row, options.warmups, series + 1);
    if (guard.interrupted()) break;
    const std::vector<LoadRequest> requests = plan.requests(row.requests, series, first_prompt);
    first_prompt += row.requests;
    log_info("[bench] {}: {}", row.name(), plural(row.requests, "request"));
    Progress progress(row.name(), row.requests);
    report.rows.push_back(
        LoadFigures::of(row, client.run(requests, limit_of(row), [&] { progress.advance(); }), objectives));
  }
  progress_erase();
  report.is_interrupted = guard.interrupted();
  if (report.rows.empty()) return kExitInterrupt;
  if (!plan.prompts.empty() && first_prompt > std::ssize(plan.prompts))
    log_warn("[bench] {} has {}, so some were sent again: a server's prefix cache may have had them", options.dataset,
             plural(std::ssize(plan.prompts), "prompt"));
  if (options.output == "json")
    print(report.json());
  else
    result_file.tell(report.markdown());
  result_file.write(report.json());
  if (report.is_interrupted) return kExitInterrupt;
  const bool has_answers = std::ranges::all_of(report.rows, [](const auto& row) { return row.completed > 0; });
  return has_answers ? kExitOk : kExitError;
}

Action declare_bench_serve(Arguments& arguments) {
  auto options = std::make_shared<ServeLoadOptions>();
  arguments.group("Server");
  arguments.text("--base-url", options->base_url, "URL",
                 "http://HOST:PORT (http://127.0.0.1:8000); https is a proxy's");
  arguments.text("--host", options->host, "NAME", "its host alone (127.0.0.1)");
  arguments.integer("--port", options->port, "its port alone (8000)", 1, 65535);
  arguments.choice("--endpoint", options->endpoint, {kCompletions, kChatCompletions},
                   "where requests go (/v1/completions)");
  arguments.text("-m,--model", options->model, "NAME", "as the server calls it (the first that it lists)");
  arguments.text("--api-key", options->api_key, "KEY", "what the server wants as Bearer (OPENAI_API_KEY)");
  arguments.integer("--timeout", options->timeout_s, "seconds that an answer may take (600)", 1, 1 << 20);
  arguments.integer("--ready-timeout", options->ready_timeout_s,
                    "seconds to wait for a server that says that it loads its model (600)", 0, 1 << 20);
  arguments.integer("--connect-timeout", options->connect_timeout_s, "seconds that a connection may take (5)", 1,
                    1 << 20);
  arguments.group("Load");
  arguments.text("--request-rate", options->rate, "X", "requests a second, at random times; inf: all at once (inf)");
  arguments.number("--burstiness", options->burstiness,
                   "of those times: 1 is Poisson's, less comes in bursts, more evenly (1)", 0.001, 1000);
  arguments.integers("--max-concurrency", options->concurrencies,
                     "requests at a time at most (no limit); a row of results for each", 1, 1 << 16);
  arguments.integer("--num-prompts", options->num_prompts,
                    "requests of each row (8 for each at a time, at least 32; without --max-concurrency 100)", 1,
                    10'000'000);
  arguments.integer("--num-warmups", options->warmups, "requests ahead of each row that do not count (1)", 0, 100'000);
  arguments.group("Prompts");
  arguments.integer("--input-len,--random-input-len", options->input_len,
                    "tokens of each prompt, drawn at random (512)", 0, 1 << 20);
  arguments.integer("--output-len,--random-output-len", options->output_len, "tokens to make for each (128)", 1,
                    1 << 20);
  arguments.number("--random-range-ratio", options->range_ratio,
                   "both lengths are up to this share shorter or longer (0)", 0, 0.999);
  arguments.integer("--prefix-len,--random-prefix-len", options->prefix_len,
                    "tokens ahead, the same in all prompts (0)", 0, 1 << 20);
  arguments.integer("--vocab-size", options->vocab_size,
                    "random token ids are below it (what the server says, or 4000)", 0, int64_t{1} << 31);
  arguments.text("--dataset-path", options->dataset, "FILE", R"(prompts: lines of {"prompt": "..."}; - is stdin)");
  arguments.integer("--seed", options->seed, "the same seed gives the same requests (0)");
  arguments.flag("--ignore-eos", options->ignore_eos, "asks for all tokens, whatever the model's own ends");
  arguments.text("--extra-body", options->extra_body, "JSON",
                 R"(further members of each request, such as {"temperature": 0.8})");
  arguments.group("Results");
  arguments.words("--goodput", options->goodput, "METRIC:MS",
                  "counts requests that keep all of these: ttft:100 tpot:20 e2el:5000");
  arguments.words("--percentile-metrics", options->metrics, "METRIC,...",
                  "columns: of ttft, tpot, itl, e2el (ttft,tpot,itl); JSON has all");
  arguments.numbers("--metric-percentiles", options->percentiles, "their percentiles (50,90,99)", 0, 100);
  arguments.choice("-o,--output", options->output, {"md", "json"}, "how results are written (md)");
  arguments.text("--save-result", options->result_file, "FILE", "writes them as JSON there, too; - is stdout");
  return [options] { return run_bench_serve(*options); };
}

}  // namespace

Command bench_serve_command() {
  return {"bench serve", "what clients see of a server: latencies and tokens a second",
          "megalith bench serve --port 8000 --max-concurrency 1,8,64 --input-len 512 --output-len 128 --ignore-eos",
          declare_bench_serve};
}

}  // namespace megalith::tools
