// The words in which targets differ. The emitter is one: it writes loops, expressions and reductions in names that each
// target's prelude gives a meaning (kernels/<target>/prelude.h and reduce.h).
#pragma once

#include <string>
#include <vector>

namespace megalith::codegen {

struct Dialect {
  std::string target;                // of graph::TunedBody
  std::string function;              // before the name of a body: linkage, attributes, void
  std::string inline_lambda;         // after a lambda's parameters: it vanishes into its caller
  std::string independent;           // before a loop whose iterations are independent
  std::vector<std::string> headers;  // embedded first, whatever the kernels are
};

inline Dialect cpu_dialect() {
  return {"cpu",
          "[[gnu::noinline]] static void",
          "MEGALITH_INLINE",
          "MEGALITH_INDEPENDENT",
          {"runtime/protocol.h", "runtime/cpu/worker.h", "kernels/cpu/prelude.h", "kernels/cpu/reduce.h"}};
}

}  // namespace megalith::codegen
