// megalith profile: when each task of a run was waiting and running, and what that says.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "megalith/engine/engine.h"
#include "megalith/engine/profiled_nodes.h"
#include "megalith/runtime/profile_layers.h"
#include "megalith/runtime/profile_summary.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"
#include "tools/output_file.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct ProfileOptions {
  ModelOptions model;
  int64_t tokens = 32, prompt = 0, depth = 0, beside = 0, warmup = 16;
  std::string output, page;
};

constexpr size_t kRows = 10;

std::string percent_text(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0);
}
std::string microseconds_text(double ns) { return fmt::format("{:.2f}", ns / 1000); }

std::string text_of(const std::vector<runtime::ProfileLayerPart>& layer) {
  Table table({"of a layer", ">ready: first", ">mean", ">last", ">done: first", ">mean", ">last us"});
  for (const runtime::ProfileLayerPart& part : layer) {
    std::vector<std::string> row = {part.name};
    for (const runtime::Moments* at : {&part.ready, &part.end})
      for (const double ns : {at->first, at->mean, at->last}) row.push_back(microseconds_text(ns));
    table.row(row);
  }
  return layer.empty() ? "" : table.text() + "\n";
}

std::string text_of(const runtime::ClockRate& rate) {
  return fmt::format("clock     {:.0f} MHz on average, {:.0f} to {:.0f}\n", rate.mean, rate.least, rate.most);
}

std::string text_of(const runtime::ProfileSummary& summary, const std::vector<runtime::ProfileLayerPart>& layer) {
  const double all = summary.step_ns * static_cast<double>(summary.workers.size());
  std::string text =
      fmt::format("{}\n\nstep      {} mean, {} median, of {}\n", summary.bound(), format_ms(summary.step_ns / 1e6),
                  format_ms(summary.median_step_ns / 1e6), plural(summary.steps, "step"));
  if (summary.slow_steps > 0)
    text += fmt::format("          {} of up to {} set aside, beyond twice the median: the machine had other work\n",
                        plural(summary.slow_steps, "step"), format_ms(summary.longest_step_ns / 1e6));
  text += fmt::format("workers   busy {:.1f} %, waiting {:.1f} %, at the iteration barrier {:.1f} %\n",
                      100 * summary.busy_share(), 100 * summary.waiting_share(), 100 * summary.gate_share());
  if (summary.has_streams)
    text += fmt::format("streams   idle {:.1f} % of the step: {:.1f} % while tasks wait, {:.1f} % while they run\n",
                        100 * (summary.idle_waiting_share() + summary.idle_busy_share()),
                        100 * summary.idle_waiting_share(), 100 * summary.idle_busy_share());
  if (summary.clock_rate) text += text_of(*summary.clock_rate);
  text += fmt::format("tail      {} ({}): the average worker's list ends so long before the step does\n\n",
                      format_ms(summary.tail_ns / 1e6), percent_text(summary.tail_ns, summary.step_ns));

  std::vector<std::string> columns = {"operator",   ">us a step", ">share",    ">tasks",
                                      ">us a task", ">longest",   ">uneven us"};
  if (summary.has_streams) columns.push_back(">stream idle");
  Table operators(columns);
  for (const runtime::ProfileSummary::Operator& op : summary.operators) {
    std::vector<std::string> row = {op.name,
                                    microseconds_text(op.busy_ns),
                                    percent_text(op.busy_ns, all),
                                    fmt::format("{:.0f}", op.tasks),
                                    microseconds_text(op.busy_ns / op.tasks),
                                    microseconds_text(op.longest_ns),
                                    microseconds_text(op.uneven_ns)};
    if (summary.has_streams) row.push_back(percent_text(op.idle_ns, all));
    operators.row(row);
  }
  text += operators.text() + "\n" + text_of(layer);

  Table waits({"waits of", "for", "through", ">us a step", ">share", ">after it came"});
  for (size_t i = 0; i < std::min(summary.waits.size(), kRows); ++i) {
    const runtime::ProfileSummary::Waiting& waiting = summary.waits[i];
    waits.row({waiting.waiter, waiting.cause, waiting.through, microseconds_text(waiting.waiting_ns),
               percent_text(waiting.waiting_ns, all), microseconds_text(waiting.after_signal_ns)});
  }
  text += waits.text() + "\n";

  Table workers({"worker", ">busy", ">waiting", ">gate"});
  for (size_t w = 0; w < std::min<size_t>(summary.workers.size(), 16); ++w) {
    const runtime::ProfileSummary::Worker& worker = summary.workers[w];
    workers.row({fmt::format("{}", w), percent_text(worker.busy_ns, summary.step_ns),
                 percent_text(worker.waiting_ns, summary.step_ns), percent_text(worker.gate_ns, summary.step_ns)});
  }
  text += workers.text();
  if (summary.workers.size() > 16) text += fmt::format("... and {} more\n", summary.workers.size() - 16);
  return text;
}

/// Iterations that the prompts take. UsageError if there is none between two others, or none at all.
int64_t chunks_of(const ProfileOptions& options, int64_t rows) {
  const int64_t prompts = std::max<int64_t>(options.model.max_batch, 1) - options.beside,
                tokens = options.prompt * prompts,
                of_prompts = rows - options.beside,  // each request has a row at least
      chunks = (tokens + of_prompts - 1) / of_prompts;
  if (chunks >= 2) return chunks;
  throw UsageError{
      fmt::format("{} are worked on in one step of up to {}, and a step is looked at from its begin to the "
                  "next one's: ask for a longer prompt (-p), or for shorter chunks (-b)",
                  plural(tokens, "token"), of_prompts)};
}

/// `count` made-up tokens, others for each request.
std::vector<int> made_up_prompt(int64_t count, size_t number, int64_t vocabulary) {
  std::vector<int> prompt;
  for (int64_t i = 0; i < count; ++i)
    prompt.push_back(static_cast<int>(((i + static_cast<int64_t>(number)) * 7919 + 13) % vocabulary));
  return prompt;
}

/// Throws UsageError if they do not fit each other.
void check(const ProfileOptions& options) {
  if (options.output == "-" && options.page == "-") throw UsageError{"--output or --page on stdout, not both"};
  if (options.prompt > 0 && options.depth > 0 && !options.model.dummy())
    throw UsageError{"a prompt at a depth (-p with -d) is looked at on dummy weights only: add --load-format dummy"};
  if (options.beside > 0 && options.prompt == 0) throw UsageError{"--beside is of a prompt: say how long it is (-p)"};
  if (options.beside > 0 && options.beside >= options.model.max_batch)
    throw UsageError{fmt::format("--beside {} and a prompt are {}, and there is room for {}: ask for --max-batch {}",
                                 options.beside, plural(options.beside + 1, "request"),
                                 std::max<int64_t>(options.model.max_batch, 1), options.beside + 1)};
}

int run_profile(const ProfileOptions& given) {
  ProfileOptions options = given;
  check(options);
  // With others beside it a prompt begins at its first token: the depth is theirs.
  const int64_t ahead = options.beside > 0 ? 0 : options.depth,
                prompt = options.prompt > 0 ? ahead + options.prompt : std::max<int64_t>(options.depth, 1),
                tokens = options.prompt > 0 ? 1 : options.warmup + options.tokens + 1;
  const ModelConfig config = config_read(options.model.folder());
  options.model.max_seq_len =
      context_for(prompt + tokens + (options.beside > 0 ? options.depth : 0), options.model, config);
  const OutputFile trace(options.output.empty() ? config.name + ".trace.json" : options.output), page(options.page);
  engine::Engine engine(options.model.folder(), options.model.engine(1));
  const int64_t chunks = options.prompt > 0 ? chunks_of(options, engine.decoder_options().max_rows) : 0;
  std::vector<engine::Request> requests(static_cast<size_t>(std::max<int64_t>(options.model.max_batch, 1)));
  for (size_t number = 0; number < requests.size(); ++number) {
    engine::Request& request = requests[number];
    // Those beside a prompt end with it.
    const bool is_beside = number >= requests.size() - static_cast<size_t>(options.beside);
    request = {.max_new_tokens = is_beside ? chunks : tokens, .ignore_stop_tokens = true};
    request.prompt =
        made_up_prompt(is_beside ? std::max<int64_t>(options.depth, 1) : prompt, number, engine.config().vocab_size);
    if (options.model.dummy())
      request.cached_tokens = options.prompt > 0 && !is_beside ? ahead : std::ssize(request.prompt) - 1;
  }
  {
    const InterruptGuard guard([&] { engine.cancel(); });
    // Warm caches and a steady clock first: the newest iterations are kept, of a prompt those of the second time.
    if (options.prompt > 0) {
      engine.generate(requests);
      engine.profile(static_cast<uint32_t>(chunks));
    } else {
      engine.profile(static_cast<uint32_t>(options.tokens + 1));
    }
    if (!guard.interrupted()) engine.generate(requests);
    if (guard.interrupted()) return kExitInterrupt;
  }

  const runtime::Profile profile = engine.profile_take();
  std::vector<std::string> operators;
  for (const graph::Node& node : engine.graph().nodes()) operators.push_back(node.op->name);
  const task::TaskGraph& tasks = engine.kernel().tasks;
  trace.tell(text_of(runtime::profile_summarize(profile, tasks, operators), runtime::profile_layers(profile, tasks)));
  trace.write(runtime::profile_trace(profile, tasks, operators));
  note(fmt::format("trace written to {}: open it at ui.perfetto.dev or chrome://tracing", trace.name()));
  if (!options.page.empty()) {
    page.write(runtime::profile_page(profile, tasks, engine::profiled_nodes(engine.graph())));
    note(fmt::format("page written to {}: open it in a browser", page.name()));
  }
  return kExitOk;
}

Action declare_profile(Arguments& arguments) {
  auto options = std::make_shared<ProfileOptions>();
  arguments.group("Profile");
  arguments.integer("-n,--n-gen", options->tokens, "tokens to look at (32)", 2, 1 << 16);
  arguments.integer("-p,--n-prompt", options->prompt, "instead, a prompt of so many tokens, in chunks of -b", 1,
                    1 << 20);
  arguments.integer("-d,--n-depth", options->depth, "behind so many tokens (0); free with --load-format dummy", 0,
                    1 << 20);
  arguments.integer("--beside", options->beside,
                    "so many of the requests (--max-batch) make a token a step beside the prompt, behind -d tokens (0)",
                    0, 1 << 16);
  arguments.integer("--warmup", options->warmup, "tokens made before (16)", 0, 1 << 16);
  arguments.text("-o,--output", options->output, "FILE", "the trace (NAME.trace.json in this folder); - is stdout");
  arguments.text("--page", options->page, "FILE", "an HTML page with a timeline and tables, beside the trace");
  options->model.declare(arguments, "as long as the tests need", "one");
  return [options] { return run_profile(*options); };
}

}  // namespace

Command profile_command() {
  return {"profile", "what bounds a step: work, waits, imbalance; and a trace to look at",
          "megalith profile models/storyteller -n 32 -o story.trace.json", declare_profile};
}

}  // namespace megalith::tools
