#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "tools/bench.h"
#include "tools/statistics.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

/// A value of a result under its name: text for JSON, which is CSV's too but for the quotes of strings.
struct Field {
  const char* name;
  std::string value;
};

std::string list(const std::vector<double>& values, double scale, int digits) {
  std::vector<std::string> texts;
  for (double value : values) texts.push_back(fmt::format("{:.{}f}", value * scale, digits));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::vector<Field> fields_of(const BenchReport& report, const BenchResult& result) {
  const std::vector<double> rates = result.tokens_per_second();
  const bool by_token = !result.token_ms.empty();
  auto ms = [&](double percent) {
    return by_token ? fmt::format("{:.4f}", percentile(result.token_ms, percent)) : "null";
  };
  return {{"model", json_quote(report.model)},
          {"model_type", json_quote(report.architecture)},
          {"model_size", fmt::format("{}", report.model_bytes)},
          {"model_n_params", fmt::format("{}", report.num_parameters)},
          {"backend", json_quote(report.target)},
          {"build", json_quote(MEGALITH_VERSION)},
          {"n_threads", fmt::format("{}", report.num_workers)},
          {"n_ctx", fmt::format("{}", report.max_seq_len)},
          {"test", json_quote(result.test.name())},
          {"n_prompt", fmt::format("{}", result.test.prompt)},
          {"n_gen", fmt::format("{}", result.test.generate)},
          {"n_depth", fmt::format("{}", result.test.depth)},
          {"n_parallel", fmt::format("{}", result.test.requests)},
          {"temperature", fmt::format("{}", report.sampling.temperature)},
          {"top_k", fmt::format("{}", report.sampling.top_k)},
          {"top_p", fmt::format("{}", report.sampling.top_p)},
          {"repetitions", fmt::format("{}", report.repetitions)},
          {"avg_ns", fmt::format("{:.0f}", mean(result.seconds) * 1e9)},
          {"stddev_ns", fmt::format("{:.0f}", standard_deviation(result.seconds) * 1e9)},
          {"avg_ts", fmt::format("{:.4f}", mean(rates))},
          {"stddev_ts", fmt::format("{:.4f}", standard_deviation(rates))},
          {"median_ms", ms(50)},
          {"p99_ms", ms(99)},
          {"first_ms", result.first_ms.empty() ? "null" : fmt::format("{:.4f}", percentile(result.first_ms, 50))},
          {"bytes_per_token", fmt::format("{:.0f}", result.bytes_per_token)},
          {"weights_gbs", fmt::format("{:.4f}", result.gigabytes_per_second())},
          {"read_gbs", fmt::format("{:.4f}", mean(result.read_gbs))},
          {"read_share", fmt::format("{:.4f}", result.read_share())},
          {"flops_per_token", fmt::format("{:.0f}", result.flops_per_token)},
          {"weights_gflops", fmt::format("{:.4f}", result.gflops())},
          {"multiply_gflops", fmt::format("{:.4f}", report.multiply_gflops)},
          {"multiply_share", fmt::format("{:.4f}", report.multiply_share(result))},
          {"kv_bytes", fmt::format("{}", report.kv_bytes)},
          {"ready_ms", fmt::format("{:.0f}", report.ready_ms)},
          {"peak_bytes", fmt::format("{}", result.peak_bytes)},
          {"samples_ns", list(result.seconds, 1e9, 0)},
          {"samples_ts", list(rates, 1, 4)},
          {"samples_read_gbs", list(result.read_gbs, 1, 4)}};
}

std::string object(const std::vector<Field>& fields, const char* between) {
  std::vector<std::string> members;
  for (const Field& field : fields) members.push_back(fmt::format("\"{}\": {}", field.name, field.value));
  return fmt::format("{{{}}}", fmt::join(members, between));
}

// In CSV a null is an empty place and a quote within a quoted text is doubled.
std::string csv_value(const std::string& value) {
  if (value == "null") return "";
  if (value.starts_with('[')) return fmt::format("\"{}\"", value);
  if (!value.starts_with('"')) return value;
  std::string text = "\"";
  for (size_t i = 1; i + 1 < value.size(); ++i) {
    if (value[i] == '\\' && value[i + 1] == '"')
      text += "\"\"", ++i;
    else
      text += value[i];
  }
  return text + "\"";
}

}  // namespace

double BenchReport::multiply_share(const BenchResult& result) const { return result.gflops() / multiply_gflops; }

std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::set<size_t>& right) {
  std::vector<size_t> widths(rows[0].size(), 3);
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], text_width(row[c]));
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string pad(widths[c] - text_width(rows[r][c]), ' ');
      text += "| " + (right.contains(c) ? pad + rows[r][c] : rows[r][c] + pad) + " ";
    }
    text += "|\n";
    if (r > 0) continue;
    for (size_t c = 0; c < rows[0].size(); ++c)
      text += "| " + std::string(widths[c] - 1, '-') + (right.contains(c) ? ":" : "-") + " ";
    text += "|\n";
  }
  return text;
}

std::string BenchReport::markdown() const {
  const bool gpu = target != "cpu";
  std::vector<std::vector<std::string>> rows = {{"model", "size", "params", "backend", gpu ? "workers" : "threads",
                                                 "test", "t/s", "median ms", "p99 ms", "GB/s", "of read", "GFLOP/s",
                                                 "of multiply"}};
  const bool has_first = std::ranges::any_of(results, [](const auto& result) { return !result.first_ms.empty(); });
  constexpr size_t kBehindRate = 7;
  const auto put_first = [&](const std::string& text) {
    if (has_first) rows.back().insert(rows.back().begin() + kBehindRate, text);
  };
  put_first("first ms");
  for (const BenchResult& result : results) {
    const std::vector<double> rates = result.tokens_per_second();
    const bool by_token = !result.token_ms.empty();
    rows.push_back({model, format_bytes(model_bytes), format_count(static_cast<double>(num_parameters)), target,
                    fmt::format("{}", num_workers), result.test.name(),
                    fmt::format("{:.2f} ± {:.2f}", mean(rates), standard_deviation(rates)),
                    by_token ? fmt::format("{:.3f}", percentile(result.token_ms, 50)) : "",
                    by_token ? fmt::format("{:.3f}", percentile(result.token_ms, 99)) : "",
                    fmt::format("{:.2f}", result.gigabytes_per_second()),
                    fmt::format("{:.1f} %", 100 * result.read_share()), fmt::format("{:.1f}", result.gflops()),
                    fmt::format("{:.1f} %", 100 * multiply_share(result))});
    put_first(result.first_ms.empty() ? "" : fmt::format("{:.3f}", percentile(result.first_ms, 50)));
  }
  std::string text = markdown_table(rows, {1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13});
  int64_t peak = 0;
  double least = results[0].read_gbs[0], most = least;
  for (const BenchResult& result : results) {
    peak = std::max(peak, result.peak_bytes);
    const auto [smallest, largest] = std::ranges::minmax(result.read_gbs);
    least = std::min(least, smallest), most = std::max(most, largest);
  }
  text += fmt::format("\nread bandwidth: {:.2f} to {:.2f} GB/s, before and after each repetition, by {}\n", least, most,
                      plural(num_workers, gpu ? "worker" : "thread"));
  text += fmt::format("multiply rate: {:.1f} GFLOP/s, by as many\n", multiply_gflops);
  text += fmt::format("memory: {} of weights, at most {} beside them; KV cache of {} for {} positions\n",
                      format_bytes(static_cast<double>(model_bytes)), format_bytes(static_cast<double>(peak)),
                      format_bytes(static_cast<double>(kv_bytes)), max_seq_len);
  return text + fmt::format("start: {} until the model could be asked\n", format_ms(ready_ms));
}

std::string BenchReport::csv() const {
  std::string text;
  for (const BenchResult& result : results) {
    std::vector<std::string> names, values;
    for (const Field& field : fields_of(*this, result)) {
      names.emplace_back(field.name);
      values.push_back(csv_value(field.value));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
    text += fmt::format("{}\n", fmt::join(values, ","));
  }
  return text;
}

std::string BenchReport::json() const {
  std::vector<std::string> objects;
  for (const BenchResult& result : results) objects.push_back("  " + object(fields_of(*this, result), ",\n   "));
  return fmt::format("[\n{}\n]\n", fmt::join(objects, ",\n"));
}

std::string BenchReport::jsonl() const {
  std::string text;
  for (const BenchResult& result : results) text += object(fields_of(*this, result), ", ") + "\n";
  return text;
}

}  // namespace megalith::tools
