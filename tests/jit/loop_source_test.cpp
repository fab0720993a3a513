// Scheduled loop kernels as code: what it looks like.
#include "megalith/codegen/loop_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "jit/scheduled.h"
#include "megalith/base/error.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using loop::Schedule;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kDouble =
    "input a: f32[n]\noutput out: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\nout[i] = 2 * a[i]\n";

// L3: the length of the last block is looked at where it may be shorter, and nowhere else.
TEST(LoopSource, L3_ABoundOnlyWhereTheLengthNeedsIt) {
  const std::string any = body_of(scheduled(kDouble, "split i 16 -> o p"), LoopTarget::cpu);
  EXPECT_THAT(any, AllOf(HasSubstr("o < floord(n - 1, 16) + 1;"), HasSubstr("p < min(16, n - 16 * o);"),
                         Not(HasSubstr("if ("))));
  const std::string whole = body_of(scheduled(kDouble, "assume n mod 16 = 0\nsplit i 16 -> o p"), LoopTarget::cpu);
  EXPECT_THAT(whole, AllOf(HasSubstr("p < 16;"), Not(HasSubstr("min(")), Not(HasSubstr("if ("))));
}

// L4: the same for what is unrolled; or the bulk without, and a last block with it.
TEST(LoopSource, L4_UnrolledBulkAndTail) {
  const std::string steps = "split i 4 -> o p\nunroll p\n";
  EXPECT_THAT(body_of(scheduled(kDouble, steps), LoopTarget::cpu),
              AllOf(HasSubstr("#pragma GCC unroll"), HasSubstr("p < min(4, n - 4 * o);")));
  EXPECT_THAT(body_of(scheduled(kDouble, "assume n mod 4 = 0\n" + steps), LoopTarget::cpu),
              AllOf(HasSubstr("p < 4;"), Not(HasSubstr("min("))));
  const std::string peeled =
      body_of(scheduled(kDouble, steps + "peel o -> last where o >= floor(n/4)"), LoopTarget::cpu);
  const size_t tail = peeled.find("last =");
  ASSERT_NE(tail, std::string::npos) << peeled;
  EXPECT_THAT(peeled.substr(0, tail), AllOf(HasSubstr("p < 4;"), Not(HasSubstr("min("))));
  EXPECT_THAT(peeled.substr(tail), HasSubstr("p < "));
}

// L5: a thread looks whether it is inside, and the grid covers all.
TEST(LoopSource, L5_AGuardedGrid) {
  const Schedule schedule = scheduled(kDouble, "split i 128 -> o:g.0 p:l.0");
  const LoopSource source = codegen::emit_loops(schedule.kernel(), LoopTarget::cuda, "kernel");
  EXPECT_THAT(source.text, AllOf(HasSubstr("const i64 o = blockIdx.x;"), HasSubstr("const i64 p = threadIdx.x;"),
                                 HasSubstr("if (n - 128 * o - p - 1 >= 0) {")));
  EXPECT_EQ(source.threads[0], 128);
  for (const int64_t n : {1, 128, 129, 1000}) EXPECT_EQ(source.blocks({n})[0], (127 + n) / 128) << n;
  const Schedule whole = scheduled(kDouble, "assume n mod 128 = 0\nsplit i 128 -> o:g.0 p:l.0");
  EXPECT_THAT(body_of(whole, LoopTarget::cuda), Not(HasSubstr("if (")));
}

// What lies side by side and begins at a multiple of its size moves at once, and what is left by itself.
TEST(LoopSource, PacksWhereTheirPlaceIsProved) {
  const std::string steps = "split i 32 -> o:g.0 p\nsplit p 4 -> q:l.0 v:vec\n";
  const auto source = [](const Schedule& schedule, const std::set<std::string>& aligned) {
    return codegen::emit_loops(schedule.kernel(), LoopTarget::cuda, "kernel", aligned).text;
  };
  const Schedule any = scheduled(kDouble, steps), whole = scheduled(kDouble, "assume n mod 4 = 0\n" + steps);
  EXPECT_THAT(source(whole, {"a", "out"}),
              AllOf(HasSubstr("const Pack<f32, 4> pack_of_a_0 = load_pack<4>(&a[o * 32 + q * 4]);"),
                    HasSubstr("pack_of_out_1.at[v] = 2.0f * pack_of_a_0.at[v];"),
                    HasSubstr("store_pack(&out[o * 32 + q * 4], pack_of_out_1);"), Not(HasSubstr("} else {"))));
  EXPECT_THAT(source(any, {"a", "out"}), AllOf(HasSubstr("load_pack<4>"), HasSubstr("} else {")));
  EXPECT_THAT(source(whole, {"a"}), AllOf(HasSubstr("load_pack<4>"), Not(HasSubstr("store_pack"))));
  EXPECT_THAT(source(whole, {}), AllOf(HasSubstr("#pragma unroll"), Not(HasSubstr("Pack"))));
  // Three elements are no load.
  EXPECT_THAT(source(scheduled(kDouble, "assume n mod 3 = 0\nsplit i 3 -> o v:vec\n"), {"a", "out"}),
              Not(HasSubstr("Pack")));
  // Rows begin at multiples of four only if they are as long.
  const std::string rows =
      "input a: f32[n, m]\noutput out: f32[n, m]\nassume n >= 1 and m >= 4\n{ [i, j] : 0 <= i < n and 0 <= j < m }\n"
      "out[i, j] = 2 * a[i, j]\n";
  const std::string by_rows = "tag i g.0\nsplit j 4 -> q v:vec\n";
  EXPECT_THAT(source(scheduled(rows, by_rows), {"a", "out"}), Not(HasSubstr("Pack")));
  EXPECT_THAT(source(scheduled(rows, "assume m mod 4 = 0\n" + by_rows), {"a", "out"}), HasSubstr("load_pack<4>"));
  // Not what is one off, nor what only one side of a choice reads.
  const std::string off =
      "input a: f32[n + 4]\noutput out: f32[n]\nassume n >= 1 and n mod 4 = 0\n{ [i] : 0 <= i < n }\n"
      "out[i] = a[i + 1] + if(a[i] > 0, a[i + 4], 0)\n";
  const std::string of_off = source(scheduled(off, steps), {"a", "out"});
  EXPECT_THAT(of_off, AllOf(HasSubstr("load_pack<4>(&a[o * 32 + q * 4])"),
                            Not(HasSubstr("load_pack<4>(&a[o * 32 + q * 4 + 4]")), Not(HasSubstr("+ 1])"))));
}

// What is read of another lane is exchanged by all of them, before any condition.
TEST(LoopSource, LanesExchangeWhatTheyKeep) {
  const std::string rows =
      "kernel rows\ninput a: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n"
      "{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\ntop[i] = max(k, a[i, k])\ny[i, j] = a[i, j] - top[i]\n";
  const std::string steps = "tag i g.0\nsplit j 32 -> j_o j_i:lane\ntree k 32 -> part p:lane\nspace part lanes\n";
  const std::string source = body_of(scheduled(rows, steps + "space top private"), LoopTarget::cuda);
  const size_t at = source.find("__shfl_sync(0xffffffffu, part[0], static_cast<int>(p_16 + 16) & 31);\n");
  ASSERT_NE(at, std::string::npos) << source;
  EXPECT_THAT(source.substr(at).substr(0, 140), HasSubstr("\n      if (")) << source;
  EXPECT_THAT(source, AllOf(HasSubstr("f32 part[1];"), HasSubstr("part[0], static_cast<int>(0) & 31);"),
                            HasSubstr("part[0] = larger(part[0], pack_of_part_"), Not(HasSubstr("__shared__"))));
  // The first lane finds its own.
  EXPECT_THAT(body_of(scheduled(rows, steps + "space top shared"), LoopTarget::cuda), HasSubstr("top[0] = part[0];"));
}

// A CPU computes them in the compiler's vectors, wherever they begin; what has no operators of each element stays a loop.
TEST(LoopSource, VectorsOnACpu) {
  const std::string of_eight = "split i 8 -> o v:vec\n";
  const auto source = [&](const std::string& value, const std::string& steps) {
    return body_of(scheduled("input a: f32[n + 1]\noutput out: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\nout[i] = " +
                                 value + "\n",
                             steps),
                   LoopTarget::cpu);
  };
  EXPECT_THAT(source("2 * a[i + 1] - a[0]", "assume n mod 8 = 0\n" + of_eight),
              AllOf(HasSubstr("store_vector<8>(&out[o * 8], 2.0f * load_vector<8>(&a[o * 8 + 1]) - a[0]);"),
                    Not(HasSubstr("} else {"))));
  EXPECT_THAT(source("2 * a[i]", of_eight), AllOf(HasSubstr("if (n - 8 * o >= 8) {"), HasSubstr("} else {")));
  EXPECT_THAT(source("a[0] + 1", of_eight), HasSubstr("store_vector<8>(&out[o * 8], broadcast<8>(a[0] + 1.0f));"));
  for (const char* value : {"exp(a[i])", "if(a[i] > 0, a[i], 0)", "a[n - i]", "a[i] * i"})
    EXPECT_THAT(source(value, of_eight), AllOf(Not(HasSubstr("store_vector")), HasSubstr("MEGALITH_INDEPENDENT")));
  EXPECT_THAT(source("2 * a[i]", "split i 6 -> o v:vec\n"), Not(HasSubstr("store_vector")));
  EXPECT_THAT(source("2 * a[i]", "split i 16 -> o v:vec\n"), Not(HasSubstr("store_vector")));
}

// Two loops tagged vec over what lies side by side along the first: rows change places with columns in registers.
TEST(LoopSource, SquaresInRegistersOnACpu) {
  const auto source = [](const std::string& value, const std::string& steps) {
    return body_of(scheduled(kTransposition + std::string("b[j, i] = ") + value + "\n", steps), LoopTarget::cpu);
  };
  const std::string of_eight = "split i 8 -> i_o p:vec, j 8 -> j_o q:vec\norder j_o i_o q p\n";
  const std::string whole = source("2 * a[i, j]", "assume n mod 8 = 0 and m mod 8 = 0\n" + of_eight);
  EXPECT_THAT(whole, AllOf(HasSubstr("f32 pack_of_a_0[64] __attribute__((aligned(64)));"),
                           HasSubstr("store_vector<8>(&pack_of_a_0[8 * p], load_vector<8>(&a["),
                           HasSubstr("transpose_pack<8>(pack_of_a_0);"),
                           HasSubstr(", 2.0f * load_vector<8>(&pack_of_a_0[8 * q]));"), Not(HasSubstr("} else {")),
                           Not(HasSubstr("finish_streams"))));
  EXPECT_THAT(source("a[i, j]", of_eight),
              AllOf(HasSubstr("transpose_pack"), HasSubstr(") >= 8) {"), HasSubstr("} else {")));
  EXPECT_THAT(source("a[i, j]", "stream b\n" + of_eight),
              AllOf(HasSubstr("stream_vector<8>(&b["), HasSubstr("  finish_streams();\n}")));
  // What is side by side along the second needs no square, and what is no operator of each element has none.
  EXPECT_THAT(source("a[j, i]", "assume n = m\n" + of_eight),
              AllOf(Not(HasSubstr("transpose_pack")), HasSubstr("store_vector<8>(&b[")));
  EXPECT_THAT(source("exp(a[i, j])", of_eight), Not(HasSubstr("transpose_pack")));
  EXPECT_THAT(source("a[i, j]", "split i 6 -> i_o p:vec, j 6 -> j_o q:vec\norder j_o i_o q p\n"),
              Not(HasSubstr("transpose_pack")));
}

std::string refusal_or_source(const std::string& kernel, const std::string& steps,
                              const std::set<std::string>& aligned) {
  try {
    return codegen::emit_loops(scheduled(kernel, steps).kernel(), LoopTarget::cuda, "kernel", aligned).text;
  } catch (const UserError& error) { return error.what(); }
}

// The page shows what the example gives.
TEST(LoopSource, ThePageOfSchedulesIsAsTheExampleIs) {
  const std::string page = file_read(std::string(MEGALITH_SOURCE_DIR) + "/docs/schedules.md");
  EXPECT_THAT(page, HasSubstr(example("matmul.loops")));
  const std::string steps = example("matmul.schedule");
  EXPECT_THAT(page, HasSubstr(steps));
  const Schedule schedule = scheduled(example("matmul.loops"), steps);
  const std::string kernel = loop::print(schedule.kernel());
  EXPECT_THAT(page, HasSubstr(kernel.substr(kernel.find("acc[i_i, j_i] = 0.0"))));
  const std::string text = codegen::emit_loops(schedule.kernel(), LoopTarget::cuda, "matmul").text;
  EXPECT_THAT(page, HasSubstr(text.substr(text.find("  __shared__"))));
  const std::string registers = example("matmul_registers.schedule");
  const size_t first = registers.find("tile i j"), last = registers.find("# Tiles of a");
  EXPECT_THAT(page, HasSubstr(registers.substr(first, last - first)));
}

TEST(LoopSource, ThePageShowsWhatTagsMakeOfASum) {
  const std::string page = file_read(std::string(MEGALITH_SOURCE_DIR) + "/docs/schedules.md");
  const std::string steps = "split i 1024 -> b:g.0 i_o\nsplit i_o 4 -> i_r i_t:l.0\n";
  EXPECT_THAT(page, HasSubstr("```text\n" + steps + "```"));
  const Schedule schedule =
      scheduled("input a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n", steps);
  const std::string kernel = loop::print(loop::realise_dealt_out(schedule.kernel()));
  EXPECT_THAT(page, HasSubstr("```text\n" + kernel.substr(kernel.find("part_0[i_t_4] = ")) + "```"));
}

// What data decide is checked where it is used, and what is proved is not.
TEST(LoopSource, WhatDataDecideIsChecked) {
  const std::string rows =
      "input ids: i32[n]\ninput table: f32[v, h]\noutput y: f32[n, h]\nassume n >= 1 and v >= 1 and h >= 1\n"
      "{ [i, j] : 0 <= i < n and 0 <= j < h }\ny[i, j] = table[ids[i], j] / (j // ids[i])\n";
  const Schedule plain = scheduled(rows, "");
  const LoopSource cpu = codegen::emit_loops(plain.kernel(), LoopTarget::cpu, "rows");
  EXPECT_THAT(cpu.text, AllOf(HasSubstr("table[inside(faults, ids[i], v, 0) * h + j]"),
                              HasSubstr("nonzero(faults, ids[i], 1)"), HasSubstr("(tensors[3])};\n")));
  ASSERT_EQ(cpu.checks.size(), 2u);
  EXPECT_EQ(cpu.checks[0].what, "reads table[ids[i], j]");
  EXPECT_EQ(cpu.checks[1].what, "divides j // ids[i]");
  EXPECT_THAT(codegen::emit_loops(plain.kernel(), LoopTarget::cuda, "rows").text,
              HasSubstr("LoopFault* fault_note, i64 n, i64 h, i64 v) {\n  const FaultNote faults{fault_note};"));
  EXPECT_TRUE(codegen::emit_loops(scheduled(kDouble, "").kernel(), LoopTarget::cuda, "plain").checks.empty());
  // A row that data choose moves at once where it is as long as that takes.
  const std::string packed = "assume h mod 4 = 0\nsplit j 4 -> j_o:l.0 j_v:vec\nassume h <= 64\n";
  EXPECT_THAT(
      refusal_or_source("input ids: i32[n]\ninput table: f32[v, h]\noutput y: f32[n, h]\nassume n >= 1 and v >= 1 "
                        "and 1 <= h <= 64\n{ [i, j] : 0 <= i < n and 0 <= j < h }\ny[i, j] = table[ids[i], j]\n",
                        packed, {"table", "y"}),
      HasSubstr("load_pack<4>(&table[inside(faults, ids[i], v, 0) * h + j_o * 4])"));
}

TEST(LoopSource, WhatCannotBeCodeIsSaid) {
  const auto refusal = [](const std::string& kernel, const std::string& steps, LoopTarget target) {
    try {
      body_of(scheduled(kernel, steps), target);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_THAT(
      refusal(
          "input a: f32[n * m]\noutput y: f32[n, m]\n{ [i, j] : 0 <= i < n and 0 <= j < m }\ny[i, j] = a[i * m + j]\n",
          "", LoopTarget::cpu),
      HasSubstr("is not affine"));
  EXPECT_THAT(
      refusal("input a: f32[n]\noutput int: f32[n]\n{ [i] : 0 <= i < n }\nint[i] = a[i]\n", "", LoopTarget::cpu),
      HasSubstr("\"int\" has a meaning in generated code: rename it"));
  EXPECT_THAT(refusal(kDouble, "tag i l.0", LoopTarget::cuda),
              HasSubstr("a block has at most 1024 threads; split i first"));
  EXPECT_THAT(refusal(kDouble, "split i 64 -> o:l.0 p:l.0", LoopTarget::cuda), HasSubstr("which are both tagged l.0"));
}

}  // namespace
}  // namespace megalith::jit
