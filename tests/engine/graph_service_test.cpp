// Requests that come while a graph runs: what the host posts and is told, on a loop of the node `serve_batch` alone, whose every
// row makes the same token.
#include "megalith/engine/graph_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

struct ServedLoop {
  static constexpr int64_t kSlots = 2, kRows = 5, kText = 32, kPage = 8, kPages = kSlots * kText / kPage;
  static constexpr int32_t kToken = 9;
  graph::Graph graph{ops::builtin(), "loop"};
  std::map<std::string, std::vector<int32_t>> tables;
  jit::CompiledKernel kernel;

  ServedLoop() {
    std::vector<graph::TensorId> operands;
    const auto table = [&](const char* name, int64_t size, int32_t value = 0) {
      tables[name].assign(static_cast<size_t>(size), value);
      operands.push_back(graph.state(name, DType::i32, {size}));
    };
    table("output", kRows, kToken);
    table("prompt_length", kSlots);
    table("config", 20, -1);
    table("tokens", kSlots * kText);
    table("step", kSlots);
    table("slots", 4 * kSlots + 7);
    table("input", kRows);
    table("first_row", kSlots + 1);
    table("first_page", kSlots + 1);
    table("pages", kPages);
    table("last_length", kSlots);
    table("num_new", kSlots);
    table("stop", 1);
    for (const auto& [name, size] : {std::pair{"mailbox", int64_t{64}}, {"inbox", kSlots * kText}})
      operands.push_back(graph.state(name, DType::i32, {size}));
    graph.add("serve_batch", "serve_batch", operands);
    graph.set_gate("serve_batch", graph.find("stop"));
    kernel = jit::compile(graph, {.num_workers = 1});
    const std::vector<int32_t> config = {kText, kPage, kText / kPage, 50};
    std::ranges::copy(config, tables["config"].begin());
    std::fill_n(tables["slots"].begin(), kSlots, -1);
  }
  std::map<std::string, TensorMemory> memory() {
    std::map<std::string, TensorMemory> result;
    for (auto& [name, values] : tables) result[name] = {values.data()};
    return result;
  }
};

/// Of a slot, until its request has ended: tokens, and why.
struct ServedTokens {
  std::vector<int> tokens;
  uint32_t reason = 0;
};
ServedTokens take_until_end(GraphService& service, uint32_t slot) {
  ServedTokens made;
  for (int looks = 0; made.reason == 0 && looks < 1000; ++looks)
    for (const runtime::MailRecord& record : service.take(std::chrono::milliseconds(50))) {
      EXPECT_EQ(record.request, slot);
      if (record.kind == static_cast<uint32_t>(runtime::MailKind::token)) made.tokens.push_back(record.token);
      if (record.kind == static_cast<uint32_t>(runtime::MailKind::finished)) made.reason = record.reason;
    }
  return made;
}

TEST(GraphService, RequestsComeWhileTheGraphRuns) {
  ServedLoop loop;
  GraphRunner runner(loop.graph, loop.kernel, loop.memory());
  GraphService service(runner);
  service.open();
  std::thread run([&] { runner.run(0); });
  for (const uint32_t slot : {1u, 0u, 1u}) {
    std::vector<int32_t> prompt(7 + slot);
    std::iota(prompt.begin(), prompt.end(), 1);
    service.begin(slot, prompt, slot * 3, 20);
    const ServedTokens made = take_until_end(service, slot);
    EXPECT_EQ(made.tokens, std::vector<int>(13 - slot, ServedLoop::kToken));
    EXPECT_EQ(made.reason, static_cast<uint32_t>(batch::kLengthLimit));
    prompt.resize(20, ServedLoop::kToken);
    const auto row = loop.tables["tokens"].begin() + slot * ServedLoop::kText;
    EXPECT_EQ(std::vector(row, row + 20), prompt);
  }
  service.cancel(0);  // of nobody
  service.end();
  run.join();
  EXPECT_EQ(loop.tables["stop"][0], 1);
  EXPECT_TRUE(service.take(std::chrono::milliseconds(0)).empty());
}

TEST(GraphService, ACancelledRequestEnds) {
  ServedLoop loop;
  loop.tables["output"].assign(ServedLoop::kRows, 50);  // which the vocabulary does not have: it would end any
  GraphRunner runner(loop.graph, loop.kernel, loop.memory());
  GraphService service(runner);
  service.open();
  const std::vector<int32_t> prompt(31, 3);
  service.begin(0, prompt, 0, 32);
  service.cancel(0);
  service.end();
  runner.run(0);
  const ServedTokens made = take_until_end(service, 0);
  EXPECT_EQ(made.reason, static_cast<uint32_t>(batch::kCancelled));
  EXPECT_TRUE(made.tokens.empty());
}

TEST(GraphService, WhatCannotBeIsRefused) {
  ServedLoop loop;
  GraphRunner runner(loop.graph, loop.kernel, loop.memory());
  GraphService service(runner);
  service.open();
  const auto message = [&](int64_t slot, int64_t length, int64_t step, int64_t limit) -> std::string {
    try {
      service.begin(slot, std::vector<int32_t>(static_cast<size_t>(length), 1), step, limit);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_THAT(message(2, 3, 0, 9), HasSubstr("there is no slot 2: there are 2"));
  EXPECT_THAT(message(-1, 3, 0, 9), HasSubstr("there is no slot -1"));
  EXPECT_THAT(message(0, 0, 0, 9), HasSubstr("a prompt of 0 tokens"));
  EXPECT_THAT(message(0, 9, 0, 9), HasSubstr("a prompt of 9 tokens and ends at 9"));
  EXPECT_THAT(message(0, 3, 0, 33), HasSubstr("ends at 33, want 1 to 31"));
  EXPECT_THAT(message(0, 3, 3, 9), HasSubstr("begins at 3, want 0 to 2"));
  EXPECT_EQ(message(0, 3, 2, 32), "");
}

TEST(GraphService, AGraphWithoutAMailboxTakesNone) {
  graph::Graph graph(ops::builtin(), "copy");
  const auto x = graph.state("x", DType::f32, {1, 8}), y = graph.state("y", DType::f32, {1, 8});
  graph.add("add", "add", {x, x}, {.outputs = {{"y", y}}});
  const jit::CompiledKernel kernel = jit::compile(graph, {.num_workers = 1});
  std::vector<float> values(16);
  GraphRunner runner(graph, kernel, {{"x", {values.data()}}, {"y", {values.data() + 8}}});
  EXPECT_THROW(GraphService{runner}, UserError);
}

}  // namespace
}  // namespace megalith::engine
