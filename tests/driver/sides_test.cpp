// A program on a card whose L2 has sides, and on one where something of that cannot be had: it runs all the same.
#include <random>

#include "cuda/skip.h"
#include "driver/fake_driver.h"
#include "megalith/engine/memory_map.h"
#include "megalith/jit/compile.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/program.h"

namespace megalith::runtime {
namespace {

class SidesTest : public test::FakeDriverTest {
 protected:
  /// The bundled model with room for 16 sequences, whose caches lie in pairs of heads.
  static const graph::Graph& graph() {
    static const graph::Graph one =
        build_decoder(config(), {.max_rows = 16, .max_requests = 16, .max_seq_len = 256, .target = "cuda:sm_90a"});
    return one;
  }
  static ModelConfig config() { return config_read(MEGALITH_SOURCE_DIR "/models/storyteller"); }
  static std::unique_ptr<CudaProgram> program(engine::MemoryMap& memory, int num_workers = 4) {
    memory.bind_states(graph());
    memory.bind_random(graph(), 7);
    memory.bind_rope(graph(), config(), 256);
    return std::make_unique<CudaProgram>(graph(), jit::compile(graph(), {.target = "cuda", .num_workers = num_workers}),
                                         memory.addresses(), std::set<std::string>{"mailbox"});
  }
};

TEST_F(SidesTest, OfTheCardAreUsed) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  fake.has_sides = true;
  engine::MemoryMap memory;
  EXPECT_TRUE(program(memory)->is_on_sides());
  EXPECT_EQ(fake.calls["cuTensorMapEncodeTiled"], stream::kNumKinds);
  const test::EnvironmentVariable off("MEGALITH_SIDES", "0");
  EXPECT_FALSE(program(memory)->is_on_sides());
}

TEST_F(SidesTest, AreLookedForAgainIfSomethingDisturbed) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const auto& [unclear, are_found] : {std::pair(2, true), {1000, false}}) {
    fake.has_sides = true;
    fake.unclear_probes = unclear;
    engine::MemoryMap memory;
    EXPECT_EQ(program(memory)->is_on_sides(), are_found) << unclear;
  }
}

TEST_F(SidesTest, NeedAWorkerOnEveryMultiprocessor) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  fake.has_sides = true;
  engine::MemoryMap memory;
  EXPECT_FALSE(program(memory, 3)->is_on_sides()) << "no rule says on which multiprocessors";
}

TEST_F(SidesTest, ThatAreNotSeenOrNotTakenAreDoneWithout) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  engine::MemoryMap memory;
  EXPECT_FALSE(program(memory)->is_on_sides());
  fake.has_sides = true;
  fake.failures["cuTensorMapEncodeTiled"] = 1;
  EXPECT_FALSE(program(memory)->is_on_sides());
}

// What is put into a cache comes back, wherever its pages lie.
TEST_F(SidesTest, CachesComeBackAsTheyWere) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  ASSERT_EQ(optimize::make_schedule(graph(), "cuda").layout(graph().find("layer.3.v_cache")),
            graph::Layout::head_pairs);
  for (const bool has_sides : {false, true}) {
    fake.has_sides = has_sides;
    engine::MemoryMap memory;
    const auto made = program(memory);
    const CudaContextGuard context(made->ordinal());
    std::mt19937 random(3);
    std::map<std::string, std::vector<uint16_t>> written;
    for (const char* name : {"layer.0.k_cache", "layer.3.v_cache"}) {
      const graph::Tensor& cache = graph().tensor(graph().find(name));
      auto* const values = memory.get<uint16_t>(name);
      for (int64_t i = 0; i < cache.num_elements(); ++i) values[i] = static_cast<uint16_t>(random());
      written[name] = {values, values + cache.num_elements()};
      made->upload(name);
      std::fill_n(values, cache.num_elements(), uint16_t{0});
    }
    for (const auto& [name, values] : written) {
      made->download(name);
      EXPECT_TRUE(std::ranges::equal(values, std::span(memory.get<uint16_t>(name), values.size()))) << name;
    }
  }
}

}  // namespace
}  // namespace megalith::runtime
