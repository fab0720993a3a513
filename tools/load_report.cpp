#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "megalith/base/json_quote.h"
#include "megalith/base/message.h"
#include "tools/bench.h"
#include "tools/load_figures.h"
#include "tools/statistics.h"

namespace megalith::tools {

namespace {

std::string ms_text(const std::vector<double>& ms, double percent) {
  return ms.empty() ? "" : fmt::format("{:.3f}", percentile(ms, percent));
}

double most(const std::vector<double>& ms) { return ms.empty() ? 0 : *std::ranges::max_element(ms); }

// "ttft", with as many digits as a percentile was given.
std::string ms_members(const std::string& metric, const std::vector<double>& ms,
                       const std::vector<double>& percentiles) {
  const auto value = [&](double figure) { return ms.empty() ? "null" : fmt::format("{:.4f}", figure); };
  std::string text = fmt::format("\"mean_{0}_ms\": {1}, \"median_{0}_ms\": {2}, \"std_{0}_ms\": {3}", metric,
                                 value(mean(ms)), value(percentile(ms, 50)), value(standard_deviation(ms)));
  for (const double percent : percentiles)
    text += fmt::format(", \"p{}_{}_ms\": {}", percent, metric, value(percentile(ms, percent)));
  return text;
}

std::string late_text(const std::vector<double>& ms) {
  if (ms.empty()) return "in too short a time to say";
  return fmt::format("{:.3f} ms late (p99; at most {:.3f})", percentile(ms, 99), most(ms));
}

std::string late_members(const char* name, const std::vector<double>& ms) {
  if (ms.empty()) return fmt::format("\"{0}_p50_ms\": null, \"{0}_p99_ms\": null, \"{0}_max_ms\": null", name);
  return fmt::format("\"{0}_p50_ms\": {1:.4f}, \"{0}_p99_ms\": {2:.4f}, \"{0}_max_ms\": {3:.4f}", name,
                     percentile(ms, 50), percentile(ms, 99), most(ms));
}

}  // namespace

std::string LoadReport::markdown() const {
  std::vector<std::string> head = {"load", "requests", "failed", "req/s", "out tok/s", "total tok/s"};
  if (has_objectives) head.insert(head.end(), {"good", "good/s"});
  for (const std::string& metric : metrics)
    for (size_t i = 0; i < percentiles.size(); ++i)
      head.push_back(fmt::format("{}p{}", i == 0 ? metric + " ms " : "", percentiles[i]));
  std::vector<std::vector<std::string>> cells = {head};
  std::set<size_t> right;
  for (size_t c = 1; c < head.size(); ++c) right.insert(c);
  std::string client, failures, warnings;
  for (const LoadFigures& row : rows) {
    std::vector<std::string> line = {row.row.name(),
                                     fmt::format("{}", row.completed),
                                     fmt::format("{}", row.failed()),
                                     fmt::format("{:.2f}", row.per_second(row.completed)),
                                     fmt::format("{:.1f}", row.per_second(row.output_tokens)),
                                     fmt::format("{:.1f}", row.per_second(row.prompt_tokens + row.output_tokens))};
    if (has_objectives)
      line.insert(line.end(), {fmt::format("{}", row.good), fmt::format("{:.2f}", row.per_second(row.good))});
    for (const std::string& metric : metrics)
      for (const double percent : percentiles) line.push_back(ms_text(row.ms.at(metric), percent));
    client += fmt::format("client, {}: woken {}, requests sent {}, {:.1f} % of a core, {} at a time at most\n",
                          row.row.name(), late_text(row.wake_late_ms), late_text(row.send_late_ms),
                          100 * row.core_share, row.peak);
    cells.push_back(std::move(line));
    for (const auto& [kind, group] : row.failures)
      failures += fmt::format(
          "failed, {}: {} x {}{}: {}\n", row.row.name(), group.count, kind,
          group.retry_after.empty() ? "" : fmt::format(" (Retry-After: {})", message_text(group.retry_after)),
          message_text(group.example));
    for (const std::string& text : row.warnings()) warnings += "warning, " + text + "\n";
    for (const std::string& text : row.notes()) warnings += "note, " + text + "\n";
  }
  return fmt::format("{}\n{}\n{}{}{}{}", markdown_table(cells, right), title, client, failures, warnings,
                     is_interrupted ? "interrupted: the last row has what was there by then\n" : "");
}

std::string LoadReport::json() const {
  std::vector<std::string> objects;
  for (const LoadFigures& row : rows) {
    std::vector<std::string> failures, warnings, notes, figures;
    for (const auto& [kind, group] : row.failures)
      failures.push_back(fmt::format(
          "{{\"kind\": {}, \"count\": {}, \"retry_after\": {}, \"example\": {}}}", json_quote(kind), group.count,
          group.retry_after.empty() ? "null" : json_quote(group.retry_after), json_quote(group.example)));
    for (const std::string& text : row.warnings()) warnings.push_back(json_quote(text));
    for (const std::string& text : row.notes()) notes.push_back(json_quote(text));
    for (const auto& [metric, ms] : row.ms) figures.push_back(ms_members(metric, ms, percentiles));
    objects.push_back(fmt::format(
        "  {{\"backend\": \"openai\", \"base_url\": {}, \"endpoint\": {}, \"model_id\": {}, \"build\": {}, "
        "\"num_prompts\": {},\n"
        "   \"request_rate\": {}, \"burstiness\": {}, \"max_concurrency\": {}, \"max_concurrent_requests\": {},\n"
        "   \"input_len\": {}, \"output_len\": {}, \"prefix_len\": {}, \"seed\": {},\n"
        "   \"completed\": {}, \"failed\": {}, \"failures\": [{}], \"interrupted\": {},\n"
        "   \"duration\": {:.6f}, \"total_input_tokens\": {}, \"cached_input_tokens\": {}, \"total_output_tokens\": "
        "{}, "
        "\"tokens_per_event\": "
        "{:.4f},\n"
        "   \"answers_counted_by_server\": {}, \"answers_counted_by_event\": {}, \"answers_shorter\": {},\n"
        "   \"request_throughput\": {:.4f}, \"good_requests\": {}, \"request_goodput\": {}, \"output_throughput\": "
        "{:.4f}, "
        "\"total_token_throughput\": {:.4f},\n   {},\n"
        "   \"client\": {{{}, {}, \"core_share\": {:.4f}}},\n   \"warnings\": [{}], \"notes\": [{}]}}",
        json_quote(base_url), json_quote(endpoint), json_quote(model), json_quote(MEGALITH_VERSION), row.row.requests,
        row.row.rate ? fmt::format("{}", *row.row.rate) : "\"inf\"", burstiness,
        row.row.concurrency > 0 ? fmt::format("{}", row.row.concurrency) : "null", row.peak, input_len, output_len,
        prefix_len, seed, row.completed, row.failed(), fmt::join(failures, ", "),
        is_interrupted && &row == &rows.back(), row.seconds, row.prompt_tokens, row.cached_tokens, row.output_tokens,
        row.tokens_per_event(), row.counted, row.counted_each, row.shorter, row.per_second(row.completed),
        has_objectives ? fmt::format("{}", row.good) : "null",
        has_objectives ? fmt::format("{:.4f}", row.per_second(row.good)) : "null", row.per_second(row.output_tokens),
        row.per_second(row.prompt_tokens + row.output_tokens), fmt::join(figures, ",\n   "),
        late_members("wake_late", row.wake_late_ms), late_members("send_late", row.send_late_ms), row.core_share,
        fmt::join(warnings, ", "), fmt::join(notes, ", ")));
  }
  return fmt::format("[\n{}\n]\n", fmt::join(objects, ",\n"));
}

}  // namespace megalith::tools
