#include "megalith/optimize/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/graph/schedule_text.h"
#include "megalith/ops/registry.h"

namespace megalith::optimize {
namespace {

using graph::Graph;
using graph::Layout;
using graph::Schedule;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const UserError& error) { return error.what(); }
  return "no error";
}

// Two products, the second of them by what the first gives.
struct TwoProducts {
  Graph graph{ops::builtin(), "two products"};

  explicit TwoProducts(DType dtype = DType::bf16) {
    const auto x = graph.state("x", DType::f32, {3, 64});
    const auto h = graph.apply("linear", "first", {x, graph.constant("a", dtype, {32, 64})}, {.tile = {{"n", 16}}});
    const auto y = graph.state("y", DType::f32, {3, 16});
    graph.add("linear", "second # of two", {h, graph.constant("b", dtype, {16, 32})}, {.outputs = {{"y", y}}});
  }
  Layout layout(const Schedule& schedule, const std::string& tensor) const {
    return schedule.layout(graph.find(tensor));
  }
};

TEST(Schedule, OfACpuHasWeightsInPanels) {
  const TwoProducts two;
  const Schedule schedule = make_schedule(two.graph, "cpu");
  check_schedule(two.graph, schedule);
  EXPECT_EQ(two.layout(schedule, "a"), Layout::panels);
  EXPECT_EQ(two.layout(schedule, "x"), Layout::rows);
  ASSERT_NE(schedule.body(0), nullptr);
  EXPECT_EQ(schedule.nodes[0].tile, (std::map<std::string, int64_t>{{"n", 16}}));
}

// A body that knows nothing of panels gives way to a generated one, where another wants them.
TEST(Schedule, WhoCannotReadPanelsGetsAGeneratedBody) {
  TwoProducts two;
  auto registry = std::make_shared<graph::Registry>(*ops::builtin());
  registry->add(graph::operator_("first_of", "y = a[0]")
                    .input("a", {"N", "K"})
                    .output("y", {"K"})
                    .loops("{ [n, k] : 0 <= n < N and 0 <= k < K }\ny[k] = max(n, a[n, k])")
                    .tasks({"k"})
                    .body("cpu", "first_of.h", "first_of"));
  for (const bool is_shared : {false, true}) {
    Graph graph(registry);
    const auto a = graph.constant("a", DType::bf16, {32, 64});
    if (is_shared) graph.apply("linear", "product", {graph.state("x", DType::f32, {3, 64}), a});
    graph.apply("first_of", "first", {a});
    const Schedule schedule = make_schedule(graph, "cpu");
    check_schedule(graph, schedule);
    EXPECT_EQ(schedule.nodes.back().body == nullptr, is_shared);
  }
}

TEST(Schedule, OfAGpuHasFlagsInDataBetweenItsStreams) {
  Graph graph(ops::builtin());
  const auto x = graph.state("x", DType::bf16, {1, 256}), y = graph.state("y", DType::bf16, {1, 256});
  const auto norm = graph.constant("norm", DType::bf16, {256});
  const auto h = graph.apply("rmsnorm_linear", "first", {x, norm, graph.constant("a", DType::bf16, {256, 256})},
                             {.dtypes = {{"y", DType::bf16}}});
  graph.add("rmsnorm_linear", "second", {h, norm, graph.constant("b", DType::bf16, {256, 256})},
            {.outputs = {{"y", y}}});
  const Schedule schedule = make_schedule(graph, "cuda");
  check_schedule(graph, schedule);
  EXPECT_EQ(schedule.layout(h), Layout::flag_in_data);
  EXPECT_EQ(schedule.layout(x), Layout::rows) << "a state";
}

TEST(ScheduleText, ComesBackAsItWas) {
  const TwoProducts two;
  for (const char* target : {"cpu", "cuda"}) {
    const Schedule schedule = make_schedule(two.graph, target);
    const std::string text = graph::print(two.graph, schedule);
    const Schedule read = graph::parse_schedule(text, two.graph, target);
    EXPECT_EQ(graph::print(two.graph, read), text);
    EXPECT_EQ(read.layouts, schedule.layouts);
    for (size_t n = 0; n < read.nodes.size(); ++n) {
      EXPECT_EQ(read.body(n), schedule.body(n));
      EXPECT_EQ(read.nodes[n].tile, schedule.nodes[n].tile);
      EXPECT_EQ(read.nodes[n].stream, schedule.nodes[n].stream);
    }
  }
}

TEST(ScheduleText, ALineThatIsWrongIsNamed) {
  const TwoProducts two;
  const std::string first = "node first linear generated\n",
                    second = "node second\\x20\\x23\\x20of\\x20two linear generated\n";
  const auto error = [&](const std::string& text) {
    return error_of([&] { graph::parse_schedule(text, two.graph, "cpu"); });
  };
  EXPECT_EQ(error(first + second), "no error");
  EXPECT_EQ(error("# nothing\n\n" + first + "  " + second + "# the end"), "no error");
  EXPECT_EQ(error(first), "there are 1 nodes, and the graph has 2: \"second # of two\" is missing");
  EXPECT_THAT(error(first + second + second), HasSubstr("line 3: the graph has 2 nodes"));
  EXPECT_THAT(error(second + first), HasSubstr("line 1: the node first linear comes here"));
  EXPECT_THAT(error("nodes\n"), HasSubstr("line 1: want \"node NAME OPERATOR BODY"));
  EXPECT_THAT(error("node first linear gemv.h:other\n"),
              AllOf(HasSubstr("line 1: [linear] has no body gemv.h:other"), HasSubstr("generated, gemv.h:")));
  EXPECT_THAT(error("node first linear generated tile.k=4\n"), HasSubstr("[linear] is not cut along \"k\""));
  EXPECT_THAT(error("node first linear generated tile.n\n"), HasSubstr("\"tile.n\" is none of tile.INAME=SIZE"));
  EXPECT_THAT(error("node first linear generated n=4\n"), HasSubstr("\"n=4\" is none of"));
  EXPECT_THAT(error("node first linear generated tile.n=0\n"), HasSubstr("\"0\" is no number of 1 or more"));
  EXPECT_THAT(error("node first linear generated tile.n=4x\n"), HasSubstr("\"4x\" is no number"));
  EXPECT_THAT(error("node first linear generated tile.n=4 tile.n=4\n"), HasSubstr("stands there twice"));
  EXPECT_THAT(error("node first linear generated tile.n=4 pieces.n=4\n"), HasSubstr("take one of them"));
  EXPECT_THAT(error("node first linear generated stream.group=-4\n"), HasSubstr("\"-4\" is no number of 0 or more"));
  EXPECT_THAT(error("node first linear generated stream.group=32 stream.group=32\n"),
              HasSubstr("stream.group stands there twice"));
  EXPECT_THAT(error(first + second + "tensor z rows"), HasSubstr("line 3: there is no tensor \"z\""));
  EXPECT_THAT(
      error(first + second + "tensor a stripes"),
      HasSubstr("there is no layout \"stripes\": want rows, flag-in-data, panels, fragments, int8, head-pairs"));
  EXPECT_THAT(error(first + second + "tensor a rows\ntensor a panels"), HasSubstr("line 4: the tensor \"a\" stands"));
}

TEST(WorkerSchedule, OfAGpuIsPrintedReadAndChecked) {
  const TwoProducts two;
  const auto of_tokens = [](int64_t tokens) {
    Graph graph(ops::builtin());
    graph.apply("linear", "y",
                {graph.state("x", DType::bf16, {tokens, 1024}), graph.constant("w", DType::bf16, {256, 1024})},
                {.dtypes = {{"y", DType::bf16}}});
    return make_schedule(graph, "cuda").worker;
  };
  EXPECT_EQ(of_tokens(1), (graph::WorkerSchedule{4, 16, 104}));
  EXPECT_EQ(of_tokens(8), (graph::WorkerSchedule{4, 16, 104}));
  EXPECT_EQ(of_tokens(64), (graph::WorkerSchedule{4, 0, 104}));
  Schedule schedule = make_schedule(two.graph, "cuda");
  schedule.worker = {2, 3, 104};
  const std::string text = graph::print(two.graph, schedule);
  EXPECT_THAT(text, HasSubstr("worker copies=2 prefetch=3 registers=104\n"));
  EXPECT_EQ(graph::parse_schedule(text, two.graph, "cuda").worker, schedule.worker);
  const auto error = [&](const std::string& line, const char* target = "cuda") {
    return error_of([&] { graph::parse_schedule(line + "\n" + text, two.graph, target); });
  };
  EXPECT_THAT(error("worker copies=2"), HasSubstr("the worker stands there twice"));
  EXPECT_THAT(error("worker speed=2"), HasSubstr("\"speed=2\" is none of copies=NUMBER"));
  EXPECT_THAT(error("worker copies=x"), HasSubstr("\"x\" is no number"));
  EXPECT_THAT(error("worker copies=2", "cpu"), HasSubstr("a worker of the target cpu has nothing to choose"));
  for (const auto& [worker, reason] : {std::pair<graph::WorkerSchedule, const char*>{{5, 16, 96}, "copies=5"},
                                       {{0, 16, 96}, "copies=0"},
                                       {{4, 65, 96}, "prefetch=65"},
                                       {{4, 16, 112}, "registers=112: want 96 or 104"}}) {
    schedule.worker = worker;
    EXPECT_THAT(error_of([&] { check_schedule(two.graph, schedule); }), HasSubstr(reason));
  }
}

// Every layout that a tensor cannot have, and every body that does not take one, by name.
TEST(CheckSchedule, RefusesWhatWouldNotBeRight) {
  const TwoProducts two;
  const auto error = [&](const char* target, const std::function<void(Schedule&)>& edit) {
    Schedule schedule = make_schedule(two.graph, target);
    edit(schedule);
    return error_of([&] { check_schedule(two.graph, schedule); });
  };
  const auto lay = [&](const char* tensor, Layout layout) {
    return [&two, tensor, layout](Schedule& s) { s.layouts[static_cast<size_t>(two.graph.find(tensor))] = layout; };
  };
  EXPECT_THAT(error("cpu", lay("a", Layout::rows)), HasSubstr("does not take \"weight\" in rows"));
  EXPECT_THAT(error("cpu", lay("x", Layout::panels)), HasSubstr("\"x\" cannot lie in panels: want a constant matrix"));
  EXPECT_THAT(error("cpu", lay("x", Layout::flag_in_data)), HasSubstr("\"x\" cannot lie in flag-in-data"));
  EXPECT_THAT(error("cpu", lay("first", Layout::flag_in_data)), HasSubstr("does not take"));
  EXPECT_THAT(error("cpu", lay("first", Layout::fragments)), HasSubstr("cannot lie in fragments"));
  EXPECT_THAT(error("cpu", lay("y", Layout::head_pairs)), HasSubstr("cannot lie in head-pairs"));
  EXPECT_EQ(error("cpu", [](Schedule& s) { s.nodes[0].body = nullptr; }), "no error") << "panels can be read";
  EXPECT_THAT(error("cpu", [](Schedule& s) { s.target = "cuda"; }), HasSubstr("for the target cuda"));
  EXPECT_THAT(error("cpu", [](Schedule& s) { s.nodes.pop_back(); }),
              HasSubstr("5 tensors and 1 nodes, but \"two products\" has 5 and 2"));
  EXPECT_THAT(error("cuda",
                    [&](Schedule& s) {
                      for (const auto& body : two.graph.nodes()[0].op->bodies)
                        if (body.target == "cuda") s.nodes[0].body = &body;
                    }),
              HasSubstr("is not for these dtypes, sizes and tensors (node \"first\")"));
}

// How a product of some tokens takes its weights on a GPU.
struct Streamed {
  Graph graph{ops::builtin(), "streamed"};

  explicit Streamed(int64_t tokens, int64_t columns = 2560, const char* op = "linear") {
    std::vector<graph::TensorId> inputs = {graph.state("x", DType::bf16, {tokens, columns})};
    if (std::string(op) == "rmsnorm_linear") inputs.push_back(graph.constant("norm", DType::bf16, {columns}));
    inputs.push_back(graph.constant("w", DType::bf16, {4096, columns}));
    graph.apply(op, "y", inputs, {.dtypes = {{"y", DType::bf16}}});
  }
  using Choices = std::map<std::string, int64_t>;
  Choices usual() const { return make_schedule(graph, "cuda").nodes[0].stream; }
  std::string error(const Choices& choices) const {
    Schedule schedule = make_schedule(graph, "cuda");
    for (const auto& [name, value] : choices) schedule.nodes[0].stream[name] = value;
    return error_of([&] { check_schedule(graph, schedule); });
  }
};

TEST(StreamChoices, AreInTheSchedule) {
  using Choices = Streamed::Choices;
  EXPECT_EQ(Streamed(1).usual(), (Choices{{"slices", 1}, {"part", 5}, {"registers", 0}})) << "two would end in zeros";
  EXPECT_EQ(Streamed(1, 4096).usual(), (Choices{{"slices", 2}, {"part", 4}, {"registers", 0}}));
  EXPECT_EQ(Streamed(2, 22528).usual(), (Choices{{"slices", 2}, {"part", 16}, {"registers", 0}}));
  EXPECT_EQ(Streamed(4).usual(), (Choices{{"slices", 2}, {"part", 3}, {"registers", 1}}));
  EXPECT_EQ(Streamed(8).usual(), (Choices{{"slices", 1}, {"part", 5}, {"registers", 1}}));
  EXPECT_EQ(Streamed(8, 12288).usual(), (Choices{{"slices", 1}, {"part", 2}, {"registers", 1}}));
  EXPECT_EQ(Streamed(64).usual(), (Choices{{"group", 32}, {"turn", 1}}));
  EXPECT_TRUE(make_schedule(Streamed(1).graph, "cpu").nodes[0].stream.empty());
}

TEST(StreamChoices, AreRefusedByNameWhereABodyCannotTakeThem) {
  const Streamed one(1), normed(1, 2560, "rmsnorm_linear"), four(4), long_rows(8, 12288), many(64);
  EXPECT_EQ(one.error({{"slices", 2}, {"part", 3}}), "no error");
  EXPECT_EQ(one.error({{"part", 2}}), "no error");
  EXPECT_THAT(one.error({{"slices", 3}}), HasSubstr("stream.slices is 3: want 1 or 2"));
  EXPECT_THAT(one.error({{"slices", 2}}), HasSubstr("stream.part is 5: want 1 to 3"))
      << "a chunk has twice the columns";
  EXPECT_THAT(one.error({{"part", 0}}), HasSubstr("stream.part is 0: want 1 to 5"));
  EXPECT_THAT(one.error({{"registers", 1}}), HasSubstr("stream.registers is 1: want 0 with so few tokens"));
  EXPECT_THAT(one.error({{"group", 32}}),
              HasSubstr("stream.group is nothing that is chosen with 1 tokens: want part, registers, slices"));
  EXPECT_THAT(normed.error({{"part", 2}}), HasSubstr("stream.part is 2: want 5")) << "its norm is of whole rows";
  EXPECT_THAT(four.error({{"slices", 1}}), HasSubstr("stream.slices is 1: want 2, as activations lie"));
  EXPECT_EQ(four.error({{"part", 2}}), "no error");
  EXPECT_THAT(four.error({{"part", 1}}), HasSubstr("stream.part is 1: want 3"));
  EXPECT_THAT(long_rows.error({{"part", 24}}), HasSubstr("stream.part is 24: want 2"));
  EXPECT_EQ(many.error({{"group", 64}, {"turn", 4}}), "no error");
  EXPECT_THAT(many.error({{"group", 40}}), HasSubstr("stream.group is 40: want one of 64, 48, 32"));
  EXPECT_THAT(many.error({{"turn", 2}}), HasSubstr("stream.turn is 2: want 1 or 4"));
  Schedule generated = make_schedule(one.graph, "cuda");
  generated.nodes[0].body = nullptr;
  EXPECT_THAT(error_of([&] { check_schedule(one.graph, generated); }),
              HasSubstr("a generated body streams no weights (node \"y\"): leave out stream.part"));
}

// A product that writes the residual stream, of 4096 rows of weights.
struct Shared {
  Graph graph{ops::builtin(), "shared"};

  explicit Shared(int64_t tokens, int64_t columns = 4096) {
    graph.add("linear_add_rmsnorm_parts", "y",
              {graph.state("x", DType::bf16, {tokens, columns}), graph.constant("w", DType::bf16, {4096, columns}),
               graph.state("residual", DType::f32, {tokens, 4096}), graph.constant("norm", DType::bf16, {4096})},
              {.sizes = {{"L", 32}}});
  }
  Streamed::Choices choices() const { return make_schedule(graph, "cuda").nodes[0].stream; }
  std::string error(const Streamed::Choices& choices) const {
    Schedule schedule = make_schedule(graph, "cuda");
    for (const auto& [name, value] : choices) schedule.nodes[0].stream[name] = value;
    return error_of([&] { check_schedule(graph, schedule); });
  }
};

TEST(StreamChoices, OfPromptsAreSharedByPartners) {
  using Choices = Streamed::Choices;
  const Shared prompts(512), short_prompts(256), odd(512, 4160);
  EXPECT_EQ(prompts.choices(), (Choices{{"group", 128}, {"turn", 1}, {"partners", 1}}));
  EXPECT_EQ(short_prompts.choices().at("partners"), 0) << "who lies on the sides of the L2";
  EXPECT_EQ(odd.choices().at("partners"), 0) << "half of 65 tiles of columns";
  EXPECT_EQ(Shared(512, 512).choices().at("partners"), 0) << "what is handed over takes longer than what is saved";
  EXPECT_EQ(prompts.error({{"partners", 0}, {"group", 96}}), "no error");
  EXPECT_EQ(prompts.error({{"group", 64}}), "no error");
  EXPECT_THAT(prompts.error({{"partners", 2}}), HasSubstr("stream.partners is 2: want 0 or 1"));
  EXPECT_THAT(
      prompts.error({{"group", 96}}),
      HasSubstr("stream.partners is 1: want 0, or a group whose halves are whole steps of 32 rows, which divides "
                "4096 rows, and whose tiles of 64 columns make up half of 4096"));
  EXPECT_THAT(odd.error({{"partners", 1}}), HasSubstr("stream.partners is 1: want 0, or a group"));
}

}  // namespace
}  // namespace megalith::optimize
