// The memory of a decoder's tensors.
#include "megalith/engine/memory_map.h"

#include <gmock/gmock.h>

#include "megalith/base/error.h"
#include "megalith/ops/registry.h"
#include "megalith/runtime/topology.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Nothing is touched here, so the system would hand out all of it.
TEST(MemoryMap, StatesThatFitOneByOneMustFitTogether) {
  graph::Graph graph(ops::builtin(), "large");
  for (const char* name : {"a.k_cache", "a.v_cache", "b.k_cache"})
    graph.state(name, DType::i8, {runtime::memory_available_bytes() / 2});
  MemoryMap memory;
  EXPECT_THAT([&] { memory.bind_states(graph); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("the states, most of which are the KV cache, need"),
                                               HasSubstr("--max-seq-len"), HasSubstr("--num-pages"))));
  EXPECT_TRUE(memory.addresses().empty());
  // Copies of what lies on a GPU are hardly touched.
  MemoryMap copies;
  copies.bind_states(graph, false);
  EXPECT_EQ(copies.addresses().size(), 3u);
}

}  // namespace
}  // namespace megalith::engine
