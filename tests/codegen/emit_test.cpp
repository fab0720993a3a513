// Emitted kernels against the interpreter, compiled by the system's compiler.
#include <gtest/gtest.h>

#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/error.h"

namespace megalith::codegen::testing {
namespace {

const Program& all_compiled() {
  static const Program* compiled = new Program(all_specs());
  return *compiled;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Spec& spec : all_specs()) result.push_back(spec.name);
  return result;
}

// Every axis cut at odd places.
std::map<std::string, int64_t> small_tiles(const Spec& spec) {
  std::map<std::string, int64_t> tiles;
  int64_t size = 3;
  for (const std::string& iname : spec.tiled) {
    tiles[iname] = size;
    size = size * 2 - 1;
  }
  return tiles;
}

class Emitted : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Emitted, ::testing::ValuesIn(names()),
                         [](const auto& kernel) { return kernel.param; });

TEST_P(Emitted, AgreesWithTheInterpreter) {
  for (unsigned seed = 1; seed <= 3; ++seed)
    EXPECT_LT(difference(all_compiled(), GetParam(), seed), 1) << "seed " << seed;
}

TEST_P(Emitted, AgreesInTiles) {
  EXPECT_LT(difference(all_compiled(), GetParam(), 4, small_tiles(all_compiled().spec(GetParam()))), 1);
}

TEST_P(Emitted, GivesTheSameBitsInAnyTiles) {
  const Spec& spec = all_compiled().spec(GetParam());
  loop::Arrays whole = random_arrays(spec, 5), cut = whole;
  all_compiled().run(spec.name, whole);
  all_compiled().run(spec.name, cut, small_tiles(spec));
  for (const auto& [tensor, array] : whole) EXPECT_EQ(array.values, cut.at(tensor).values) << tensor;
}

std::vector<std::string> names_with_dynamic_size() {
  std::vector<std::string> result;
  for (const Spec& spec : all_specs())
    if (spec.text.find("T dynamic") != std::string::npos) result.push_back(spec.name);
  return result;
}

class EmittedDynamic : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernels, EmittedDynamic, ::testing::ValuesIn(names_with_dynamic_size()),
                         [](const auto& kernel) { return kernel.param; });

TEST_P(EmittedDynamic, KeepsToItsSize) {
  const Spec& spec = all_compiled().spec(GetParam());
  loop::Arrays all = random_arrays(spec, 6);
  const loop::Arrays inputs = all;
  all_compiled().run(spec.name, all);
  for (int64_t rows = 0; rows < spec.sizes.at("T"); ++rows) {
    EXPECT_LT(difference(all_compiled(), GetParam(), 6, {}, {{"T", rows}}), 1) << rows << " rows";
    // And the rows that are there have the same bits as among more rows.
    loop::Arrays some = inputs;
    all_compiled().run(spec.name, some, {{"t", 2}}, {{"T", rows}});
    for (const auto& [tensor, array] : some) {
      if (inputs.contains(tensor)) continue;
      const size_t row = array.values.size() / static_cast<size_t>(spec.sizes.at("T"));
      for (size_t i = 0; i < row * static_cast<size_t>(rows); ++i)
        ASSERT_EQ(array.values[i], all.at(tensor).values[i]) << tensor << " " << i;
    }
  }
}

// A graph may write a node's result over one of its inputs: then two operands are one memory.
TEST(Emit, WritesOverAnOperandThatIsTheSameTensor) {
  for (const char* name : {"silu_mul", "rmsnorm"}) {
    const Spec& spec = all_compiled().spec(name);
    const std::string input = spec.text.find("gate") != std::string::npos ? "up" : "x";
    loop::Arrays apart = random_arrays(spec, 8), together = apart;
    all_compiled().run(name, apart);
    all_compiled().run(name, together, {}, {}, {{"y", input}});
    EXPECT_EQ(apart.at("y").values, together.at("y").values) << name;
  }
}

TEST(Emit, ClampsADynamicSizeThatIsOutOfRange) {
  EXPECT_NO_THROW({
    loop::Arrays arrays = random_arrays(all_compiled().spec("rmsnorm"), 1);
    all_compiled().run("rmsnorm", arrays, {}, {{"T", 1000}});
    all_compiled().run("rmsnorm", arrays, {}, {{"T", -5}});
  });
}

TEST(Emit, TellsWhatItHolds) {
  EXPECT_NE(all_compiled().info().find("\"target\": \"cpu\""), std::string::npos);
  EXPECT_NE(all_compiled().info().find("\"rmsnorm\""), std::string::npos);
  EXPECT_NE(all_compiled().info().find("\"scratch_bytes\": " + std::to_string(all_compiled().source().scratch_bytes)),
            std::string::npos);
  EXPECT_GE(all_compiled().source().scratch_bytes, 90 * 75 * 4);  // large_temporary
  RecordProperty("compile_ms", static_cast<int>(all_compiled().compile_seconds() * 1000));
  printf("%zu kernels compiled in %.2f s\n", names().size(), all_compiled().compile_seconds());
}

TEST(Emit, GivesTheSameBitsWithOtherCompilersAndMachines) {
  on_other_machines(all_specs(), [](const Program& there, const std::string& machine) {
    for (const Spec& spec : all_specs()) {
      loop::Arrays a = random_arrays(spec, 7), b = a;
      all_compiled().run(spec.name, a);
      there.run(spec.name, b);
      for (const auto& [tensor, array] : a)
        EXPECT_EQ(array.values, b.at(tensor).values) << spec.name << " " << tensor << " " << machine;
    }
  });
}

TEST(EmitErrors, NamesAnOpaqueKernelWithoutABody) {
  graph::LoweredKernel lowered = lower({"sorting",
                                        R"(
      input x: f32[I]
      output y: f32[I]
      { [i] : 0 <= i < I }
      y[i] = x[i])",
                                        {{"I", 4}},
                                        {},
                                        {}});
  lowered.kernel.opaque = true;
  try {
    emit_cpu({lowered}, "a test");
    FAIL() << "wanted a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("[sorting] has no body for the target \"cpu\""), std::string::npos)
        << error.what();
  }
}

TEST(EmitErrors, NamesAnInameThatIsAWordOfCpp) {
  try {
    emit_cpu({lower({"loopy",
                     R"(
        input x: f32[I]
        output y: f32[I]
        { [for] : 0 <= for < I }
        y[for] = x[for])",
                     {{"I", 4}},
                     {},
                     {}})},
             "a test");
    FAIL() << "wanted a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the iname \"for\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megalith::codegen::testing
