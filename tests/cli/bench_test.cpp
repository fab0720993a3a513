// megalith bench, bench latency and profile.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>

#include "base/temporary_folder.h"
#include "cli/command_run.h"
#include "megalith/model/safetensors.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A share of a limit, of two figures that were printed: a limit that was measured while other programs ran may be small,
// and the share many times the whole.
void expect_share(double share, double figure, double limit) { EXPECT_NEAR(share, figure / limit, 1e-3 * (1 + share)); }

CommandResult bench(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", kStoryteller, "-r", "2", "-t", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments);
}

TEST(Bench, PrintsATableOfItsTests) {
  const CommandResult result = bench({"-p", "40,5", "-n", "16"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("| model "));
  EXPECT_THAT(result.out,
              ContainsRegex("\\| storyteller \\| +12.5 MiB \\| +6.56 M \\| cpu +\\| +1 \\| pp40 +\\| +[0-9.]+ ± "));
  EXPECT_THAT(result.out, AllOf(HasSubstr("| pp5 "), HasSubstr("| tg16 ")));
  EXPECT_THAT(result.out,
              ContainsRegex("read bandwidth: [0-9.]+ to [0-9.]+ GB/s, before and after each repetition, by 1 thread"));
  EXPECT_THAT(result.out, ContainsRegex("memory: 12.5 MiB of weights, at most [0-9.]+ [KM]iB beside them; KV cache of "
                                        "[0-9.]+ [KM]iB for 256 positions"));  // in bf16 where there is AMX
  EXPECT_THAT(result.out, ContainsRegex("start: [0-9.]+ m?s until the model could be asked"));
}

TEST(Bench, JsonHasWhatTheTableHas) {
  const CommandResult result = bench({"-p", "0", "-n", "16,8", "-d", "0,100", "-o", "json", "--load-format", "dummy"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  ASSERT_EQ(rows.size(), 4u);
  const std::vector<std::string> names = {"tg16", "tg8", "tg16 @ d100", "tg8 @ d100"};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    EXPECT_EQ(row.at("test"), names[i]);
    EXPECT_EQ(row.at("n_threads"), 1);
    // Each time and its rate are two forms of one number; what is told of all of them are the means.
    const auto times = row.at("samples_ns").get<std::vector<double>>(),
               rates = row.at("samples_ts").get<std::vector<double>>();
    ASSERT_EQ(times.size(), 2u);
    ASSERT_EQ(rates.size(), 2u);
    const double made = row.at("n_gen").get<double>();
    for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(times[s] * 1e-9 * rates[s], made, 1e-3 * made);
    EXPECT_NEAR(row.at("avg_ns").get<double>(), (times[0] + times[1]) / 2, 1e-3 * times[0]);
    EXPECT_NEAR(row.at("avg_ts").get<double>(), (rates[0] + rates[1]) / 2, 1e-3 * rates[0]);
    const double rate = row.at("avg_ts"), read = row.at("read_gbs"), bytes = row.at("bytes_per_token");
    EXPECT_GT(read, 0);
    expect_share(row.at("read_share"), rate * bytes / 1e9, read);
    EXPECT_EQ(row.at("flops_per_token").get<double>(), bytes);  // two of each weight, which has two bytes
    expect_share(row.at("multiply_share"), rate * bytes / 1e9, row.at("multiply_gflops"));
    EXPECT_GE(row.at("p99_ms").get<double>(), row.at("median_ms").get<double>());
    EXPECT_GT(row.at("kv_bytes").get<int64_t>(), 0);
#ifndef MEGALITH_SANITIZE  // a sanitizer keeps what was freed
    EXPECT_LT(row.at("peak_bytes").get<int64_t>(), 200 << 20);
#endif
    EXPECT_GT(row.at("ready_ms").get<double>(), 0);
    const bool written = row.at("n_depth").get<int>() > 0;  // all of the cache, as its past was made up
    EXPECT_GT(row.at("peak_bytes").get<int64_t>(), written ? row.at("kv_bytes").get<int64_t>() : 0);
    EXPECT_GE(row.at("stddev_ts").get<double>(), 0);
  }
}

// A prompt and what is made behind it, and fewer sequences than there is room for.
TEST(Bench, MixesLoads) {
  const std::vector<std::string> words = {"-p",   "0",           "-n", "8",        "--mixed",
                                          "24,6", "--max-batch", "3",  "--active", "1,3"};
  std::vector<std::string> more = words;
  more.insert(more.end(), {"-o", "json"});
  const CommandResult result = bench(more);
  ASSERT_EQ(result.code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  const std::vector<std::string> names = {"tg8", "pp24+tg6", "tg8 x 3", "pp24+tg6 x 3"};
  ASSERT_EQ(rows.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(rows[i].at("test"), names[i]);
    EXPECT_EQ(rows[i].at("first_ms").is_null(), i % 2 == 0);
    if (i % 2 == 0) continue;
    // The last token comes after the first one, by as many steps as there are tokens between them.
    const double first = rows[i].at("first_ms"), all = rows[i].at("avg_ns").get<double>() / 1e6;
    EXPECT_GT(first, 0);
    EXPECT_GT(all, first);
    const double tokens = 30.0 * rows[i].at("n_parallel").get<double>();
    const auto rates = rows[i].at("samples_ts"), times = rows[i].at("samples_ns");
    ASSERT_EQ(rates.size(), times.size());
    for (size_t s = 0; s < rates.size(); ++s)
      EXPECT_NEAR(rates[s].get<double>() * times[s].get<double>() / 1e9, tokens, 0.01 * tokens);
  }
  const CommandResult table = bench(words);
  EXPECT_THAT(table.out, AllOf(HasSubstr("| first ms |"), HasSubstr("| pp24+tg6 x 3 |")));
  EXPECT_THAT(bench({"--mixed", "24"}).err, HasSubstr("--mixed takes pairs"));
  EXPECT_THAT(bench({"--active", "2"}).err, HasSubstr("--active is 2 and there is room for 1: add --max-batch 2"));
}

TEST(Bench, WritesLinesForSpreadsheetsAndLogs) {
  const CommandResult lines = bench({"-p", "4", "-n", "4", "-o", "jsonl", "--temp", "0.5", "--top-k", "20"});
  ASSERT_EQ(lines.code, 0) << lines.err;
  std::istringstream text(lines.out);
  std::string line;
  for (const char* name : {"pp4", "tg4"}) {
    ASSERT_TRUE(std::getline(text, line));
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row.at("test"), name);
    EXPECT_EQ(row.at("temperature"), 0.5);
    EXPECT_EQ(row.at("top_k"), 20);
    EXPECT_EQ(row.at("top_p"), 1);
  }
  EXPECT_FALSE(std::getline(text, line));
  const CommandResult table = bench({"-p", "4", "-n", "0", "-o", "csv"});
  EXPECT_THAT(table.out, StartsWith("model,model_type,model_size,"));
  EXPECT_THAT(table.out, ContainsRegex("\n\"storyteller\",\"Qwen3ForCausalLM\",13116672,"));
  EXPECT_THAT(table.out, HasSubstr(",,,"));  // no median of a prompt
}

TEST(Bench, RefusesWhatItCannotMeasure) {
  EXPECT_EQ(bench({"-p", "0", "-n", "0"}).code, 2);
  EXPECT_THAT(bench({"-p", "4", "-d", "10"}).err, HasSubstr("add --load-format dummy"));
  EXPECT_THAT(bench({"-n", "4,x"}).err, HasSubstr("\"x\" is not what it takes"));
  EXPECT_THAT(bench({"-n", "4", "-c", "8", "-p", "9"}).err,
              HasSubstr("the tests need 10 positions, but a sequence may have 8 (--max-seq-len)"));
  // A text that ends early would have been counted as a whole one, at a rate that no machine has.
  EXPECT_THAT(bench({"-p", "0", "-n", "100000"}).err,
              HasSubstr("the tests need 100002 positions, but a sequence may have 1024 (as config.json says)"));
  EXPECT_THAT(megalith_command({"bench", "latency", kStoryteller, "--output-len", "64", "-c", "64"}).err,
              HasSubstr("the tests need 96 positions, but a sequence may have 64 (--max-seq-len)"));
  EXPECT_THAT(megalith_command({"profile", kStoryteller, "-n", "64", "-c", "64"}).err,
              HasSubstr("the tests need 82 positions, but a sequence may have 64 (--max-seq-len)"));
}

TEST(Output, ThatCannotBeWrittenIsSaidBeforeTheWork) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> commands = {
      {"logits", "models/none", "--tokens", "1", "-o", folder / "none/x"},
      {"profile", kStoryteller, "-o", folder / "none/x", "-n", "2"},
      {"profile", kStoryteller, "-o", folder / "x", "--page", folder / "none/x", "-n", "2"},
      {"bench", "latency", kStoryteller, "--output-json", folder / "none/x"}};
  EXPECT_EQ(megalith_command({"compile", kStoryteller, "-o", "/proc/none"}).err,
            "megalith: error: cannot create the directory /proc/none: No such file or directory\n");
  for (const std::vector<std::string>& command : commands) {
    const CommandResult result = megalith_command(command);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.err, "megalith: error: cannot create " + folder.path + "/none/x: No such file or directory\n");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(Output, MayGoToStdoutAlone) {
  const TemporaryFolder folder;
  const std::vector<std::string> logits = {"logits", kStoryteller, "-c", "256", "--tokens", "5", "-o"};
  auto to = [&](const std::string& file) {
    std::vector<std::string> words = logits;
    words.push_back(file);
    return megalith_command(words);
  };
  ASSERT_EQ(to(folder / "x").code, 0);
  const CommandResult result = to("-");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out == read_text(folder / "x"));
  EXPECT_EQ(result.err, "logits of 1 token in stdout\n");
  const CommandResult latency =
      megalith_command({"bench", "latency", kStoryteller, "--input-len", "4", "--output-len", "4", "-c", "256",
                        "--batch-size", "1", "--num-iters-warmup", "0", "--num-iters", "2", "--output-json", "-"});
  EXPECT_EQ(nlohmann::json::parse(latency.out).at("latencies").size(), 2u);
  EXPECT_THAT(latency.err, HasSubstr("Avg latency: "));
}

TEST(BenchKernel, HoldsAnOperatorAgainstBothLimits) {
  const CommandResult result = megalith_command(
      {"bench", "kernel", "rmsnorm", "-s", "T=2,H=256", "-s", "H=64,T=1", "-r", "5", "-t", "1", "--dtype", "f32"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("| operator | shape "));
  EXPECT_THAT(result.out, ContainsRegex("\\| rmsnorm +\\| H=256 T=2 +\\| f32 +\\| cpu +\\| +1 \\| +[0-9.]+ \\|"));
  EXPECT_THAT(result.out, ContainsRegex("\\| rmsnorm +\\| H=64 T=1 "));
  EXPECT_THAT(result.out, ContainsRegex("limits: [0-9.]+ GB/s read, [0-9.]+ GFLOP/s multiplied, .* medians of 5 runs"));
}

TEST(BenchKernel, JsonHasEveryRunOfFourShapes) {
  const CommandResult result = megalith_command({"bench", "kernel", "silu_mul", "-r", "3", "-t", "1", "-o", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  ASSERT_EQ(rows.size(), 4u);
  double rows_before = 0;
  for (const auto& row : rows) {
    auto samples = row.at("samples_us").get<std::vector<double>>();
    ASSERT_EQ(samples.size(), 3u);
    const double median = row.at("median_us"), bytes = row.at("bytes");
    std::ranges::sort(samples);  // two of them may be the same
    EXPECT_EQ(samples[1], median);
    EXPECT_LE(row.at("p10_us").get<double>(), median);
    EXPECT_GE(row.at("p90_us").get<double>(), median);
    EXPECT_EQ(bytes, 3 * 2 * 4096 * row.at("sizes").at("T").get<double>());
    EXPECT_NEAR(row.at("gbs").get<double>(), bytes / median / 1e3, 1e-2 * bytes / median / 1e3);
    expect_share(row.at("read_share"), row.at("gbs"), row.at("read_gbs"));
    EXPECT_GT(row.at("multiply_gflops").get<double>(), 0);
    EXPECT_GT(row.at("sizes").at("T").get<double>(), rows_before);
    rows_before = row.at("sizes").at("T");
  }
}

TEST(BenchKernel, SaysWhatItCannotMeasure) {
  auto error = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "kernel"});
    return megalith_command(more);
  };
  EXPECT_EQ(error({}).code, 2);
  EXPECT_EQ(error({"rmsnorm", "-s", "T=1,H"}).code, 2);
  EXPECT_THAT(error({"rmsnorm", "-s", "T=0,H=4"}).err, HasSubstr("\"T=0\" is no size, want such as T=8,H=4096"));
  EXPECT_THAT(error({"rmsnom"}).err, HasSubstr("there is no operator \"rmsnom\"; known are"));
  EXPECT_THAT(error({"rmsnorm", "-s", "T=1"}).err, HasSubstr("[rmsnorm] the size H is missing"));
  EXPECT_THAT(error({"sampling"}).err, HasSubstr("[sampling]"));
  EXPECT_THAT(error({"copy", "-s", "T=100000000,H=1000000"}).err,
              HasSubstr("[memory] the operands of \"bench copy\" and their random values take "));
}

// Rows that a table points into, an operator that no registry has, a dynamic size, and a weight.
constexpr const char* kGraph = R"(operator halve
  tasks h 16, t 1
  test H=64 T=3
  input x: f32[T, H]
  output y: f32[T, H]
  { [t, h] : 0 <= t < T and 0 <= h < H }
  y[t, h] = 0.5 * f32(x[t, h])
end
graph picked
state counts: i32[2]
state ids: i32[4]
state out: f32[4, 256]
constant table: bf16[100, 128]
constant norm: bf16[128]
constant w: bf16[256, 128]
dynamic rows = counts[1]
x: f32[4, 128] = embedding(ids, table)  # lookup
halved: f32[4, 128] = halve(x)  # halved
normed: bf16[4, 128] = rmsnorm(halved, norm) eps=1e-06  # normed
out: f32[4, 256] = linear(normed, w)  # product
values ids = 3, 99, 0, 7
)";

TEST(BenchGraph, TimesAnIterationOfAGraphInAFile) {
  const TemporaryFolder folder;
  write_text(folder / "picked.graph", kGraph);
  const CommandResult table = megalith_command({"bench", "graph", folder / "picked.graph", "-r", "3", "-t", "1"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("| graph "));
  EXPECT_THAT(table.out, ContainsRegex("picked.graph +\\| +[0-9]+ \\| 64.2 KiB +\\| cpu +\\| +1 \\| +[0-9.]+ \\|"));
  EXPECT_THAT(table.out, ContainsRegex("over 3 runs of many in one launch; [0-9.]+ GB/s read"));
  int64_t nodes[2] = {};
  for (const bool as_it_is : {false, true}) {
    std::vector<std::string> words = {"bench", "graph", "-", "-r", "3", "-t", "1", "-o", "json"};
    if (as_it_is) words.emplace_back("--no-optimize");
    const CommandResult result = megalith_command(words, {.stdin_text = kGraph});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto rows = nlohmann::json::parse(result.out);
    ASSERT_EQ(rows.size(), 1u);
    const auto& row = rows[0];
    EXPECT_EQ(row.at("graph"), "picked");
    EXPECT_EQ(row.at("optimized"), !as_it_is);
    EXPECT_EQ(row.at("weight_bytes"), 2 * (256 * 128 + 128));  // not the table: a row of it is read for each id
    EXPECT_EQ(row.at("samples_us").size(), 3u);
    EXPECT_GT(row.at("iterations").get<int64_t>(), 1);
    const double us = row.at("median_us"), gbs = row.at("gbs"), bytes = row.at("weight_bytes");
    EXPECT_NEAR(gbs, bytes / us / 1e3, 1e-2 * gbs + 1e-4);
    expect_share(row.at("read_share"), gbs, row.at("read_gbs"));
    nodes[as_it_is] = row.at("nodes");
  }
  EXPECT_EQ(nodes[true], 4);
  EXPECT_LT(nodes[false], 4);
}

TEST(BenchGraph, SaysWhatAFileLacks) {
  const auto error_of = [](const std::string& text) {
    const CommandResult result = megalith_command({"bench", "graph", "-"}, {.stdin_text = text});
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  const std::string text = kGraph;
  EXPECT_THAT(
      error_of(text.substr(text.find("graph picked"))),
      HasSubstr("stdin: line 10 of the graph's file: there is no operator \"halve\" (node \"halved\"): one that "
                "Python declares must stand in the file"));
  EXPECT_THAT(error_of("graph none\n"), HasSubstr("the graph \"none\" has no nodes"));
  EXPECT_THAT(error_of("{}"), HasSubstr("stands before the line that begins with \"graph \""));
  EXPECT_EQ(megalith_command({"bench", "graph"}).code, 2);
  EXPECT_EQ(megalith_command({"bench", "graph", "/none.graph"}).code, 1);
}

TEST(BenchLatency, PrintsLatenciesAsOthersDo) {
  const TemporaryFolder folder;
  const CommandResult result = megalith_command({"bench", "latency", kStoryteller, "--input-len", "8", "--output-len",
                                                 "8", "--batch-size", "2", "-c", "256", "--num-iters-warmup", "1",
                                                 "--num-iters", "4", "--output-json", folder / "latency.json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("Avg latency: "));
  EXPECT_THAT(result.out, AllOf(ContainsRegex("\n50% percentile latency: [0-9.]+ seconds\n"),
                                ContainsRegex("\n99% percentile latency: [0-9.]+ seconds\n")));
  const auto json = nlohmann::json::parse(read_text(folder / "latency.json"));
  EXPECT_EQ(json.at("latencies").size(), 4u);
  EXPECT_LE(json.at("percentiles").at("10").get<double>(), json.at("percentiles").at("90").get<double>());
  EXPECT_GT(json.at("avg_latency").get<double>(), 0);
}

TEST(Profile, NamesWhatBoundsTheStepAndWritesATrace) {
  const TemporaryFolder folder;
  const CommandResult result =
      megalith_command({"profile", kStoryteller, "-n", "12", "-t", "2", "-o", folder / "trace.json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("bound by "));
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("\nrmsnorm_linear "), HasSubstr("\nattention_partial "), HasSubstr("\ntail "),
            ContainsRegex("\nworkers   busy [0-9.]+ %, waiting [0-9.]+ %, at the iteration barrier [0-9.]+ %")));
  const auto trace = nlohmann::json::parse(read_text(folder / "trace.json"));
  int heads = 0;
  for (const auto& event : trace.at("traceEvents"))
    heads += event.at("name").get<std::string>().starts_with("lm_head[");
  EXPECT_GE(heads, 12);
  EXPECT_EQ(result.err,
            "trace written to " + (folder / "trace.json") + ": open it at ui.perfetto.dev or chrome://tracing\n");
}

TEST(Profile, OfAPromptLooksAtItsChunks) {
  const TemporaryFolder folder;
  const auto profile = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"profile", kStoryteller, "-t", "2", "-o", folder / "trace.json", "-p"});
    return megalith_command(arguments);
  };
  const CommandResult result = profile({"60", "-b", "16"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("bound by "), HasSubstr("\nrmsnorm_gate_up ")));
  const CommandResult of_one = profile({"16", "-b", "16"});
  EXPECT_EQ(of_one.code, 2);
  EXPECT_THAT(of_one.err, HasSubstr("16 tokens are worked on in one step of up to 16"));
  const CommandResult behind = profile({"60", "-b", "16", "-d", "5"});
  EXPECT_EQ(behind.code, 2);
  EXPECT_THAT(behind.err, HasSubstr("add --load-format dummy"));
  // Of 12 rows a step 4 are others', so there are 8 steps instead of 5; the last has no next one.
  const CommandResult beside =
      profile({"60", "-b", "12", "--load-format", "dummy", "--max-batch", "5", "--beside", "4", "-d", "8"});
  ASSERT_EQ(beside.code, 0) << beside.err;
  const auto number_before = [&](const std::string& what) {
    std::smatch found;
    return std::regex_search(beside.out, found, std::regex("([0-9]+) " + what)) ? std::stoi(found[1]) : 0;
  };
  EXPECT_EQ(number_before("steps?\n") + number_before("steps? of up to"), 7) << beside.out;  // some may be set aside
  const CommandResult too_many = profile({"60", "-b", "12", "--max-batch", "4", "--beside", "4"});
  EXPECT_EQ(too_many.code, 2);
  EXPECT_THAT(too_many.err, HasSubstr("5 requests, and there is room for 4: ask for --max-batch 5"));
}

TEST(BenchArrival, TellsHowSoonRequestsBeginAndAreGone) {
  const CommandResult result = megalith_command(
      {"bench", "arrival", kStoryteller, "--requests", "20", "-t", "1", "-c", "256", "--max-batch", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string figures = " +p50 +[0-9.]+ us +p99 +[0-9.]+ +most +[0-9.]+\n";
  EXPECT_THAT(result.out,
              ContainsRegex("a step" + figures + "submit" + figures + "submit to the iteration with it" + figures +
                            "  [0-9]+ of 20 came too late for the next iteration, at most [0-9.]+ us before "
                            "it began, and [0-9.]+ with submit\\(\\) behind them\nabort to its pages being free" +
                            figures));
  const CommandResult brief = megalith_command(
      {"bench", "arrival", kStoryteller, "--input-len", "200", "-t", "1", "-c", "256", "--max-batch", "2"});
  EXPECT_EQ(brief.code, 1);
  EXPECT_THAT(brief.err, HasSubstr("--max-seq-len is 256, want at least 64 tokens more than --input-len"));
  const CommandResult single =
      megalith_command({"bench", "arrival", kStoryteller, "-t", "1", "-c", "256", "--max-batch", "1"});
  EXPECT_EQ(single.code, 1);
  EXPECT_THAT(single.err, HasSubstr("want --max-batch 2 or more"));
}

TEST(BenchSoak, MakesTheSameTextsUntilThereAreEnoughSteps) {
  const CommandResult result =
      megalith_command({"bench", "soak", kStoryteller, "--steps", "50", "--output-len", "20", "-t", "2", "-c", "256"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              ContainsRegex("^60 steps in [0-9.]+ s, 3 runs with the same bits: tokens [0-9a-f]+, logits "));
  const CommandResult of_two = megalith_command({"bench", "soak", kStoryteller, "--steps", "40", "--output-len", "20",
                                                 "-t", "2", "-c", "256", "--max-batch", "2"});
  ASSERT_EQ(of_two.code, 0) << of_two.err;
  EXPECT_THAT(of_two.out,
              ContainsRegex("^40 steps in [0-9.]+ s, 2 runs with the same bits: tokens [0-9a-f]+, logits "));
}

TEST(BenchSoak, HasRequestsThatComeAndGo) {
  const CommandResult result = megalith_command({"bench", "soak", kStoryteller, "--requests", "60", "--max-batch", "4",
                                                 "--num-pages", "24", "-t", "1", "-c", "128", "--batch-invariant"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("^60 requests in [0-9.]+ s, [1-9][0-9]* of them given up: [0-9]+ tokens, "));
  EXPECT_THAT(result.out, testing::HasSubstr("with other tokens than alone 0, with other log-probabilities 0\n"));
  EXPECT_THAT(result.out, testing::HasSubstr("pages in use 0 of 24, 0 were; "));
}

// Alone they have none.
TEST(BenchSoak, HasRequestsWithDraftsThatComeAndGo) {
  const CommandResult result =
      megalith_command({"bench", "soak", kStoryteller, "--requests", "60", "--max-batch", "4", "--num-pages", "24",
                        "-t", "1", "-c", "128", "--batch-invariant", "--draft-tokens", "4"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("with other tokens than alone 0, with other log-probabilities 0\n"));
  EXPECT_THAT(result.out, ContainsRegex("  drafts [1-9][0-9]* times, [1-9][0-9]* tokens, [1-9][0-9]* of them right\n"));
  EXPECT_THAT(result.out, HasSubstr("pages in use 0 of 24, 0 were; "));
}

TEST(Logits, AreThoseOfEachTokenAndOnlyOfThoseBeforeIt) {
  const TemporaryFolder folder;
  auto logits_of = [&](const std::string& tokens) {
    const std::string file = folder / (tokens + ".safetensors");
    const CommandResult result = megalith_command({"logits", kStoryteller, "--tokens", tokens, "-o", file, "-t", "1"});
    EXPECT_EQ(result.code, 0) << result.err;
    const Weights weights = Weights::open(file);
    const WeightTensor& tensor = weights.get("logits");
    const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
    EXPECT_EQ(tensor.shape[0], static_cast<int64_t>(std::ranges::count(tokens, ',')) + 1);
    return std::vector<float>(values, values + tensor.shape[0] * tensor.shape[1]);
  };
  const std::vector<float> all = logits_of("5,6,7"), two = logits_of("5,6");
  ASSERT_EQ(all.size() * 2, two.size() * 3);
  EXPECT_TRUE(std::ranges::equal(two, std::span(all).first(two.size())));
  EXPECT_NE(std::vector<float>(all.end() - 100, all.end()), std::vector<float>(two.end() - 100, two.end()));
}

TEST(Logits, SayWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string file = folder / "x";
  EXPECT_EQ(megalith_command({"logits", kStoryteller, "-o", file}).code, 2);
  EXPECT_EQ(megalith_command({"logits", kStoryteller, "--tokens", "1"}).code, 2);
  const CommandResult result = megalith_command({"logits", kStoryteller, "--tokens", "999999", "-o", file});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("999999"));
  // All tokens are looked at before anything is worked through, the last one as well.
  const CommandResult last = megalith_command({"logits", kStoryteller, "--tokens", "5,6,999999", "-o", file});
  EXPECT_EQ(last.code, 1);
  EXPECT_EQ(last.err, "megalith: error: prompt 1 contains the token 999999, but the vocabulary has 4096 tokens\n");
  const CommandResult many =
      megalith_command({"logits", kStoryteller, "-c", "4", "--tokens", "1,2,3,4,5,6", "-o", file});
  EXPECT_EQ(many.code, 1);
  EXPECT_THAT(many.err, HasSubstr("prompt 1 has 6 tokens, but a sequence may have 4 (--max-seq-len)"));
  // One beyond 32 bits was taken for the token that its last 32 bits are.
  const CommandResult wide = megalith_command({"logits", kStoryteller, "--tokens", "4294967297", "-o", file});
  EXPECT_EQ(wide.code, 2);
  EXPECT_THAT(wide.err, HasSubstr("\"4294967297\" is not what it takes, want a whole number, 0 to 2147483647"));
}

}  // namespace
}  // namespace megalith::test
