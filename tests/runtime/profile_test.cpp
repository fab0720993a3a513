// Profiles: records made by hand, whose summary is known, and records that workers write.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/runtime/profile_layers.h"
#include "megalith/runtime/profile_page.h"
#include "megalith/runtime/profile_summary.h"
#include "runtime/test_kernel.h"

namespace megalith::runtime {
namespace {

TEST(ProfileRings, UnrollInOrderAlsoAfterTheyWrapped) {
  std::vector<ProfileRecord> ring(4);
  for (u32 n = 0; n < 6; ++n) ring[n & 3] = {n, n / 2, 100 + 10 * n, 101 + 10 * n, 105 + 10 * n, 0, 30};
  // The workers' clock has three ticks a nanosecond.
  const std::vector<ClockPair> clocks = {{100, 5000}, {400, 5100}};
  const std::vector<ProfileRecord> all = profile_unroll(ring.data(), 4, 6, clocks);
  ASSERT_EQ(all.size(), 4u);
  for (u32 n = 0; n < 4; ++n) EXPECT_EQ(all[n].task, n + 2);
  EXPECT_EQ(all[0].begin_ns, 5000u + 20 / 3);
  EXPECT_EQ(all[3].end_ns, 5000u + 55 / 3);
  EXPECT_EQ(all[3].idle_waiting_ns, 0u);
  EXPECT_EQ(all[3].idle_busy_ns, 30u / 3) << "on the same clock";
  EXPECT_EQ(profile_unroll(ring.data(), 4, 3, clocks).size(), 3u);
  EXPECT_TRUE(profile_unroll(ring.data(), 4, 0, {}).empty()) << "who did nothing has no clocks either";
}

// A clock that is a thousandth too fast in the first half of a run, and too slow in the second; looks at the shared one
// are good to a microsecond.
TEST(ProfileRings, ClocksThatDriftAreFollowed) {
  constexpr u32 kTasks = 4000, kCapacity = 4096;
  const auto own_clock = [](u64 ns) {
    const u64 half = kTasks * 500;
    const double x = static_cast<double>(ns), h = static_cast<double>(half);
    return static_cast<u64>(2 * (ns < half ? x * 1.001 : h * 1.001 + (x - h) * 0.999)) + 777;
  };
  std::vector<ProfileRecord> ring(kCapacity);
  std::vector<ProfileClock> clocks(profile_clock_capacity(kCapacity));
  const auto look = [&](u32 index, u64 ns) { clocks[index & (clocks.size() - 1)] = {own_clock(ns), ns / 1000 * 1000}; };
  for (u32 n = 0; n < kTasks; ++n) {
    const u64 begin = u64{n} * 1000, end = begin + 900;
    ring[n] = {n, 0, own_clock(begin), own_clock(begin + 100), own_clock(end)};
    if (n % kTasksOfClock == 0) look(n / kTasksOfClock, end + n % 7 * 137);  // at any time of the microsecond
  }
  look(kTasks / kTasksOfClock, u64{kTasks} * 1000);
  const std::vector<ProfileRecord> all =
      profile_unroll(ring.data(), kCapacity, kTasks, profile_clocks_of(clocks.data(), kCapacity, kTasks));
  ASSERT_EQ(all.size(), kTasks);
  double worst = 0;
  for (u32 n = 0; n < kTasks; ++n)
    worst = std::max(worst, std::abs(static_cast<double>(static_cast<i64>(all[n].end_ns - (u64{n} * 1000 + 900)))));
  EXPECT_LT(worst, 1100) << "of a run of four milliseconds, where a line would be off by two microseconds";
}

// A clock of 2 GHz that falls to 1.5; a piece that is too short says nothing.
TEST(ProfileRings, SayHowFastTheClockWas) {
  const std::vector<ClockPair> clocks = {
      {100, 0}, {1'000'100, 500'000}, {1'750'100, 1'000'000}, {1'750'101, 1'000'900}};
  const std::optional<ClockRate> rate = clock_rate_of(clocks);
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->mean, 1750);
  EXPECT_DOUBLE_EQ(rate->least, 1500);
  EXPECT_DOUBLE_EQ(rate->most, 2000);
  EXPECT_FALSE(clock_rate_of({clocks[0]}));
  EXPECT_FALSE(clock_rate_of({}));
}

TEST(ProfileRings, CountersMayWrap) {
  std::vector<ProfileRecord> ring(4);
  const u32 done = 2;  // after 2^32
  ring[(done - 1) & 3].task = 1;
  ring[(done - 2) & 3].task = 2;
  const std::vector<ProfileRecord> all = profile_unroll(ring.data(), 4, done, {{0, 0}, {1, 1}});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].task, 2u);
  EXPECT_EQ(all[1].task, 1u);
}

TEST(ProfileRings, RefuseToBeTooLarge) {
  EXPECT_EQ(ProfileRings(2, 5).capacity(), 8u);
  EXPECT_THROW(ProfileRings(1, u64{1} << 40), UserError);
}

// Three layers of two parts, each by both workers; what the first layer leaves to be done is beside the second one's
// first part. Layer n begins at 1000 n: "a" is ready 10 and 30 after that and done at 100 and 140; "b" is ready at 200
// and 210, done at 900 and, with which the layer ends, 1000.
TEST(ProfileLayers, AreTimedFromTheEndOfTheOneBefore) {
  task::TaskGraph graph;
  Profile profile;
  profile.workers.resize(2);
  const auto add = [&](const std::string& name, int node, size_t worker, u64 ready, u64 end) {
    graph.tasks.push_back(task::Task{.name = name, .node = node});
    for (u32 i = 0; i < 2; ++i) {
      const u64 begin =
          u64{17'000'000'000'000'000'000u} + i * 10'000;  // neither doubled in a u64 nor exact in a double
      profile.workers[worker].push_back(
          {static_cast<u32>(graph.tasks.size() - 1), i, begin + ready - 5, begin + ready, begin + end});
    }
  };
  int node = 0;
  add("embed", node++, 0, 0, 1);
  for (int layer = 0; layer < 3; ++layer) {
    const u64 at = static_cast<u64>(layer) * 1000;
    for (size_t w = 0; w < 2; ++w)
      add(fmt::format("layer.{}.a[n={}:{}]", layer, w, w + 1), node, w, at + 10 + 20 * w, at + 100 + 40 * w);
    ++node;
    if (layer == 1) add("layer.0.left", node++, 0, at + 110, at + 150);
    for (size_t w = 0; w < 2; ++w)
      add(fmt::format("layer.{}.b[n={}:{}]", layer, w, w + 1), node, w, at + 200 + 10 * w, at + 900 + 100 * w);
    ++node;
  }
  add("layers", node++, 0, 3000, 3001);
  add("layer.x.a", node++, 0, 3000, 3001);

  const std::vector<ProfileLayerPart> parts = profile_layers(profile, graph);
  std::vector<std::string> names;
  for (const ProfileLayerPart& part : parts) names.push_back(part.name);
  ASSERT_THAT(names, ::testing::ElementsAre("a", "left", "b"));
  const auto values = [](const Moments& m) { return std::vector<double>{m.first, m.mean, m.last}; };
  EXPECT_EQ(values(parts[0].ready), (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(values(parts[0].end), (std::vector<double>{100, 120, 140}));
  EXPECT_EQ(values(parts[1].end), (std::vector<double>{150, 150, 150}));
  EXPECT_EQ(values(parts[2].ready), (std::vector<double>{200, 205, 210}));
  EXPECT_EQ(values(parts[2].end), (std::vector<double>{900, 950, 1000}));

  // Of which a record is gone that is left out; of one layer alone nothing is said.
  profile.workers[1].clear();
  EXPECT_EQ(profile_layers(profile, graph).size(), 0u);
  graph.tasks.resize(3);
  profile.workers[0].resize(4);
  EXPECT_TRUE(profile_layers(profile, graph).empty());
}

// Two workers, three operators: worker 0 makes x, worker 1 waits for it, both then work on the halves of y; z ends the
// step and is the gate.
struct Graph {
  task::TaskGraph graph;
  std::vector<std::string> operators = {"make", "halve", "end"};

  Graph() {
    graph.name = "hand";
    graph.events = {{"x.ready", 1}, {"y.ready", 2}, {"z.ready", 1}};
    auto task = [](const char* name, int node, std::vector<task::Wait> waits, std::vector<int> signals) {
      return task::Task{.name = name, .node = node, .waits = std::move(waits), .signals = std::move(signals)};
    };
    graph.tasks = {task("x", 0, {}, {0}), task("y[0]", 1, {{0, 1, 0}}, {1}), task("y[1]", 1, {{0, 1, 0}}, {1}),
                   task("z", 2, {{1, 2, 0}}, {2})};
    graph.workers = {{0, 1, 3}, {2}};
    graph.gate = 2;
  }

  /// Steps of 1000 ns: x 0-300, y[0] 310-600, y[1] waits 0-320 and runs until 900, z waits 600-920 and ends at 1000.
  /// `longer`: ns that z takes more in iteration `slow`.
  Profile profile(u32 iterations, u32 slow = kNone, u64 longer = 0) const {
    Profile profile;
    profile.workers.resize(2);
    u64 at = 1'000'000;
    for (u32 i = 0; i < iterations; ++i) {
      const u64 more = i == slow ? longer : 0;
      profile.workers[0].push_back({0, i, at, at, at + 300});
      profile.workers[0].push_back({1, i, at + 300, at + 310, at + 600});
      profile.workers[0].push_back({3, i, at + 600, at + 920, at + 980 + more});
      profile.workers[1].push_back({2, i, at, at + 320, at + 900});
      at += 1000 + more;
    }
    return profile;
  }
};

// Of the graph by hand: z waited for the slower half, the halves for x.
void expect_waits(const ProfileSummary& summary) {
  ASSERT_EQ(summary.waits.size(), 3u);
  EXPECT_EQ(summary.waits[0].waiter, "halve");
  EXPECT_EQ(summary.waits[0].cause, "make");
  EXPECT_DOUBLE_EQ(summary.waits[0].waiting_ns, 10 + 320);
  EXPECT_DOUBLE_EQ(summary.waits[0].after_signal_ns, 10 + 20);
  EXPECT_EQ(summary.waits[1].waiter, "end");
  EXPECT_EQ(summary.waits[1].cause, "halve");
  EXPECT_DOUBLE_EQ(summary.waits[1].after_signal_ns, 20);
}

TEST(ProfileSummary, CountsWhatTheRecordsSay) {
  const Graph hand;
  const ProfileSummary summary = profile_summarize(hand.profile(5), hand.graph, hand.operators);
  EXPECT_EQ(summary.steps, 4);
  EXPECT_EQ(summary.slow_steps, 0);
  EXPECT_DOUBLE_EQ(summary.step_ns, 1000);
  EXPECT_DOUBLE_EQ(summary.median_step_ns, 1000);
  ASSERT_EQ(summary.workers.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.workers[0].busy_ns, 300 + 290 + 60);
  EXPECT_DOUBLE_EQ(summary.workers[0].waiting_ns, 10 + 320);
  EXPECT_DOUBLE_EQ(summary.workers[0].gate_ns, 20);
  EXPECT_DOUBLE_EQ(summary.workers[1].busy_ns, 580);
  EXPECT_DOUBLE_EQ(summary.workers[1].gate_ns, 100);
  EXPECT_DOUBLE_EQ(summary.busy_share() + summary.waiting_share() + summary.gate_share(), 1);
  EXPECT_DOUBLE_EQ(summary.tail_ns, (0 + 80) / 2.0);

  ASSERT_EQ(summary.operators.size(), 3u);
  EXPECT_EQ(summary.operators[0].name, "halve");
  EXPECT_DOUBLE_EQ(summary.operators[0].busy_ns, 290 + 580);
  EXPECT_DOUBLE_EQ(summary.operators[0].tasks, 2);
  EXPECT_DOUBLE_EQ(summary.operators[0].longest_ns, 580);
  EXPECT_DOUBLE_EQ(summary.operators[0].uneven_ns, 580 - (290 + 580) / 2.0);
  EXPECT_EQ(summary.operators[1].name, "make");
  EXPECT_DOUBLE_EQ(summary.operators[1].uneven_ns, 150);

  expect_waits(summary);
  ASSERT_EQ(summary.waits.size(), 3u);  // worker 1 waited at the gate for z
  EXPECT_EQ(summary.waits[2].waiter, "gate");
  EXPECT_EQ(summary.waits[2].cause, "end");
  EXPECT_DOUBLE_EQ(summary.waits[2].waiting_ns, 20 + 100);
  EXPECT_DOUBLE_EQ(summary.waits[2].after_signal_ns, 20 + 20);
  EXPECT_EQ(summary.bound(),
            "bound by waiting: workers are busy 62 % of the step; the largest wait, 16 % of it, is halve for make");
}

TEST(ProfileSummary, SetsStepsAsideThatTheMachineSpentElsewhere) {
  const Graph hand;
  const ProfileSummary summary = profile_summarize(hand.profile(9, 4, 5000), hand.graph, hand.operators);
  EXPECT_EQ(summary.steps, 7);
  EXPECT_EQ(summary.slow_steps, 1);
  EXPECT_DOUBLE_EQ(summary.longest_step_ns, 6000);
  EXPECT_DOUBLE_EQ(summary.step_ns, 1000);
  EXPECT_DOUBLE_EQ(summary.workers[0].busy_ns, 300 + 290 + 60);
}

TEST(ProfileSummary, LooksAtWholeIterationsOnly) {
  const Graph hand;
  Profile profile = hand.profile(6);
  profile.workers[0].erase(profile.workers[0].begin(), profile.workers[0].begin() + 2);  // a ring that wrapped
  profile.workers[1].pop_back();                                                         // a run that was cancelled
  const ProfileSummary summary = profile_summarize(profile, hand.graph, hand.operators);
  EXPECT_EQ(summary.steps, 3);
  EXPECT_DOUBLE_EQ(summary.step_ns, 1000);
  EXPECT_DOUBLE_EQ(summary.workers[0].busy_ns, 650);
  EXPECT_THROW(profile_summarize(hand.profile(1), hand.graph, hand.operators), UserError);
  EXPECT_THROW(profile_summarize({}, hand.graph, hand.operators), InternalError);
}

TEST(ProfileSummary, SaysWhenWorkIsTheBound) {
  const Graph hand;
  Profile profile = hand.profile(4);
  for (auto& records : profile.workers)
    for (ProfileRecord& record : records) record.ready_ns = record.begin_ns;
  EXPECT_THAT(profile_summarize(profile, hand.graph, hand.operators).bound(),
              ::testing::StartsWith("bound by work: workers are busy 94 % of the step, 60 % of it in halve"));
}

// A stream that asks memory for nothing while tasks wait is the waits' fault, while they run the tasks'.
TEST(ProfileSummary, SaysWhetherStreamsAreIdle) {
  const Graph hand;
  Profile profile = hand.profile(5);
  profile.has_streams = true;
  const auto set_idle = [&](u32 waiting, u32 busy) {
    for (auto& records : profile.workers)
      for (ProfileRecord& record : records) {
        record.idle_waiting_ns = record.task == 2 ? waiting : 0;
        record.idle_busy_ns = record.task == 2 ? busy : 0;
      }
    return profile_summarize(profile, hand.graph, hand.operators);
  };
  const ProfileSummary idle = set_idle(300, 20);
  EXPECT_DOUBLE_EQ(idle.workers[0].idle_waiting_ns, 0);
  EXPECT_DOUBLE_EQ(idle.workers[1].idle_waiting_ns, 300);
  EXPECT_DOUBLE_EQ(idle.workers[1].idle_busy_ns, 20);
  EXPECT_DOUBLE_EQ(idle.idle_waiting_share(), 0.15);
  EXPECT_DOUBLE_EQ(idle.idle_busy_share(), 0.01);
  EXPECT_DOUBLE_EQ(idle.operators[0].idle_ns, 320);
  EXPECT_DOUBLE_EQ(idle.operators[1].idle_ns, 0);
  EXPECT_EQ(
      idle.bound(),
      "bound by waiting: the streams of weights are idle 16 % of the step, 15 % while tasks wait and 1 % while they "
      "run; the largest wait, 16 % of the step, is halve for make");
  EXPECT_THAT(set_idle(20, 300).bound(), ::testing::EndsWith("15 % while they run; most, 16 %, in halve"));
  EXPECT_EQ(
      set_idle(100, 40).bound(),
      "bound by memory: the streams of weights are idle 7 % of the step, 5 % while tasks wait and 2 % while they run");
}

// x and y carry flags: no event says when they come, but who writes them.
struct FlaggedGraph : Graph {
  FlaggedGraph() {
    graph.buffers = {{.name = "layer.0.x", .shape = {1}, .memory = task::Memory::exchange},
                     {.name = "layer.0.y", .shape = {2}, .memory = task::Memory::exchange}};
    const task::Region x = {0, {{0}, {1}}}, low = {1, {{0}, {1}}}, high = {1, {{1}, {2}}}, y = {1, {{0}, {2}}};
    std::vector<task::Task>& tasks = graph.tasks;
    for (task::Task& task : tasks) task.waits.clear();
    tasks[0].writes = {x};
    tasks[1].reads = tasks[2].reads = {x};
    tasks[1].writes = {low};
    tasks[2].writes = {high};
    tasks[3].reads = {y};
  }
};

TEST(ProfileSummary, NamesWhoseFlagsWereWaitedFor) {
  const FlaggedGraph hand;
  const ProfileSummary summary = profile_summarize(hand.profile(5), hand.graph, hand.operators);
  expect_waits(summary);
  EXPECT_EQ(summary.waits[0].through, "flags of layer.*.x");
  EXPECT_EQ(summary.waits[1].through, "flags of layer.*.y");
  EXPECT_EQ(summary.waits[2].through, "events") << "the gate's";
}

// A wait for flags has its tensor, and an arrow from the task that wrote the last of it.
TEST(ProfileTrace, LeadsFromTheWriterToWhoeverWaitsForItsFlags) {
  const FlaggedGraph hand;
  const auto trace = nlohmann::json::parse(profile_trace(hand.profile(1), hand.graph, hand.operators));
  std::vector<nlohmann::json> waits, arrows;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "wait") waits.push_back(event);
    if (event.value("cat", "") == "flags") arrows.push_back(event);
  }
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_EQ(waits[1].at("name"), "wait for flags of layer.0.y[0:2]");
  EXPECT_EQ(waits[1].at("args").at("tensor"), "layer.0.y[0:2]");
  EXPECT_EQ(waits[1].at("args").at("writer"), hand.graph.tasks[2].name) << "y[1] ends behind y[0]";
  ASSERT_EQ(arrows.size(), 2u * 3) << "from x to both halves of y, and from the later of them to z";
  EXPECT_EQ(arrows[2].at("name"), "flags of layer.0.y[0:2]");
  EXPECT_EQ(arrows[2].at("tid"), 1);
  EXPECT_DOUBLE_EQ(arrows[2].at("ts").get<double>(), 0.899);
  EXPECT_EQ(arrows[3].at("tid"), 0);
  EXPECT_DOUBLE_EQ(arrows[3].at("ts").get<double>(), 0.920);
}

TEST(ProfilePage, KnowsWhoseFlagsWereWaitedFor) {
  const FlaggedGraph hand;
  const std::string page = profile_page(hand.profile(2), hand.graph, {{"make"}, {"halve"}, {"end"}}, 4);
  const std::string begin = "type=\"application/json\">";
  const size_t at = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  EXPECT_EQ(data.at("flags"), (std::vector<std::string>{"layer.0.x[0:1]", "layer.0.y[0:2]"}));
  EXPECT_EQ(data.at("flagsOf"), (std::vector<int>{-1, 0, 0, 1}));
  EXPECT_EQ(data.at("lastOf"), (std::vector<std::vector<int>>{{-1, 0, 2}, {0}}));
}

TEST(ProfilePage, HasTheNewestWholeIterations) {
  Graph hand;
  hand.graph.tasks[0].name = "x</script>\"";
  hand.graph.buffers = {{.name = "w", .dtype = DType::bf16, .shape = {64}, .memory = task::Memory::constant},
                        {.name = "a", .dtype = DType::f32, .shape = {64}}};
  hand.graph.tasks[1].reads = {{0, {{0}, {32}}}, {1, {{0}, {64}}}};
  hand.graph.tasks[2].reads = {{0, {{32}, {64}}}};
  Profile profile = hand.profile(6);
  profile.workers[0].erase(profile.workers[0].begin());  // a ring that wrapped
  const auto data_of = [&](size_t most, bool looks_up) {
    const std::string page =
        profile_page(profile, hand.graph, {{"make"}, {.op = "halve", .looks_up = looks_up}, {"end"}}, most);
    const std::string begin = "type=\"application/json\">";
    const size_t at = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  };
  const auto data = data_of(8, false);
  EXPECT_EQ(data.at("tasks")[0], "x</script>\"");
  EXPECT_EQ(data.at("operators"), (std::vector<std::string>{"end", "halve", "make"}));
  EXPECT_EQ(data.at("operatorOf"), (std::vector<int>{2, 1, 1, 0}));
  EXPECT_EQ(data.at("bytesOf"), (std::vector<int>{0, 64, 64, 0}));
  EXPECT_EQ(data.at("eventOf"), (std::vector<int>{-1, 0, 0, 1}));
  // task, iteration, begin, how long it waited, how long it ran; iterations 4 and 5
  EXPECT_EQ(data.at("workers")[1], (std::vector<int>{2, 4, 0, 320, 580, 2, 5, 1000, 320, 580}));
  EXPECT_EQ(data.at("workers")[0].size(), 2u * 3 * 5);
  EXPECT_EQ(data_of(1, true).at("workers")[1].size(), 5u);
  EXPECT_EQ(data_of(1, true).at("bytesOf")[1], 0);
  EXPECT_EQ(data_of(1000, true).at("workers")[1].size(), 5u * 5);  // without the first, which is not whole
  EXPECT_THROW(profile_page({{{}, {}}}, hand.graph, {{"make"}, {"halve"}, {"end"}}), UserError);
}

// Whatever a task, an event, an operator or the graph is called, it stays within its text.
TEST(ProfilePage, NamesDoNotBecomePartOfThePage) {
  const std::string usual = [] {
    const Graph hand;
    return profile_page(hand.profile(2), hand.graph, {{"make"}, {"halve"}, {"end"}});
  }();
  for (const std::string name :
       {"</script><script>alert(1)</script>", "<!--<script>", "]]>", "\"];alert(1);//", "\\\"", "a\rb\nc",
        "\xe2\x80\xa8\xe2\x80\xa9", "\xff\xfe", "${alert(1)}", "PROFILE_DATA", "<img src=x onerror=alert(1)>"}) {
    Graph hand;
    hand.graph.name = hand.graph.tasks[0].name = hand.graph.events[0].name = name;
    const std::string page = profile_page(hand.profile(2), hand.graph, {{"make"}, {name}, {"end"}});
    EXPECT_EQ(std::ranges::count(page, '<'), std::ranges::count(usual, '<')) << name;
    const std::string begin = "type=\"application/json\">";
    const size_t at = page.find(begin) + begin.size();
    const auto data = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
    const auto trace = nlohmann::json::parse(profile_trace(hand.profile(2), hand.graph, {"make", name, "end"}));
    if (name == "\xff\xfe") continue;  // no text: it is replaced
    EXPECT_EQ(data.at("name"), name);
    EXPECT_EQ(data.at("tasks")[0], name);
    EXPECT_EQ(trace.at("traceEvents")[0].at("args").at("name"), "megalith " + name);
  }
}

TEST(ProfileTrace, IsWhatPerfettoReads) {
  const Graph hand;
  const auto trace = nlohmann::json::parse(profile_trace(hand.profile(2), hand.graph, hand.operators));
  int slices = 0, waits = 0, gates = 0, names = 0;
  std::vector<nlohmann::json> arrows;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      ++names;
      continue;
    }
    if (event.at("cat") == "event") {
      arrows.push_back(event);
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("dur").get<double>(), 0);
    waits += event.at("cat") == "wait";
    gates += event.at("cat") == "gate";
    ++slices;
  }
  EXPECT_EQ(names, 3);  // the process and two workers
  EXPECT_EQ(waits, 6);
  EXPECT_EQ(gates, 2);
  EXPECT_EQ(slices, 8 + 6 + 2);
  const auto& z = trace.at("traceEvents").at(6);  // process, worker 0, x, wait, y[0], wait, z
  EXPECT_EQ(z.at("name"), "z");
  EXPECT_EQ(z.at("cat"), "end");
  EXPECT_EQ(z.at("tid"), 0);
  EXPECT_DOUBLE_EQ(z.at("ts").get<double>(), 0.920);
  EXPECT_DOUBLE_EQ(z.at("dur").get<double>(), 0.060);
  EXPECT_EQ(z.at("args").at("iteration"), 0);
  EXPECT_FALSE(z.at("args").contains("stream_idle_us")) << "there is no stream";
  // From x to both halves of y, and from the later of them to z; twice.
  ASSERT_EQ(arrows.size(), 2u * 2 * 3);
  for (size_t i = 0; i < arrows.size(); i += 2) {
    EXPECT_EQ(arrows[i].at("ph"), "s");
    EXPECT_EQ(arrows[i + 1].at("ph"), "f");
    EXPECT_EQ(arrows[i].at("id"), arrows[i + 1].at("id"));
  }
  const auto &from = arrows.at(2), &to = arrows.at(3);
  EXPECT_EQ(from.at("name"), "y.ready");
  EXPECT_EQ(from.at("tid"), 1) << "y[1] ends behind y[0]";
  EXPECT_DOUBLE_EQ(from.at("ts").get<double>(), 0.899) << "inside of it, so that the arrow is its own";
  EXPECT_EQ(to.at("tid"), 0);
  EXPECT_DOUBLE_EQ(to.at("ts").get<double>(), 0.920);
}

TEST(ProfileTrace, SaysForHowLongAStreamWasIdle) {
  const Graph hand;
  Profile profile = hand.profile(2);
  profile.has_streams = true;
  for (auto& records : profile.workers)
    for (ProfileRecord& record : records) record.idle_waiting_ns = 250, record.idle_busy_ns = 40;
  const auto trace = nlohmann::json::parse(profile_trace(profile, hand.graph, hand.operators));
  int seen = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") == "gate") continue;
    EXPECT_DOUBLE_EQ(event.at("args").at("stream_idle_us").get<double>(), event.at("cat") == "wait" ? 0.25 : 0.04);
    ++seen;
  }
  EXPECT_EQ(seen, 8 + 6);
}

TEST(ProfiledRun, WritesARecordForEveryTask) {
  constexpr u32 kIterations = 20;
  TestKernel kernel(2);
  const int a = kernel.event("a"), b = kernel.event("b");
  auto busy = [](u32) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (std::chrono::steady_clock::now() < end) {}
  };
  kernel.task("first", 0, {{b, 0, 1}}, {a}, busy);
  kernel.task("second", 1, {{a}}, {b}, busy);
  kernel.task("third", 1, {}, {}, busy);
  kernel.num_iterations = kIterations;
  LaunchImage image = kernel.build();
  ProfileRings rings(2, 2 * kIterations);
  image.set_profile(rings.records(), rings.capacity());
  rings.begin();
  const auto begin = std::chrono::steady_clock::now().time_since_epoch();
  Launcher(test_entry, image).run();
  const auto end = std::chrono::steady_clock::now().time_since_epoch();
  const Profile profile = rings.take(image.launch().status);

  ASSERT_EQ(profile.workers[0].size(), kIterations);
  ASSERT_EQ(profile.workers[1].size(), 2 * kIterations);
  const auto begin_ns = static_cast<u64>(std::chrono::nanoseconds(begin).count()),
             end_ns = static_cast<u64>(std::chrono::nanoseconds(end).count());
  constexpr u64 kSlack = 5000;  // of putting one clock on another
  for (u32 i = 0; i < kIterations; ++i) {
    const ProfileRecord &first = profile.workers[0][i], &second = profile.workers[1][2 * i],
                        &third = profile.workers[1][2 * i + 1];
    EXPECT_EQ(first.task, 0u);
    EXPECT_EQ(first.iteration, i);
    EXPECT_EQ(third.task, 2u);
    for (const ProfileRecord* record : {&first, &second, &third}) {
      EXPECT_LE(record->begin_ns, record->ready_ns);
      EXPECT_GE(record->end_ns + kSlack, record->ready_ns + 50'000);
      EXPECT_GE(record->begin_ns + kSlack, begin_ns);
      EXPECT_LE(record->end_ns, end_ns + kSlack);
    }
    EXPECT_EQ(second.end_ns, third.begin_ns);
    EXPECT_EQ(third.begin_ns, third.ready_ns);                     // it waits for nothing
    EXPECT_GE(second.ready_ns + kSlack, first.ready_ns + 50'000);  // it waits for all of `first`
  }
  EXPECT_EQ(profile_summarize(profile, kernel.graph, {"op"}).steps +
                profile_summarize(profile, kernel.graph, {"op"}).slow_steps,
            kIterations - 1);
}

TEST(ProfiledRun, KeepsTheNewestAndOffKeepsNothing) {
  TestKernel kernel(1);
  kernel.task("t", 0, {}, {});
  kernel.num_iterations = 100;
  LaunchImage image = kernel.build();
  ProfileRings rings(1, 8);
  image.set_profile(rings.records(), rings.capacity());
  rings.begin();
  Launcher(test_entry, image).run();
  const Profile profile = rings.take(image.launch().status);
  ASSERT_EQ(profile.workers[0].size(), 8u);
  for (u32 n = 0; n < 8; ++n) EXPECT_EQ(profile.workers[0][n].iteration, 92 + n);

  ProfileRings untouched(1, 8);
  image.set_profile(nullptr, 0);
  Launcher(test_entry, image).run();
  EXPECT_EQ(untouched.records()[0].end_ns, 0u);
}

// What recording costs; not judged, since machines differ.
TEST(ProfileFigures, CostOfARecord) {
  constexpr int kTasks = 1000, kIterations = 100;
  TestKernel kernel(1);
  for (int t = 0; t < kTasks; ++t) kernel.task("t", 0, {}, {});
  kernel.num_iterations = kIterations;
  LaunchImage image = kernel.build();
  ProfileRings rings(1, kTasks * 2);
  auto entry = [](const Launch* launch, u32 worker) {
    worker_run(*launch, worker, [](const TaskRecord&, void* const*, u8*, u32) {});
  };
  double ns[2] = {1e30, 1e30};
  for (int repeat = 0; repeat < 10; ++repeat) {
    const int on = repeat & 1;
    image.set_profile(on ? rings.records() : nullptr, rings.capacity());
    Launcher launcher(entry, image);
    const auto begin = std::chrono::steady_clock::now();
    launcher.run();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    ns[on] = std::min(ns[on], took.count() / kTasks / kIterations);
  }
  std::printf("[ FIGURE   ] a task without events: %.1f ns, recorded: %.1f ns\n", ns[0], ns[1]);
}

}  // namespace
}  // namespace megalith::runtime
