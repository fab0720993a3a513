// Scheduled loop kernels as code: what it looks like, and that it computes what the interpreter does, as a CPU runs it and
// as a GPU would (emulated).
#include "megalith/jit/loops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/loop_program.h"
#include "megalith/jit/random_loops.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_schedule.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/steps.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using loop::Array;
using loop::Arrays;
using loop::Binding;
using loop::Schedule;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kQuick = {"-std=c++20", "-fPIC", "-O0", "-w"};

Schedule scheduled(const std::string& kernel_text, const std::string& steps) {
  loop::Kernel kernel = loop::parse_kernel(kernel_text);
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  return Schedule::parse(std::move(kernel), steps);
}

std::string body_of(const Schedule& schedule, LoopTarget target) {
  const std::string text = codegen::emit_loops(schedule.kernel(), target, "kernel").text;
  return text.substr(text.find("extern"));
}

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
              AllOf(HasSubstr("const Pack<f32, 4> pack_of_a_0 = load_pack<4>(&a[32 * o + 4 * q]);"),
                    HasSubstr("pack_of_out_1.at[v] = 2.0f * pack_of_a_0.at[v];"),
                    HasSubstr("store_pack(&out[32 * o + 4 * q], pack_of_out_1);"), Not(HasSubstr("} else {"))));
  EXPECT_THAT(source(any, {"a", "out"}), AllOf(HasSubstr("load_pack<4>"), HasSubstr("} else {")));
  EXPECT_THAT(source(whole, {"a"}), AllOf(HasSubstr("load_pack<4>"), Not(HasSubstr("store_pack"))));
  EXPECT_THAT(source(whole, {}), AllOf(HasSubstr("#pragma unroll"), Not(HasSubstr("Pack"))));
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
  EXPECT_THAT(of_off, AllOf(HasSubstr("load_pack<4>(&a[32 * o + 4 * q])"), Not(HasSubstr("load_pack<4>(&a[4 + ")),
                            Not(HasSubstr("+ 1])"))));
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
              AllOf(HasSubstr("store_vector<8>(&out[8 * o], 2.0f * load_vector<8>(&a[8 * o + 1]) - a[0]);"),
                    Not(HasSubstr("} else {"))));
  EXPECT_THAT(source("2 * a[i]", of_eight), AllOf(HasSubstr("if (n - 8 * o >= 8) {"), HasSubstr("} else {")));
  EXPECT_THAT(source("a[0] + 1", of_eight), HasSubstr("store_vector<8>(&out[8 * o], broadcast<8>(a[0] + 1.0f));"));
  for (const char* value : {"exp(a[i])", "if(a[i] > 0, a[i], 0)", "a[n - i]", "a[i] * i"})
    EXPECT_THAT(source(value, of_eight), AllOf(Not(HasSubstr("store_vector")), HasSubstr("MEGALITH_INDEPENDENT")));
  EXPECT_THAT(source("2 * a[i]", "split i 6 -> o v:vec\n"), Not(HasSubstr("store_vector")));
  EXPECT_THAT(source("2 * a[i]", "split i 16 -> o v:vec\n"), Not(HasSubstr("store_vector")));
}

constexpr const char* kTranspose =
    "kernel transpose\ninput a: f32[n, m]\noutput b: f32[m, n]\nassume n >= 1 and m >= 1\n"
    "{ [i, j] : 0 <= i < n and 0 <= j < m }\n";

// Two loops tagged vec over what lies side by side along the first: rows change places with columns in registers.
TEST(LoopSource, SquaresInRegistersOnACpu) {
  const auto source = [](const std::string& value, const std::string& steps) {
    return body_of(scheduled(kTranspose + std::string("b[j, i] = ") + value + "\n", steps), LoopTarget::cpu);
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

std::string example(const std::string& file) {
  return file_read(std::string(MEGALITH_SOURCE_DIR) + "/examples/loops/" + file);
}

TEST(Loops, AMatmulOnACpuAndAsAGpuRunsIt) {
  const Schedule schedule = scheduled(example("matmul.loops"), example("matmul.schedule"));
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "matmul_cpu");
  const LoopSource emulated = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "matmul_emulated");
  EXPECT_EQ(emulated.num_barriers, 2);
  const CompiledLoops compiled = CompiledLoops::compile({cpu, emulated}, kQuick);
  for (const auto& [n, m, l] : {std::array<int64_t, 3>{32, 16, 48}, {19, 33, 17}, {1, 1, 1}}) {
    const Binding binding{{{"n", n}, {"m", m}, {"l", l}}, {}};
    Arrays inputs = {{"a", Array::zeros({n, l})}, {"b", Array::zeros({l, m})}};
    for (auto& [name, array] : inputs)
      for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = static_cast<double>(i * 7 % 11) - 5;
    Arrays wanted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    for (const LoopSource& source : {cpu, emulated}) {
      Arrays found = inputs;
      compiled.run(source, schedule.kernel(), binding, found);
      EXPECT_EQ(found.at("c").values, wanted.at("c").values) << source.name << " of " << n;
    }
  }
}

// Squares of every width that there is code for, whole and with tails; the values of a sum of a square, of what is not
// turned round and of a number; and where vectors begin anywhere, so that they cannot go past the caches.
TEST(Loops, SquaresInRegistersComputeTheSame) {
  std::vector<LoopSource> sources;
  std::vector<Schedule> schedules;
  for (const int width : {4, 8, 16})
    for (const char* value : {"a[i, j]", "2 * a[i, j] + b[j, i] - a[0, j]"}) {
      std::string text = kTranspose + std::string("b[j, i] = ") + value + "\n";
      if (std::string(value) != "a[i, j]") text.replace(text.find("output b"), 8, "inout b");
      schedules.push_back(scheduled(
          text, fmt::format("split i {0} -> i_o p:vec, j {0} -> j_o q:vec\norder j_o i_o q p\nstream b\n", width)));
      sources.push_back(
          codegen::emit_loops(schedules.back().kernel(), LoopTarget::cpu, fmt::format("squares_{}", sources.size())));
      EXPECT_THAT(sources.back().text, HasSubstr(fmt::format("transpose_pack<{}>", width)));
    }
  schedules.push_back(scheduled(example("transpose.loops"), example("transpose_cpu.schedule")));
  sources.push_back(codegen::emit_loops(schedules.back().kernel(), LoopTarget::cpu, "transpose_cpu"));
  // As this machine has vectors, and as one of half their width has.
  for (const char* flag : {"-march=native", "-mno-avx512f"}) {
#if !defined(__x86_64__)
    if (std::string(flag) != "-march=native") continue;
#endif
    std::vector<std::string> flags = kQuick;
    flags.insert(flags.end(), {"-march=native", flag});
    const CompiledLoops compiled = CompiledLoops::compile(sources, flags);
    for (size_t which = 0; which < sources.size(); ++which)
      for (const auto& [n, m] : {std::array<int64_t, 2>{32, 48}, {33, 19}, {3, 50}, {1, 1}}) {
        const Binding binding{{{"n", n}, {"m", m}}, {}};
        Arrays inputs = {{"a", Array::zeros({n, m})}};
        if (schedules[which].kernel().find_tensor("b")->role == loop::Role::inout) inputs["b"] = Array::zeros({m, n});
        for (auto& [name, array] : inputs)
          for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = static_cast<double>(i * 7 % 101) - 5;
        Arrays wanted = inputs, found = inputs;
        loop::interpret(schedules[which].origin(), binding, wanted);
        compiled.run(sources[which], schedules[which].kernel(), binding, found);
        ASSERT_EQ(found.at("b").values, wanted.at("b").values) << sources[which].text << n << " x " << m << " " << flag;
      }
  }
}

// The examples that keep elements in registers, as a GPU would run them.
TEST(Loops, ExamplesWithRegistersComputeTheSame) {
  struct Example {
    const char *kernel, *schedule;
    std::map<std::string, int64_t> sizes;
    std::map<std::string, std::vector<int64_t>> inputs;
  };
  const Example examples[] = {
      {"matmul", "matmul_registers", {{"n", 128}, {"m", 128}, {"l", 64}}, {{"a", {128, 64}}, {"b", {64, 128}}}},
      {"softmax", "softmax_registers", {{"n", 2}, {"m", 2060}}, {{"x", {2, 2060}}}},
      {"layernorm", "layernorm", {{"n", 3}, {"m", 1100}}, {{"x", {3, 1100}}, {"weight", {1100}}, {"bias", {1100}}}}};
  for (const Example& one : examples) {
    SCOPED_TRACE(one.schedule);
    // Looked at as a whole, when it is made code, and not after each of its steps.
    const Schedule plain = scheduled(example(std::string(one.kernel) + ".loops"), "");
    loop::Kernel kernel = plain.kernel();
    std::istringstream steps(example(std::string(one.schedule) + ".schedule"));
    for (std::string line; std::getline(steps, line);)
      if (!loop::step_words(line).empty()) kernel = loop::run_step(kernel, line, {});
    std::set<std::string> aligned;
    for (const loop::TensorArgument& tensor : plain.kernel().tensors) aligned.insert(tensor.name);
    const LoopSource source = codegen::emit_loops(kernel, LoopTarget::emulated, "example", aligned);
    EXPECT_THAT(source.text, HasSubstr("load_pack<4>"));
    const CompiledLoops compiled = CompiledLoops::compile({source}, kQuick);
    const Binding binding{one.sizes, {{"eps", 1e-5}}};
    Arrays found;
    for (const auto& [name, shape] : one.inputs) {
      Array& array = found[name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
    }
    Arrays wanted = found;
    loop::interpret(plain.kernel(), binding, wanted);
    compiled.run(source, kernel, binding, found);
    const std::string output = std::string(one.kernel) == "matmul" ? "c" : "y";
    for (size_t at = 0; at < wanted.at(output).values.size(); ++at)
      ASSERT_NEAR(found.at(output).values[at], wanted.at(output).values[at], 1e-4) << at;
  }
}

// As the interpreter does, wherever the NaN stands and however the values are reduced.
TEST(Loops, MaximaKeepNaN) {
  const std::string text =
      "input x: f32[n]\noutput high: f32[1]\noutput low: f32[1]\noutput place: i32[1]\noutput both: f32[n]\n"
      "assume n >= 1\n{ [i, j, k, e] : 0 <= i, j, k, e < n }\nhigh[0] = max(i, x[i])\nlow[0] = min(j, x[j])\n"
      "place[0] = argmax(k, x[k])\nboth[e] = max(x[e], 0) + min(0, x[e])\n";
  const Schedule schedule = scheduled(text, "tree i 8 -> part p:l.0\n");
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "nan_cpu");
  const LoopSource gpu = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "nan_gpu");
  const CompiledLoops compiled = CompiledLoops::compile({cpu, gpu}, kQuick);
  for (const size_t nan : {0, 5, 19}) {
    const Binding binding{{{"n", 20}}, {}};
    Arrays inputs = {{"x", Array::zeros({20})}};
    for (size_t i = 0; i < 20; ++i) inputs.at("x").values[i] = i == nan ? NAN : static_cast<double>(i * 7 % 20) - 9;
    Arrays wanted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    ASSERT_TRUE(std::isnan(wanted.at("high").values[0]));
    for (const LoopSource& source : {cpu, gpu}) {
      Arrays found = inputs;
      compiled.run(source, schedule.kernel(), binding, found);
      for (const char* name : {"high", "low", "both"})
        for (size_t i = 0; i < wanted.at(name).values.size(); ++i)
          EXPECT_TRUE(found.at(name).values[i] == wanted.at(name).values[i] ||
                      (std::isnan(found.at(name).values[i]) && std::isnan(wanted.at(name).values[i])))
              << source.name << ": " << name << " at " << i;
      EXPECT_EQ(found.at("place").values, wanted.at("place").values) << source.name << " of " << nan;
    }
  }
}

struct Program {
  const char* name;
  const char* kernel;
  const char* steps;
  std::vector<std::map<std::string, int64_t>> sizes;
};

// loopy's programs (L17 and L19 of its tests, of smaller sizes) under schedules like theirs.
const Program kPrograms[] = {
    {"axpy",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 32 -> o p\nsplit o 4 -> b:g.0 u:unr\ntag p l.0\n",
     {{{"n", 300}}, {{"n", 256}}}},
    {"axpy_with_slabs",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 4 -> o p:unr\npeel o -> last where o >= floor(n/4)\n",
     {{{"n", 23}}, {{"n", 24}}, {{"n", 3}}}},
    {"transpose",
     "input a: f32[n, n]\noutput b: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\nb[i, j] = a[j, "
     "i]\n",
     "tile i j 16 16 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\nprefetch a[j_i, i_i] -> t p:l.1 q:l.0\npad t 1 1\n",
     {{{"n", 50}}, {{"n", 32}}}},
    // A grid has a block 0 where no iteration is left, and blocks for values that a domain leaves out.
    {"blocks_without_values",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : 5 <= j < n }\ny[i] = x[i]\ny[j] "
     "= "
     "y[j] + 1\n",
     "tag i g.0 j g.0\n",
     {{{"n", 9}}, {{"n", 6}}, {{"n", 5}}, {{"n", 3}}}},
    {"a_block_without_values",
     "input x: f32[n]\ninout y: f32[n]\nassume n >= 1\n{ [j] : 0 <= j < n - 5 }\ny[j] = y[j] + x[j]\n",
     "tag j g.1\n",
     {{{"n", 9}}, {{"n", 6}}, {{"n", 5}}, {{"n", 3}}}},
    {"every_second_block",
     "inout y: f32[n]\nassume n >= 1\n{ [j] : 0 <= j < n and j mod 2 = 1 }\ny[j] = y[j] + 1\n",
     "tag j g.0\n",
     {{{"n", 9}}, {{"n", 2}}, {{"n", 1}}}},
    {"a_domain_that_is_empty",
     "input x: f32[4]\ninout y: f32[4, 1]\n{ [i, j] : 0 <= i < 4 and 0 <= j < 1 and j mod 2 = 1 }\ny[i, j] = y[i, j] + "
     "x[i]\n",
     "tag i g.1 j l.0\n",
     {{}}},
    {"rank_one",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.0 j_i:l.1\nprefetch a[i_i] -> a_s p:l.0\nprefetch b[j_i] -> b_s q:l.0\n",
     {{{"n", 21}}}},
    {"matmul_with_register_tiles",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i j_i\nsplit i_i 2 -> i_t:l.1 i_r:ilp\nsplit j_i 2 -> j_t:l.0 j_r:ilp\n"
     "split k 4 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_r j_r\naccumulate k_o k_i -> acc\n"
     "prefetch a[i_t, i_r, k_i] -> a_s p:l.1 q:l.0\n",
     {{{"n", 16}}, {{"n", 13}}}},
    {"matmul_of_packs",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "assume n mod 16 = 0\ntile i j 16 16 -> i_o:g.0 j_o:g.1 i_b j_b\nsplit i_b 4 -> i_t:l.1 i_v:unr, j_b 8 -> j_h:unr "
     "j_c\nsplit j_c 4 -> j_t:l.0 j_v:vec\nsplit k 8 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_v j_h j_v\n"
     "accumulate k_o k_i -> acc\nprefetch a[i_t, i_v, k_i] -> a_s a_i a_k\npermute_axes a_s 1 0\npad a_s 1 4\n"
     "split a_k 4 -> a_q:l.0 a_v:vec\nprefetch b[k_i, j_h, j_t, j_v] -> b_s b_k b_j\nsplit b_j 4 -> b_l:l.1 b_v:vec\n"
     "prefetch a_s[i_v] -> a_r u:vec\nprefetch b_s[j_h, j_v] -> b_r h:unr v:vec\n",
     {{{"n", 16}}, {{"n", 48}}}},
    {"rows_kept_in_registers",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "assume m <= 64\ntag i g.0\nsplit k 32 -> k_r:unr k_c, j 32 -> j_r:unr j_c\n"
     "split k_c 4 -> k_l k_v:unr, j_c 4 -> j_l:l.0 j_v:vec\nprefetch x[k_r, k_l, k_v, j_r, j_l, j_v] -> x_r c\n"
     "split c 32 -> c_r:unr c_c\nsplit c_c 4 -> c_l:l.0 c_v:vec\nsplit_axis x_r 0 32\nsplit_axis x_r 1 4\n"
     "tree k_l -> part p:l.0\n",
     {{{"n", 3}, {"m", 37}}, {{"n", 2}, {"m", 64}}, {{"n", 1}, {"m", 3}}}},
    {"rows_of_packs_kept_in_registers",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "assume m <= 64 and m mod 4 = 0\ntag i g.0\nsplit k 32 -> k_r:unr k_c, j 32 -> j_r:unr j_c\n"
     "split k_c 4 -> k_l k_v:unr, j_c 4 -> j_l:l.0 j_v:vec\nprefetch x[k_r, k_l, k_v, j_r, j_l, j_v] -> x_r c\n"
     "split c 32 -> c_r:unr c_c\nsplit c_c 4 -> c_l:l.0 c_v:vec\nsplit_axis x_r 0 32\nsplit_axis x_r 1 4\n"
     "tree k_l -> part p:l.0\n",
     {{{"n", 3}, {"m", 36}}, {{"n", 2}, {"m", 64}}, {{"n", 1}, {"m", 4}}}},
    {"vectors_of_a_core",
     "input a: f32[n, l]\ninput b: f32[l, m]\noutput c: f32[n, m]\nassume n >= 1 and m >= 1 and l >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "assume n mod 4 = 0 and m mod 16 = 0 and l <= 64\nsplit i 4 -> i_t i_r:unr, j 16 -> j_t j_c\n"
     "split j_c 8 -> j_h:unr j_v:vec\norder j_t i_t k i_r j_h j_v\naccumulate k -> acc\n"
     "prefetch b[k, j_h, j_v] -> b_s b_k b_j\nsplit b_j 8 -> b_h:unr b_v:vec\n",
     {{{"n", 8}, {"m", 32}, {"l", 5}}, {{"n", 4}, {"m", 16}, {"l", 64}}}},
    {"sums_over_lanes",
     "input a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n{ [i, k] : 0 <= i < n and 0 <= k < m }\n"
     "y[i] = sum(k, a[i, k])\n",
     "split i 3 -> i_o:g.0 i_w\norder i_o k i_w\ntree k 32 -> part p:lane\ntag i_w w\nspace part lanes\n",
     {{{"n", 7}, {"m", 45}}, {{"n", 3}, {"m", 5}}}},
    {"maxima_that_all_lanes_have",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "tag i g.0\nsplit j 32 -> j_o j_i:lane\ntree k 32 -> part p:lane\nspace part lanes\nspace top private\n",
     {{{"n", 5}, {"m", 37}}}},
    {"packs_and_a_tail",
     "input x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\nz[i] = 3 * x[i] + "
     "y[i]\n",
     "split i 32 -> o:g.0 p\nsplit p 4 -> q:l.0 v:vec\n",
     {{{"n", 64}}, {{"n", 39}}, {{"n", 3}}}},
    {"computed_where_it_is_needed",
     "input a: f32[n + 2]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n + 2 }\n{ [j] : 0 <= j < n }\n"
     "t[i] = a[i] * a[i] + 1\ny[j] = t[j] + t[j + 1] + t[j + 2]\n",
     "split j 8 -> o:g.0 p:l.0\nprecompute t[p] -> s q:l.0\n",
     {{{"n", 8}}, {{"n", 19}}}},
    {"matmul_of_any_size_with_slabs",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\nsplit k 4 -> k_o k_i\norder i_o j_o k_o i_i j_i k_i\n"
     "accumulate k_o -> acc\npeel k_o -> last where k_o >= floor(n/4)\n",
     {{{"n", 16}}, {{"n", 13}}, {{"n", 3}}}},
    {"funny_shape",
     "input a: f32[n, n + 12]\ninput b: f32[n + 12, n + 24]\noutput c: f32[n, n + 24]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n + 24 and 0 <= k < n + 12 }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "split k 4 -> k_o k_i\ntile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\norder i_o j_o k_o i_i j_i k_i\n"
     "accumulate k_o -> acc\nextract_subst b_acc(p, q) = b[p, q]\nextract_subst a_acc(r, s) = a[r, s]\n"
     "precompute b_acc[k_i, j_i] -> b_s b_k:l.1 b_j:l.0\nprefetch a[i_i, k_i] -> a_s a_i:l.1 a_k:l.0\n",
     {{{"n", 10}}, {{"n", 4}}}},
    {"rank_one_in_one_column",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\n",
     {{{"n", 37}}}},
    {"rank_one_with_a_column_in_shared_memory",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\norder i_o j_o i_i j_i\nprefetch b[j_i] -> b_s q:l.0\n",
     {{{"n", 37}}}},
    {"rank_one_of_tiles_of_tiles",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "tile i j 32 32 -> i_o:g.0 j_o:g.1 i_m j_m\nsplit i_m 8 -> i_r i_i:l.0\nsplit j_m 8 -> j_r j_i:l.1\n",
     {{{"n", 45}}}},
    {"n_bodies",
     "input x: f32[n, 3]\noutput pot: f32[n]\nassume n >= 1\n{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < 3 }\n"
     "pot[i] = sum(j, if(i == j, 0, 1 + sum(k, (x[i, k] - x[j, k]) * (x[i, k] - x[j, k]))))\n",
     "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o j_i\norder i_o j_o i_i j_i k\naccumulate j_o -> acc\n",
     {{{"n", 33}}}},
    {"rows_below_their_maximum",
     "input x: f32[n, m]\noutput y: f32[n, m]\nassume n >= 1 and m >= 1\n{ [i, k, j] : 0 <= i < n and 0 <= k, j < m }\n"
     "top[i] = max(k, x[i, k])\ny[i, j] = x[i, j] - top[i]\n",
     "tag i g.0\nsplit j 16 -> j_o j_i:l.0\ntree k 16 -> part p:l.0\n",
     {{{"n", 5}, {"m", 37}}}},
    {"temporaries_that_share_memory",
     "input a: f32[30]\ninput b: f32[30]\noutput c: f32[30]\noutput d: f32[30]\n{ [i, j, k, l] : 0 <= i, j, k, l < 30 "
     "}\n"
     "t1[i] = 2 * a[i]\nc[j] = t1[29 - j] + 1\nt2[k] = 3 * b[k]\nd[l] = t2[29 - l] + 2\n",
     "tag i l.0 j l.0 k l.0 l l.0\nalias t1 t2 -> pool\n",
     {{}}},
    {"dependent_domains",
     "input x: f32[n, n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : i <= j < n and j mod 2 = 0 }\n"
     "y[i] = sum(j, x[i, j])\n",
     "split i 8 -> o:g.0 p:l.0\n",
     {{{"n", 21}}}},
    {"a_map_that_is_a_split",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i, e] : 0 <= 2 * i + e < n and 0 <= e < 2 }\n"
     "y[2 * i + e] = 2 * x[2 * i + e]\n",
     "map [i, e] -> u = 2 * i + e, v = e\norder v u\n",
     {{{"n", 21}}}},
    {"joined",
     "input a: f32[16, 16]\noutput b: f32[16, 16]\n{ [i, j] : 0 <= i < 16 and 0 <= j < 16 }\nb[i, j] = 2 * a[i, j]\n",
     "join i j -> ij:l.0\n",
     {{}}},
    {"triangle",
     "input x: f32[n]\noutput y: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= j <= i < n }\ny[i, j] = x[i] - x[j]\n",
     "tile i j 4 4 -> i_o:g.0 j_o i_i:l.0 j_i\n",
     {{{"n", 10}}}},
    {"every_third",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n and i mod 3 = 1 }\ny[i] = x[i]\n",
     "split i 8 -> o:g.0 p:l.0\n",
     {{{"n", 20}}}},
    {"diamonds",
     "inout u: f32[9, 32]\n{ [t, i] : 1 <= t < 9 and 1 <= i < 31 }\nu[t, i] = u[t - 1, i - 1] + u[t - 1, i + 1] - u[t "
     "- 1, i]\n",
     "map [t, i] -> v = t + i, w = t - i + 32\ntile v w 4 4 -> v_o w_o v_i w_i\n",
     {{}}},
};

TEST(Loops, L17_L19_ProgramsAndTheirSchedules) {
  std::vector<LoopSource> sources;
  std::vector<Schedule> schedules;
  for (const Program& program : kPrograms) {
    SCOPED_TRACE(program.name);
    schedules.push_back(scheduled(program.kernel, program.steps));
    std::set<std::string> aligned;  // as all memory here is
    for (const loop::TensorArgument& tensor : schedules.back().kernel().tensors)
      if (tensor.role != loop::Role::temporary) aligned.insert(tensor.name);
    for (const auto& [target, suffix] : {std::pair(LoopTarget::cpu, "cpu"), {LoopTarget::emulated, "gpu"}})
      sources.push_back(
          codegen::emit_loops(schedules.back().kernel(), target, fmt::format("{}_{}", program.name, suffix), aligned));
  }
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuick);
  for (size_t i = 0; i < schedules.size(); ++i)
    for (const auto& sizes : kPrograms[i].sizes) {
      const Schedule& schedule = schedules[i];
      const Binding binding{sizes, {}};
      Arrays inputs;
      const loop::Kernel bound = loop::bind_sizes(schedule.origin(), binding);
      for (const loop::TensorArgument& tensor : bound.tensors) {
        if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
        std::vector<int64_t> shape;
        for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
        Array& array = inputs[tensor.name] = Array::zeros(shape);
        for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
      }
      Arrays wanted = inputs;
      loop::interpret(schedule.origin(), binding, wanted);
      for (size_t which : {2 * i, 2 * i + 1}) {
        Arrays found = inputs;
        compiled.run(sources[which], schedule.kernel(), binding, found);
        for (const auto& [name, array] : wanted)
          EXPECT_EQ(found.at(name).values, array.values) << sources[which].name << ": " << name;
      }
    }
}

void expect_same(const Schedule& schedule, const std::vector<Binding>& bindings,
                 const std::function<double(size_t)>& value) {
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "on_cpu");
  const LoopSource gpu = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "as_gpu");
  const CompiledLoops compiled = CompiledLoops::compile({cpu, gpu}, kQuick);
  for (const Binding& binding : bindings) {
    Arrays inputs;
    const loop::Kernel bound = loop::bind_sizes(schedule.origin(), binding);
    for (const loop::TensorArgument& tensor : bound.tensors) {
      if (tensor.role != loop::Role::input) continue;
      std::vector<int64_t> shape;
      for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
      Array& array = inputs[tensor.name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = value(at);
    }
    Arrays wanted = inputs, interpreted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    loop::interpret(schedule.kernel(), binding, interpreted);
    for (const LoopSource* source : {&cpu, &gpu}) {
      Arrays found = inputs;
      compiled.run(*source, schedule.kernel(), binding, found);
      for (const auto& [name, array] : wanted) {
        EXPECT_EQ(found.at(name).values, array.values) << source->name << ": " << name;
        EXPECT_EQ(interpreted.at(name).values, array.values) << name;
      }
    }
  }
}

// L18: sums over the threads of a block, of sizes that are no powers of two; and the place of a maximum.
TEST(Loops, L18_ReductionsByATree) {
  const auto small = [](size_t at) { return static_cast<double>(at * 7 % 13) - 6; };
  for (const int64_t size : {128, 5, 113, 67, 1}) {
    SCOPED_TRACE(size);
    const std::string whole =
        fmt::format("input a: f32[{0}]\noutput y: f32[1]\n{{ [i] : 0 <= i < {0} }}\ny[0] = sum(i, a[i]) / 2\n", size);
    expect_same(scheduled(whole, "tree i -> part p:l.0"), {{}}, small);
    const std::string rows = fmt::format(
        "input a: f32[n, {0}]\noutput y: f32[n]\nassume n >= 1\n{{ [t, i] : 0 <= t < n and 0 <= i < {0} }}\n"
        "y[t] = min(i, a[t, i])\n",
        size);
    expect_same(scheduled(rows, "tree i 16 -> part p:l.0\ntag t g.0"), {{{{"n", 7}}, {}}}, small);
  }
  const std::string any =
      "input a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n";
  std::vector<Binding> sizes;
  for (const int64_t n : {1, 5, 67, 113, 128, 1000}) sizes.push_back({{{"n", n}}, {}});
  expect_same(scheduled(any, "tree i 128 -> part p:l.0"), sizes, small);
  expect_same(scheduled(any, "tree i 48 -> part p:l.0"), sizes, small);

  const std::string place = "input x: f32[10000]\noutput y: i32[1]\n{ [v] : 0 <= v < 10000 }\ny[0] = argmax(v, x[v])\n";
  const Schedule found = scheduled(place, "tree v 128 -> part p:l.0");
  expect_same(found, {{}}, [](size_t at) { return at == 7777 ? 2.0 : static_cast<double>(at % 3) - 2; });
  // The lowest of equals, which another lane may have found; and where nothing is larger than -inf.
  expect_same(found, {{}}, [](size_t at) { return at == 7777 || at == 129 || at == 256 ? 2.0 : -1.0; });
  const std::string late =
      "input x: f32[n]\noutput y: i32[1]\nassume n >= 0\n{ [v] : 5 <= v < n }\ny[0] = argmax(v, x[v])\n";
  expect_same(scheduled(late, "tree v 8 -> part p:l.0"), {{{{"n", 3}}, {}}, {{{"n", 6}}, {}}, {{{"n", 40}}, {}}},
              [](size_t) { return -INFINITY; });
}

TEST(Loops, TreesInWarpsWaitForTheirWarpOnly) {
  const std::string rows =
      "input a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = sum(k, a[i, k], a[i, k] > 0)\n";
  const Schedule schedule =
      scheduled(rows, "split i 4 -> i_o:g.0 i_w\norder i_o k i_w\ntree k 32 -> part p:lane\ntag i_w w");
  const std::string cuda = body_of(schedule, LoopTarget::cuda);
  EXPECT_THAT(cuda, AllOf(HasSubstr("__syncwarp();"), Not(HasSubstr("__syncthreads"))));
  expect_same(schedule, {{{{"n", 13}, {"m", 45}}, {}}, {{{"n", 4}, {"m", 3}}, {}}},
              [](size_t at) { return static_cast<double>(at * 7 % 13) - 6; });
}

// A sum over blocks: partial sums in one kernel, what they come to in another.
TEST(Loops, ABarrierOverAllBlocksCutsTheKernel) {
  const std::string total =
      "input a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n";
  const Schedule schedule =
      scheduled(total,
                "split i 64 -> b i_i\nsplit_reduction b part\nduplicate b -> s in insn0\n"
                "tree i_i -> in_block p:l.0\nbarrier before insn0\ntag b g.0\ntree s 32 -> all q:lane\n");
  EXPECT_EQ(loop::print(loop::parse_kernel(loop::print(schedule.kernel()))), loop::print(schedule.kernel()));
  EXPECT_THAT([&] { body_of(schedule, LoopTarget::cuda); },
              testing::ThrowsMessage<UserError>(HasSubstr("emit its stages")));
  std::vector<LoopSource> all;
  std::vector<std::vector<LoopSource>> sources;
  const std::vector<loop::Kernel> stages = loop::split_stages(schedule.kernel());
  ASSERT_EQ(stages.size(), 2u);
  for (const auto& [target, name] : {std::pair(LoopTarget::cpu, "on_cpu"), {LoopTarget::emulated, "as_gpu"}}) {
    sources.push_back(codegen::emit_stages(schedule.kernel(), target, name));
    ASSERT_EQ(sources.back().size(), 2u);
    all.insert(all.end(), sources.back().begin(), sources.back().end());
  }
  EXPECT_EQ(sources[1][0].blocks({1000})[0], 16);
  EXPECT_EQ(sources[1][1].blocks({1000})[0], 1);
  EXPECT_EQ(sources[1][0].tensors, (std::vector<std::string>{"a", "part"}));
  EXPECT_EQ(sources[1][1].tensors, (std::vector<std::string>{"y", "part"}));
  const CompiledLoops compiled = CompiledLoops::compile(all, kQuick);
  for (const int64_t n : {1, 64, 1000, 5000}) {
    const Binding binding{{{"n", n}}, {}};
    Arrays inputs = {{"a", Array::zeros({n})}};
    for (size_t i = 0; i < inputs["a"].values.size(); ++i) inputs["a"].values[i] = static_cast<double>(i * 7 % 11) - 5;
    Arrays wanted = inputs;
    loop::interpret(schedule.kernel(), binding, wanted);
    EXPECT_EQ(wanted.at("y").values[0], std::accumulate(inputs["a"].values.begin(), inputs["a"].values.end(), 0.0));
    for (const std::vector<LoopSource>& parts : sources) {
      Arrays found = inputs;
      for (size_t i = 0; i < parts.size(); ++i) compiled.run(parts[i], stages[i], binding, found);
      EXPECT_EQ(found.at("y").values, wanted.at("y").values) << parts[0].name << " of " << n;
    }
  }
}

// The emulation shows what is missing: the same source without its barriers computes something else.
TEST(Loops, AnEmulationWithoutBarriersGoesWrong) {
  const std::string reverse =
      "input x: f32[48]\noutput y: f32[48]\n{ [i, j] : 0 <= i, j < 48 }\nt[i] = 2 * x[i]\ny[j] = t[47 - j]\n";
  const Schedule schedule = scheduled(reverse, "tag i l.0 j l.0");
  const LoopSource good = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "reversed");
  LoopSource bad = good;
  bad.name = "without";
  bad.text.replace(bad.text.find("reversed"), 8, "without");
  const std::string turn =
      "  }\n  // barrier\n  for (i64 thread = kThreads - 1; thread >= 0; --thread) {\n    threadIdx = "
      "thread_at(thread);\n";
  const size_t barrier = bad.text.find(turn);
  ASSERT_NE(barrier, std::string::npos) << bad.text;
  bad.text.erase(barrier, turn.size());
  const CompiledLoops compiled = CompiledLoops::compile({good, bad}, kQuick);
  Arrays inputs = {{"x", Array::zeros({48})}}, wanted, first, second;
  for (size_t i = 0; i < 48; ++i) inputs["x"].values[i] = static_cast<double>(i + 1);
  wanted = first = second = inputs;
  loop::interpret(schedule.origin(), {}, wanted);
  compiled.run(good, schedule.kernel(), {}, first);
  compiled.run(bad, schedule.kernel(), {}, second);
  EXPECT_EQ(first.at("y").values, wanted.at("y").values);
  EXPECT_NE(second.at("y").values, wanted.at("y").values);
}

TEST(Loops, WhatRandomSchedulesGiveComputesTheSame) {
  const RandomLoops report = check_random_loops(1, 24, 6, kQuick);
  EXPECT_THAT(report.wrong, testing::IsEmpty()) << fmt::format("{}", fmt::join(report.wrong, "\n"));
  EXPECT_GT(report.num_steps, 60);
  EXPECT_GT(report.num_refused, 20);
  EXPECT_GT(report.num_barriers, 0);
  EXPECT_LT(report.num_without, 12);
}

// What is known of sizes is written in behind a schedule: all of them, every second one, or that they are multiples.
TEST(Loops, WhatIsSpecializedAfterRandomSchedulesComputesTheSame) {
  struct Case {
    loop::RandomCase random;
    loop::Kernel kernel;
    LoopSource source;
  };
  std::vector<Case> cases;
  for (uint64_t seed = 500; seed < 512; ++seed) {
    const loop::RandomCase random = loop::random_case(seed, 6);
    LoopSpecialization known;
    size_t number = 0;
    for (const auto& [name, value] : random.binding.sizes) {
      if (!random.schedule.kernel().is_parameter(name)) continue;
      if (number++ % 2 == seed % 2 || seed % 3 == 0)
        known.constants[name] = value;
      else if (value % kLoopMultiple == 0)
        known.multiples.insert(name);
    }
    const loop::Kernel kernel = specialize(random.schedule.kernel(), known);
    for (const auto& [target, suffix] : {std::pair(LoopTarget::cpu, "c"), {LoopTarget::emulated, "g"}}) try {
        cases.push_back(
            {random, kernel, codegen::emit_loops(kernel, target, fmt::format("known_{}_{}", seed, suffix))});
      } catch (const UserError&) {  // a temporary whose size is no number
      }
  }
  ASSERT_GT(cases.size(), 15u);
  std::vector<LoopSource> sources;
  for (const Case& one : cases) sources.push_back(one.source);
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuick);
  for (const Case& one : cases) {
    Arrays inputs;
    const loop::Kernel bound = loop::bind_sizes(one.random.schedule.origin(), one.random.binding);
    for (const loop::TensorArgument& tensor : bound.tensors) {
      if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
      std::vector<int64_t> shape;
      for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
      Array& array = inputs[tensor.name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
    }
    Arrays wanted = inputs, found = inputs;
    loop::interpret(one.random.schedule.origin(), one.random.binding, wanted);
    compiled.run(one.source, one.kernel, one.random.binding, found);
    for (const auto& [name, array] : wanted) {
      if (!found.contains(name)) continue;  // fused with what takes it
      for (size_t at = 0; at < array.values.size(); ++at)
        ASSERT_NEAR(found.at(name).values[at], array.values[at], 1e-4 * (1 + std::abs(array.values[at])))
            << one.source.name << ": " << name << "\n"
            << one.source.text;
    }
  }
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

TEST(LoopSource, WhatCannotBeCodeIsSaid) {
  const auto refusal = [](const std::string& kernel, const std::string& steps, LoopTarget target) {
    try {
      body_of(scheduled(kernel, steps), target);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_THAT(refusal("input a: f32[n]\ninput at: i32[m]\noutput y: f32[m]\n{ [i] : 0 <= i < m }\ny[i] = a[at[i]]\n",
                      "", LoopTarget::cpu),
              HasSubstr("the subscript at[i] of a is not affine"));
  EXPECT_THAT(
      refusal("input a: f32[n]\noutput int: f32[n]\n{ [i] : 0 <= i < n }\nint[i] = a[i]\n", "", LoopTarget::cpu),
      HasSubstr("\"int\" has a meaning in generated code: rename it"));
  EXPECT_THAT(refusal(kDouble, "tag i l.0", LoopTarget::cuda),
              HasSubstr("a block has at most 1024 threads; split i first"));
  EXPECT_THAT(refusal(kDouble, "split i 64 -> o:l.0 p:l.0", LoopTarget::cuda), HasSubstr("which are both tagged l.0"));
}

}  // namespace
}  // namespace megalith::jit
