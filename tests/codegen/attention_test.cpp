// The tuned attention (kernels/cpu/attention.h) against the interpreter: caches of every element type, pages of every
// size, chunks longer than what is weighed together, heads of odd sizes; and the same bits for a row alone and among
// others, on every machine.
#include <gtest/gtest.h>
#include <algorithm>

#include <fmt/format.h>

#include "codegen/program.h"
#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/kernels/attention_workspace.h"
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

// What tiles compute: queries, keys, values and weights are rounded to bf16.
std::vector<Spec> tile_specs() {
  std::vector<Spec> result;
  for (const Shape& shape : kShapes) {
    Spec spec = partial(shape);
    for (const std::string operand :
         {"f32(q[t, (g * M + m) * D + d])",
          "f32(k_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, d])",
          "f32(v_cache[page_table[request[t], (c * L + s) // B], (c * L + s) mod B, g, e])"}) {
      const size_t at = spec.text.find(operand);
      MEGALITH_ASSERT(at != std::string::npos, "no {} in {}", operand, spec.text);
      spec.text.replace(at, operand.size(), "f32(bf16(" + operand + "))");
    }
    const std::string weight = "p[t, g, m, c, s] *";
    spec.text.replace(spec.text.find(weight), weight.size(), "f32(bf16(p[t, g, m, c, s])) *");
    result.push_back(std::move(spec));
  }
  return result;
}

const std::string kTiles = " -DMEGALITH_AMX_PRODUCTS -DMEGALITH_BF16_WEIGHTS";
#if defined(__x86_64__)
const std::string kNoTiles = " -mno-amx-tile";
#else
const std::string kNoTiles = "";
#endif

// With the tile registers of this machine, if it has some that it gives.
const Program& tiles_here() {
  static const Program* program =
      new Program(tile_specs(), "c++", "-march=native" + (amx_is_usable() ? "" : kNoTiles) + kTiles);
  return *program;
}

// `limit`: times what f32 may be off by, of a chunk of so many positions.
template <class Limit>
void expect_like_the_interpreter(const Program& program, Limit limit) {
  for (const Shape& shape : kShapes) {
    const std::string tuned = fmt::format("tuned_{}", shape.name);
    for (const int64_t rows : {shape.rows, shape.rows / 2, int64_t{1}, int64_t{0}})
      EXPECT_LT(difference(program, tuned, 1, {}, {{"T", rows}}), limit(shape.chunk))
          << tuned << " of " << rows << " rows";
  }
}

double exact(int64_t) { return 1; }

// Scores differ in their last bits, so that one weight or another is rounded the other way, by 2^-9 of it. Of a chunk
// that is longer than what is weighed together all weights are rounded before they are scaled to its largest score.
double rounding_weights(int64_t chunk) { return 0x1p-9 / 2e-5 * (chunk <= attention_workspace::kPositions ? 1 : 20); }

TEST(Attention, IsThatOfTheInterpreter) { expect_like_the_interpreter(here(), exact); }
TEST(Attention, IsThatOfTheInterpreterInTiles) { expect_like_the_interpreter(tiles_here(), rounding_weights); }

void expect_the_same_alone_and_among_others(const Program& program) {
  for (const Shape& shape : kShapes) {
    const Spec& spec = program.spec(fmt::format("tuned_{}", shape.name));
    loop::Arrays together = random_arrays(spec, 2), alone = together, cut = together;
    program.run(spec.name, together);
    program.run(spec.name, alone, {{"t", 1}, {"g", 1}, {"c", 1}});
    program.run(spec.name, cut, {{"t", 4}});
    for (const char* output : {"part", "top", "total"}) {
      EXPECT_EQ(alone.at(output).values, together.at(output).values) << spec.name << " " << output;
      EXPECT_EQ(cut.at(output).values, together.at(output).values) << spec.name << " " << output;
    }
  }
}

TEST(Attention, OfARowIsTheSameAloneAndAmongOthers) {
  expect_the_same_alone_and_among_others(here());
  expect_the_same_alone_and_among_others(tiles_here());
}

TEST(Attention, ChunksArePutTogether) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    EXPECT_LT(difference(here(), "merge", seed), 1);
    EXPECT_LT(difference(here(), "merge", seed, {{"t", 1}, {"a", 2}}, {{"T", 3}}), 1);
  }
}

void expect_the_same(const Program& here, const Program& there, const std::string& machine) {
  for (const Shape& shape : kShapes) {
    const std::string name = fmt::format("tuned_{}", shape.name);
    loop::Arrays a = random_arrays(here.spec(name), 3), b = a;
    for (const int64_t rows : {shape.rows, shape.rows / 2, int64_t{1}}) {
      here.run(name, a, {}, {{"T", rows}});
      there.run(name, b, {}, {{"T", rows}});
      for (const char* output : {"part", "top", "total"})
        EXPECT_EQ(a.at(output).values, b.at(output).values) << name << " " << output << " " << machine;
    }
  }
}

TEST(Attention, IsTheSameOnEveryMachineAndCompiler) {
  on_other_machines(specs(), [](const Program& there, const std::string& machine) {
    expect_the_same(here(), there, machine);  // and so like the interpreter, with which `here` was compared
  });
}

TEST(Attention, IsTheSameOnEveryMachineInTiles) {
  if (!amx_is_usable()) printf("[SKIP] this machine has no AMX: only what stands in for it is compared\n");
  on_other_machines(
      tile_specs(),
      [](const Program& there, const std::string& machine) { expect_the_same(tiles_here(), there, machine); },
      kNoTiles + kTiles);
}

}  // namespace
}  // namespace megalith::codegen::testing
