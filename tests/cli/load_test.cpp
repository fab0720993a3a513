// The parts of `megalith bench serve` that need no server: what is sent and when, and what the figures say.
#include <gmock/gmock.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "cli/command_run.h"
#include "megalith/base/error.h"
#include "tools/base_url.h"
#include "tools/load_figures.h"
#include "tools/load_plan.h"
#include "tools/statistics.h"

namespace megalith::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tools::BaseUrl;
using tools::LoadAnswer;
using tools::LoadFailure;
using tools::LoadFigures;
using tools::LoadPlan;
using tools::LoadRecord;
using tools::LoadRequest;
using tools::LoadRow;
using tools::LoadRun;
using tools::TokenEvent;

TEST(BaseUrl, IsTakenApart) {
  const BaseUrl url = BaseUrl::parse("http://[::1]:81/some/where/");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 81);
  EXPECT_EQ(url.authority(), "[::1]:81");
  EXPECT_EQ(url.path("/v1/models"), "/some/where/v1/models");
  EXPECT_EQ(BaseUrl::parse("http://a.b").port, 80);
  EXPECT_EQ(BaseUrl::parse("http://a.b/v1").path("/v1/models"), "/v1/models");
  for (const char* text : {"", "a", "ftp://a", "http://", "http://:80", "http://a:", "http://a:x", "http://a:65536",
                           "http://[::1", "http://a b", "http://a?x", "http://a\r\nX: y"})
    EXPECT_THROW(BaseUrl::parse(text), UserError) << text;
}

// Times between requests: the mean is that of the rate, and the deviation by the mean 1 / sqrt(burstiness).
TEST(LoadPlan, RequestsComeAtTheRateThatWasAskedFor) {
  for (const double burstiness : {0.25, 1.0, 16.0}) {
    const LoadPlan plan{.input_len = 1, .rate = 50, .burstiness = burstiness};
    const std::vector<LoadRequest> requests = plan.requests(4000, 0, 0);
    std::vector<double> gaps;
    double last = 0;
    for (const LoadRequest& request : requests) gaps.push_back(request.due_ms - std::exchange(last, request.due_ms));
    EXPECT_NEAR(last, 4000 / 50.0 * 1e3, 1e-3);
    EXPECT_GE(*std::ranges::min_element(gaps), 0);
    EXPECT_NEAR(tools::standard_deviation(gaps) / tools::mean(gaps), 1 / std::sqrt(burstiness),
                0.1 / std::sqrt(burstiness));
  }
  for (const LoadRequest& request : LoadPlan{}.requests(3, 0, 0)) EXPECT_EQ(request.due_ms, 0);
}

TEST(LoadPlan, LengthsAreSpreadOverTheirRange) {
  const LoadPlan plan{.input_len = 100, .output_len = 10, .range_ratio = 0.2};
  std::vector<double> in, out;
  for (const LoadRequest& request : plan.requests(2000, 0, 0)) {
    in.push_back(static_cast<double>(request.prompt_tokens));
    out.push_back(static_cast<double>(request.asked_tokens));
  }
  EXPECT_THAT((std::vector{tools::percentile(in, 0), tools::percentile(in, 100), tools::percentile(out, 0),
                           tools::percentile(out, 100)}),
              ElementsAre(80, 120, 8, 12));
  EXPECT_NEAR(tools::mean(in), 100, 1);
  EXPECT_NEAR(tools::mean(out), 10, 0.2);
}

TEST(LoadPlan, RefusesWhatDoesNotFitIntoMemory) {
  try {
    LoadPlan{.input_len = 1 << 20}.requests(1000, 0, 0);
    FAIL();
  } catch (const UserError& error) { EXPECT_THAT(error.what(), HasSubstr("give fewer (--num-prompts)")); }
}

TEST(LoadPlan, NamesTheLineThatIsNoPrompt) {
  const TemporaryFolder folder;
  const auto complaint = [&](const std::string& text) -> std::string {
    write_text(folder / "p", text);
    try {
      tools::read_prompts(folder / "p", false);
    } catch (const UserError& error) { return error.what(); }
    return "none";
  };
  EXPECT_THAT(complaint("{\"prompt\":\"a\"}\n{\"prompt\":"), HasSubstr("line 2 of " + (folder / "p")));
  EXPECT_THAT(complaint("[]\n"), HasSubstr("line 1 of"));
  EXPECT_THAT(complaint("{}"), HasSubstr("prompt"));
  EXPECT_THAT(complaint(R"({"prompt":[]})"), HasSubstr("is empty, want token ids"));
  EXPECT_THAT(complaint(R"({"prompt":[-1]})"), HasSubstr("prompt"));
  EXPECT_THAT(complaint(R"({"prompt":"a","output_tokens":0})"), HasSubstr("output_tokens"));
  EXPECT_THAT(complaint("\n\n"), HasSubstr("has no prompts"));
  EXPECT_EQ(complaint(R"({"prompt":"a"})"), "none");
}

LoadRecord record(double sent_ms, std::vector<TokenEvent> events) {
  LoadRecord result{.sent_ms = sent_ms, .prompt_tokens = 10, .asked_tokens = 4, .events = std::move(events)};
  for (const TokenEvent& event : result.events) result.output_tokens += event.tokens;
  result.ended_ms = sent_ms + result.events.back().ms + 1;
  result.is_counted = result.is_counted_each = true;
  return result;
}

TEST(LoadFigures, FollowFromTheTimesOfEvents) {
  LoadRun run{.records = {record(100, {{50, 1}, {60, 1}, {80, 2}}), record(200, {{30, 4}})}, .peak = 2};
  run.records.push_back({.sent_ms = 300, .ended_ms = 1100, .failure = LoadFailure{"status 429", "full", "7"}});
  run.records[0].late_ms = 3;
  const LoadFigures figures = LoadFigures::of({.concurrency = 2, .requests = 3}, run, {{"ttft", 40}, {"e2el", 1000}});
  EXPECT_EQ(figures.sent, 3);
  EXPECT_EQ(figures.completed, 2);
  EXPECT_EQ(figures.failed(), 1);
  EXPECT_EQ(figures.good, 1);
  EXPECT_DOUBLE_EQ(figures.seconds, 1);  // from 100 to 1100 ms
  EXPECT_EQ(figures.prompt_tokens, 20);
  EXPECT_EQ(figures.output_tokens, 8);
  EXPECT_DOUBLE_EQ(figures.tokens_per_event(), 2);
  EXPECT_THAT(figures.ms.at("ttft"), ElementsAre(50, 30));
  EXPECT_THAT(figures.ms.at("itl"), ElementsAre(10, 20));
  EXPECT_THAT(figures.ms.at("tpot"), ElementsAre(10));  // 3 tokens in 30 ms; the other has none behind its first event
  EXPECT_THAT(figures.ms.at("e2el"), ElementsAre(80, 30));
  EXPECT_EQ(figures.failures.at("status 429").count, 1);
  EXPECT_EQ(figures.failures.at("status 429").retry_after, "7");
  EXPECT_THAT(figures.send_late_ms, ElementsAre(3, 0, 0));
  EXPECT_THAT(figures.notes(), ElementsAre(HasSubstr("2 at a time: an event holds 2.00 tokens")));
}

// What the client itself took is said where it is a tenth of what it measured, and not below.
TEST(LoadFigures, WarnOfALateClient) {
  const LoadRow row{.rate = 5, .concurrency = 3};
  LoadRun run{.records = {record(0, {{50, 1}, {60, 1}, {70, 1}, {80, 1}})}, .wake_late_ms = {0.9}, .core_share = 0.5};
  EXPECT_THAT(LoadFigures::of(row, run, {}).warnings(), IsEmpty());
  run.wake_late_ms = {1.5};
  EXPECT_THAT(
      LoadFigures::of(row, run, {}).warnings(),
      ElementsAre(HasSubstr("5/s, 3 at a time: the client was woken up to 1.500 ms late (p99), which is 15 % of "
                            "the median ITL of 10.000 ms")));
  run.wake_late_ms = {};
  run.records[0].late_ms = 20;
  EXPECT_THAT(LoadFigures::of(row, run, {}).warnings(), ElementsAre(HasSubstr("sent requests up to 20.000 ms late")));
  run.records[0].late_ms = 0;
  run.core_share = 0.9;
  EXPECT_THAT(LoadFigures::of(row, run, {}).warnings(), ElementsAre(HasSubstr("busy for 90 % of the time")));
}

TEST(LoadAnswer, AnUsageThatComesAtTheEndIsNoEvent) {
  LoadAnswer answer(true);
  answer.take("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", 1);
  for (const double ms : {10.0, 20.0}) answer.take("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", ms);
  // Some servers count in the event that has the finish_reason.
  answer.take("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":6}}\n\n",
              30);
  EXPECT_FALSE(answer.is_over());
  answer.take("data: [DONE]\n\n", 40);
  ASSERT_TRUE(answer.is_over());
  LoadRecord record;
  answer.fill(record);
  EXPECT_FALSE(record.failure);
  EXPECT_EQ(record.output_tokens, 6);
  EXPECT_EQ(record.events.size(), 2u);
  EXPECT_EQ(record.e2el_ms(), 20);
  EXPECT_EQ(record.tpot_ms(), 2);  // 5 tokens behind the first
  EXPECT_TRUE(record.is_counted && !record.is_counted_each);
}

}  // namespace
}  // namespace megalith::test
