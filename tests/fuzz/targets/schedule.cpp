#include "megalith/graph/schedule_text.h"

#include <memory>

#include "fuzz.h"

namespace {

using namespace megalith;

const graph::Graph& small_graph() {
  static const graph::Graph graph = [] {
    auto registry = std::make_shared<graph::Registry>();
    registry->add(graph::operator_("scale", "y = x")
                      .input("x", {"T", "N"})
                      .output("y", {"T", "N"})
                      .loops("{ [t, n] : 0 <= t < T and 0 <= n < N }\ny[t, n] = 2 * x[t, n]")
                      .tasks({"n", "t"})
                      .body("cpu", "a.h", "one")
                      .body("cpu", "a.h", "one")
                      .body("cpu", "b.h", "two"));
    graph::Graph made(registry, "small");
    auto x = made.state("x # of", DType::f32, {2, 8});
    for (const char* name : {"first", "second node", "third\n"}) x = made.apply("scale", name, {x});
    return made;
  }();
  return graph;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::run(data, size, [](std::string_view text) {
    const graph::Graph& graph = small_graph();
    const std::string printed = graph::print(graph, graph::parse_schedule(std::string(text), graph, "cpu"));
    MEGALITH_ASSERT(graph::print(graph, graph::parse_schedule(printed, graph, "cpu")) == printed,
                    "printed, read and printed again it differs:\n{}", printed);
  });
}
