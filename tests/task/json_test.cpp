#include "megalith/task/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/task/dot.h"
#include "megalith/task/verify.h"
#include "model_like.h"
#include "small.h"
#include "support/random_task_graph.h"

namespace megalith::test {
namespace {

TEST(Json, WriteReadWriteGivesTheSameText) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text =
        task::to_json(random_task_graph(seed, {.exchange_probability = 0.3, .scatter_probability = 0.5}));
    EXPECT_EQ(task::to_json(task::from_json(text)), text) << "seed " << seed;
  }
  Small s;
  s.buffer("a \"quoted\"\\ name\n\x01 \xc3\xa9");
  s.task("t\t\"", {}, {s.whole(0)}, 1.0 / 3);
  task::TaskGraph graph = s.plan(1);
  graph.tasks[0].tile = {{"n", 0, int64_t{1} << 40}};
  const std::string text = task::to_json(graph);
  EXPECT_EQ(task::to_json(task::from_json(text)), text);
  EXPECT_EQ(task::from_json(text).tasks[0].cost_ns, 1.0 / 3);
}

TEST(Json, OneTaskALine) {
  ModelLike model(2, {.layers = 1});
  const task::TaskGraph graph = task::plan(model.tasks, model.buffers, model.options);
  const std::string text = task::to_json(graph);
  const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(lines, 1 + 5 + 2 * 4 + 1 + graph.tasks.size() + graph.events.size() + graph.buffers.size() + 2);
}

// The example of docs/task-graph.md, as it stands there.
TEST(Json, TheExampleInTheDocs) {
  const std::string page = file_read(MEGALITH_SOURCE_DIR "/docs/task-graph.md");
  const size_t begin = page.find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t start = begin + 8;
  const std::string text = page.substr(start, page.find("```", start) - start);
  task::TaskGraph graph = task::from_json(text);
  EXPECT_EQ(task::to_json(graph), text);
  EXPECT_TRUE(task::verify(graph).ok()) << task::verify(graph).text();

  graph.tasks.back().waits.clear();
  const std::string finding = task::verify(graph).text();
  EXPECT_NE(page.find("    " + finding.substr(0, finding.find('\n')) + "\n"), std::string::npos)
      << "the page should show\n    " << finding;
}

// ---- refusals
// --------------------------------------------------------------------------------------------------------

std::string refusal(const std::string& text) {
  try {
    task::from_json(text);
    return "";
  } catch (const UserError& error) { return error.what(); }
}

std::string refusal_after(const std::function<void(nlohmann::json&)>& edit) {
  Small s;
  const int x = s.buffer("x", 8);
  s.task("a", {}, {s.whole(x)});
  s.task("b", {s.whole(x)}, {});
  s.task("c", {s.whole(x)}, {});
  nlohmann::json document = nlohmann::json::parse(task::to_json(s.plan(2)));
  document["tasks"][0]["tile"] = nlohmann::json::parse(R"([["n", 0, 8]])");
  edit(document);
  return refusal(document.dump());
}

TEST(JsonRefuses, WhatIsNoTaskGraph) {
  EXPECT_EQ(refusal("[]"), "[task graph] $ is an array of 0, want an object with \"format\": \"megalith-task-graph\"");
  EXPECT_EQ(refusal(R"({"format": "other"})"),
            "[task graph] $ is \"other\", want an object with \"format\": \"megalith-task-graph\"");
  EXPECT_EQ(refusal("{\"format\":").substr(0, 30), "[task graph] not a JSON text: ");
  EXPECT_EQ(refusal("").substr(0, 30), "[task graph] not a JSON text: ");
  EXPECT_EQ(refusal("{} x").substr(0, 30), "[task graph] not a JSON text: ");
  EXPECT_EQ(refusal("\xff").substr(0, 30), "[task graph] not a JSON text: ");
}

TEST(JsonRefuses, DeepNestingAndRepeatedKeys) {
  EXPECT_EQ(refusal(std::string(1'000'000, '[')),
            "[task graph] the JSON text nests deeper than 8 levels; no task graph does");
  EXPECT_EQ(refusal(R"({"format": "megalith-task-graph", "format": 1})"),
            "[task graph] an object of the JSON text has the key \"format\" twice");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += fmt::format("\"k{}\": 0, ", i);
  EXPECT_EQ(refusal(many + "\"z\": 0}"), "[task graph] an object of the JSON text has more than 64 keys");
}

TEST(JsonRefuses, WrongTypesByPath) {
  using Json = nlohmann::json;
  EXPECT_EQ(refusal_after([](Json& d) { d["version"] = 2; }),
            "[task graph] $.version is 2, want a whole number from 1 to 1");
  EXPECT_EQ(refusal_after([](Json& d) { d["name"] = 5; }), "[task graph] $.name is 5, want a string");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"] = Json::object(); }),
            "[task graph] $.tasks is an object of 0, want an array");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][1] = true; }), "[task graph] $.tasks[1] is true, want an object");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][1]["reads"][0]["buffer"] = "x"; }),
            "[task graph] $.tasks[1].reads[0].buffer is \"x\", want a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][1]["reads"][0]["box"][0] = {1}; }),
            "[task graph] $.tasks[1].reads[0].box[0] is an array of 1, want [begin, end]");
  EXPECT_EQ(refusal_after([](Json& d) {
              d["tasks"][0]["tile"][0] = {"n", 0};
            }),
            "[task graph] $.tasks[0].tile[0] is an array of 2, want [iname, begin, end]");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][0]["cost_ns"] = "cheap"; }),
            "[task graph] $.tasks[0].cost_ns is \"cheap\", want a number from 0");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][0]["cost_ns"] = -1; }),
            "[task graph] $.tasks[0].cost_ns is -1, want a number from 0");
  EXPECT_EQ(refusal_after([](Json& d) { d["buffers"][0]["dtype"] = "f8"; }),
            "[task graph] $.buffers[0].dtype is \"f8\", want one of bf16, f16, f32, i8, i32, i64");
  EXPECT_EQ(refusal_after([](Json& d) { d["buffers"][0]["memory"] = "shared"; }),
            "[task graph] $.buffers[0].memory is \"shared\", want one of arena, constant, state, exchange");
  EXPECT_EQ(refusal_after([](Json& d) { d["workers"][0] = 3; }), "[task graph] $.workers[0] is 3, want an array");
}

TEST(JsonRefuses, NumbersOutOfRange) {
  using Json = nlohmann::json;
  EXPECT_EQ(refusal_after([](Json& d) { d["gate"] = -1; }),
            "[task graph] $.gate is -1, want a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal_after([](Json& d) { d["workers"][0][0] = 1.5; }),
            "[task graph] $.workers[0][0] is 1.5, want a whole number from 0 to 2147483647");
  EXPECT_EQ(refusal_after([](Json& d) { d["events"][0]["arrivals"] = UINT64_MAX; }),
            "[task graph] $.events[0].arrivals is 18446744073709551615, want a whole number from 0 to "
            "1152921504606846976");
  EXPECT_EQ(refusal_after([](Json& d) { d["buffers"][0]["shape"][0] = -8; }),
            "[task graph] $.buffers[0].shape[0] is -8, want a whole number from 0 to 1152921504606846976");
  EXPECT_EQ(refusal("{\"format\": \"megalith-task-graph\", \"arena_bytes\": 1e999}").substr(0, 30),
            "[task graph] not a JSON text: ");
}

TEST(JsonRefuses, MissingUnknownAndRepeatedNames) {
  using Json = nlohmann::json;
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][2].erase("worker"); }),
            "[task graph] $.tasks[2] is an object of 8, want one with the key \"worker\"");
  EXPECT_EQ(refusal_after([](Json& d) { d["events"][0]["count"] = 1; }),
            "[task graph] $.events[0] is an object with the unknown key \"count\", want only name, arrivals");
  EXPECT_EQ(refusal_after([](Json& d) { d.erase("workers"); }),
            "[task graph] $ is an object of 8, want one with the key \"workers\"");
  EXPECT_EQ(refusal_after([](Json& d) { d["tasks"][2]["name"] = "a"; }),
            "[task graph] $.tasks[2].name is \"a\", want a name that element 0 does not have");
}

// Every single value of a small graph replaced by every kind of nonsense: a UserError or a graph that verify() judges.
TEST(JsonRefuses, AnythingWithoutCrashing) {
  using Json = nlohmann::json;
  const Json document = Json::parse(task::to_json(random_task_graph(3)));
  const Json nonsense[] = {nullptr, true, -1, 0, 1e300, INT64_MIN, UINT64_MAX, "", Json::array(), Json::object()};
  const Json flat = document.flatten();
  int refused = 0, judged = 0;
  for (const auto& [path, value] : flat.items())
    for (const Json& bad : nonsense) {
      Json changed = document;
      changed[Json::json_pointer(path)] = bad;
      try {
        task::verify(task::from_json(changed.dump()));
        ++judged;
      } catch (const UserError&) { ++refused; }
    }
  EXPECT_GT(refused, judged);
  EXPECT_GT(judged, 0);
}

TEST(Dot, NamesEverything) {
  Small s;
  const int x = s.buffer("x");
  s.task("write \"it\"", {}, {s.whole(x)});
  s.task("read", {s.whole(x)}, {});
  const int gate = s.task("read2", {s.whole(x)}, {});
  const std::string text = task::to_dot(s.plan(2, gate));
  for (const char* part : {"digraph \"small\"", "write \\\"it\\\"", "worker 1", "peripheries=2", "t0 -> e", "-> t2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// Names end no label, and make no picture that no browser reads.
TEST(Dot, NamesStayInTheirLabels) {
  Small s;
  const int x = s.buffer("x");
  s.task("a\\\"; evil [label=\"\r\n\x01\x1b\x7f", {}, {s.whole(x)});
  const std::string text = task::to_dot(s.plan(1, {}));
  EXPECT_NE(text.find("label=\"a\\\\\\\"; evil [label=\\\"     \"]"), std::string::npos) << text;
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c != 0x7F)) << static_cast<int>(c);
}

}  // namespace
}  // namespace megalith::test
