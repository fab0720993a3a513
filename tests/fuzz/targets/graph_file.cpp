#include "megalith/graph/graph_file.h"

#include <memory>
#include <string>

#include "fuzz.h"
#include "leak_of_isl.h"

namespace {

using namespace megalith;

std::shared_ptr<const graph::Registry> known() {
  static const std::shared_ptr<const graph::Registry> registry = [] {
    auto made = std::make_shared<graph::Registry>();
    made->add(graph::operator_("linear", "y = x weight^T")
                  .input("x", {"T", "K"})
                  .input("weight", {"N", "K"}, DType::bf16)
                  .output("y", {"T", "N"})
                  .loops("{ [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }\n"
                         "y[t, n] = sum(k, x[t, k] * weight[n, k])")
                  .tasks({"n", "t"}));
    made->add(graph::operator_("count_up", "adds one, in place")
                  .inout("x", {"N"}, DType::i32)
                  .output("stop", {"1"}, DType::i32)
                  .loops("{ [n] : 0 <= n < N }\nx[n] = x[n] + 1\nstop[0] = if(x[0] >= 3, 1, 0)"));
    return made;
  }();
  return registry;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::run(data, size, [](std::string_view text) {
    const graph::GraphFile file = graph::from_file(std::string(text), known());
    const std::string written = graph::to_file(file, *known());
    MEGALITH_ASSERT(graph::to_file(graph::from_file(written, known()), *known()) == written,
                    "written, read and written again it differs:\n{}", written);
  });
}
