// The tuned attention (kernels/cpu/attention.h) against the interpreter: caches of every element type, pages of every
// size, chunks longer than what is weighed together, heads of odd sizes; and the same bits for a row alone and among
// others, on every machine.
#include <gtest/gtest.h>
#include <algorithm>

#include <fmt/format.h>

#include "codegen/program.h"
#include "megalith/ops/registry.h"

namespace megalith::codegen::testing {
namespace {

struct Shape {
  const char* name;
  DType cache;
  int64_t rows, groups, per_group, head, page, pages, chunks, chunk;
};

// Of one text mostly: rows are drawn from `R` texts, and neighbours often have the same.
constexpr Shape kShapes[] = {{"plain", DType::f32, 13, 2, 2, 64, 16, 20, 2, 160},
                             {"long", DType::bf16, 21, 1, 3, 128, 16, 40, 2, 320},
                             {"page1", DType::f16, 9, 3, 1, 33, 1, 70, 3, 23},
                             {"page4096", DType::f32, 5, 1, 18, 80, 4096, 1, 1, 600},
                             {"tiny", DType::bf16, 6, 1, 2, 7, 4, 5, 4, 5}};

Spec partial(const Shape& shape) {
  Spec spec = spec_of(ops::builtin()->get("attention_partial"), fmt::format("tuned_{}", shape.name),
                      {{"T", shape.rows},
                       {"G", shape.groups},
                       {"M", shape.per_group},
                       {"D", shape.head},
                       {"P", shape.pages},
                       {"B", shape.page},
                       {"R", 2},
                       {"Q", shape.pages},
                       {"C", shape.chunks},
                       {"L", shape.chunk}},
                      {{"k_cache", shape.cache}, {"v_cache", shape.cache}});
  spec.values = {{"page_table", {0, shape.pages - 1}},
                 {"request", {0, 1}},
                 {"position", {0, std::min(shape.chunks * shape.chunk, shape.pages * shape.page) - 1}}};
  return spec;
}

std::vector<Spec> specs() {
  std::vector<Spec> result;
  for (const Shape& shape : kShapes) result.push_back(partial(shape));
  result.push_back(spec_of(ops::builtin()->get("attention_merge"), "merge",
                           {{"T", 5}, {"A", 3}, {"D", 33}, {"C", 4}, {"L", 7}}, {{"y", DType::bf16}}));
  result.back().values = {{"position", {0, 27}}};
  return result;
}

const Program& here() {
  static const Program* program = new Program(specs());
  return *program;
}

void expect_like_the_interpreter(const Program& program) {
  for (const Shape& shape : kShapes) {
    const std::string tuned = fmt::format("tuned_{}", shape.name);
    for (const int64_t rows : {shape.rows, shape.rows / 2, int64_t{1}, int64_t{0}})
      EXPECT_LT(difference(program, tuned, 1, {}, {{"T", rows}}), 1) << tuned << " of " << rows << " rows";
  }
}

TEST(Attention, IsThatOfTheInterpreter) { expect_like_the_interpreter(here()); }

TEST(Attention, OfARowIsTheSameAloneAndAmongOthers) {
  for (const Shape& shape : kShapes) {
    const Spec& spec = here().spec(fmt::format("tuned_{}", shape.name));
    loop::Arrays together = random_arrays(spec, 2), alone = together, cut = together;
    here().run(spec.name, together);
    here().run(spec.name, alone, {{"t", 1}, {"g", 1}, {"c", 1}});
    here().run(spec.name, cut, {{"t", 4}});
    for (const char* output : {"part", "top", "total"}) {
      EXPECT_EQ(alone.at(output).values, together.at(output).values) << spec.name << " " << output;
      EXPECT_EQ(cut.at(output).values, together.at(output).values) << spec.name << " " << output;
    }
  }
}

TEST(Attention, ChunksArePutTogether) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    EXPECT_LT(difference(here(), "merge", seed), 1);
    EXPECT_LT(difference(here(), "merge", seed, {{"t", 1}, {"a", 2}}, {{"T", 3}}), 1);
  }
}

TEST(Attention, IsTheSameOnEveryMachineAndCompiler) {
  on_other_machines(specs(), [](const Program& there, const std::string& machine) {
    expect_like_the_interpreter(there);
    for (const Shape& shape : kShapes) {
      const std::string name = fmt::format("tuned_{}", shape.name);
      loop::Arrays a = random_arrays(here().spec(name), 3), b = a;
      here().run(name, a);
      there.run(name, b);
      for (const char* output : {"part", "top", "total"})
        EXPECT_EQ(a.at(output).values, b.at(output).values) << name << " " << output << " " << machine;
    }
  });
}

}  // namespace
}  // namespace megalith::codegen::testing
