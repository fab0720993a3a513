// Schedules of generated bodies: what is proposed is legal, what somebody writes changes the code and not the result, and what
// would be wrong is refused.
#include "megalith/codegen/body_schedule.h"

#include <gmock/gmock.h>

#include "base/temporary_folder.h"
#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/error.h"
#include "megalith/codegen/bodies_text.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/text.h"

namespace megalith::codegen::testing {
namespace {

using megalith::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTargets[] = {"cpu", "cuda"};

Spec spec_named(const std::string& name) {
  for (const Spec& spec : all_specs())
    if (spec.name == name) return spec;
  throw UserError("no kernel " + name);
}

loop::Kernel bound(const graph::LoweredKernel& lowered) { return loop::bind(lowered.kernel, lowered.binding); }

std::string proposed(const std::string& name, const std::string& target) {
  const graph::LoweredKernel lowered = lower(spec_named(name));
  return default_schedule(lowered, bound(lowered), dialect_of(target));
}

// The function alone.
std::string body_text(const std::string& name, const std::string& target, const std::string& steps) {
  graph::LoweredKernel lowered = lower(spec_named(name));
  lowered.steps = checked_schedule(lowered, bound(lowered), dialect_of(target), steps).text();
  const std::string text = emit(target, {lowered}, "a test").text;
  const size_t begin = text.find("(const " + name + "_args& args)");
  return text.substr(begin, text.find("\n}\n", begin) - begin);
}

std::string refusal(const std::string& name, const std::string& target, const std::string& steps) {
  const graph::LoweredKernel lowered = lower(spec_named(name));
  return message_of<UserError>([&] { checked_schedule(lowered, bound(lowered), dialect_of(target), steps); });
}

TEST(DefaultSchedule, IsLegalAndPrintsItself) {
  for (const char* target : kTargets)
    for (const Spec& spec : all_specs()) {
      const graph::LoweredKernel lowered = lower(spec);
      const std::string text = default_schedule(lowered, bound(lowered), dialect_of(target));
      const loop::Schedule schedule = checked_schedule(lowered, bound(lowered), dialect_of(target), text);
      EXPECT_EQ(schedule.text(), text) << spec.name << " for " << target;
      // The kernel that it makes prints and parses as any other.
      const std::string printed = loop::print(schedule.kernel());
      EXPECT_EQ(loop::print(loop::parse_kernel(printed)), printed) << spec.name << " for " << target;
    }
}

TEST(DefaultSchedule, SaysWhatGoesWhere) {
  EXPECT_EQ(proposed("rmsnorm_linear", "cuda"), "tag n w j lane k lane\n");
  EXPECT_EQ(proposed("rmsnorm_linear", "cpu"), "tag j vec k vec\n");
  EXPECT_EQ(proposed("rmsnorm", "cuda"), "tag h l.0 k lane\n");
  EXPECT_EQ(proposed("rmsnorm", "cpu"), "tag h vec k vec\n");
  EXPECT_EQ(proposed("matmul_nn", "cpu"), "tag n vec\n");  // sums side by side
  EXPECT_EQ(proposed("scan", "cuda"), "");                 // each iteration needs the one before
  // One iname is a loop in one instruction and summed over in others.
  EXPECT_THAT(proposed("attention", "cpu"), HasSubstr("tag s vec in "));
}

TEST(BodySchedule, IsWhatTheEmitterGoesBy) {
  const std::string sums = "block_sum<f32>", of_warps = "warp_sum<f32>", by_threads = "n += kThreads",
                    by_warps = "n += kWarps";
  EXPECT_THAT(body_text("rmsnorm_linear", "cuda", "tag n w j lane k lane"),
              AllOf(HasSubstr(sums), HasSubstr(of_warps), HasSubstr(by_warps), Not(HasSubstr(by_threads))));
  EXPECT_THAT(body_text("rmsnorm_linear", "cuda", "tag n l.0 j l.0 k lane"),
              AllOf(HasSubstr(sums), HasSubstr("sum_in_lanes"), HasSubstr(by_threads), Not(HasSubstr(by_warps))));
  EXPECT_THAT(body_text("rmsnorm_linear", "cuda", "tag n l.0"),
              AllOf(HasSubstr("fold("), HasSubstr(by_threads), Not(HasSubstr("_sum<")), Not(HasSubstr("sum_in"))));
  EXPECT_THAT(body_text("rmsnorm_linear", "cuda", ""),
              AllOf(HasSubstr("fold("), HasSubstr("++n"), Not(HasSubstr("kWarps"))));
  EXPECT_THAT(body_text("rmsnorm_linear", "cpu", "unroll n"),
              AllOf(HasSubstr("#pragma GCC unroll"), HasSubstr("fold(")));
  EXPECT_THAT(body_text("rmsnorm", "cpu", "tag k vec"),
              AllOf(HasSubstr("sum_in_lanes"), Not(HasSubstr("MEGALITH_INDEPENDENT"))));
  EXPECT_THAT(body_text("rmsnorm", "cpu", "split h 16 -> h_o h_i:vec"),
              HasSubstr("MEGALITH_INDEPENDENT\n      for (i64 h_i = "));
  EXPECT_THAT(body_text("matmul_nn", "cpu", ""), AllOf(HasSubstr("fold("), Not(HasSubstr("sum_columns"))));
}

TEST(BodySchedule, ThatSomebodyWroteGivesTheSameResult) {
  struct Case {
    std::string kernel, steps;
    bool same_bits;  // as without a schedule of one's own: sums keep their order
  };
  const std::vector<Case> cases = {
      {"rmsnorm", "tag k vec", true},
      {"rmsnorm", "tag k vec\nsplit h 16 -> h_o h_i:vec", true},
      {"rmsnorm", "tag k lane h unr", true},
      {"rmsnorm", "tag h vec", false},
      {"rmsnorm", "split k 8 -> k_o k_i", false},
      {"rmsnorm", "substitute ss\ntag k_0 vec", true},
      {"rmsnorm_linear", "tag j vec k vec\norder n t j k", true},
      {"rmsnorm_linear", "accumulate k -> acc\ntag j vec", false},
      {"matmul_nt", "split k 32 -> k_o k_i\naccumulate k_o -> acc\ntag k_i vec", false},
      {"matmul_nn", "", false},
      {"matmul_nn", "tag k vec", false},
      {"embedding", "", true},
      {"embedding", "tag h unr", true},
      {"attention", "", false},
      {"attention", "duplicate s -> u in insn4\ntag s lane in insn1 insn3", false},
      {"softmax_triangle", "tag k l.0", false},
      {"functions", "", true},
  };
  std::vector<Spec> specs;
  std::set<std::string> used;
  for (const Case& one : cases) {
    Spec spec = spec_named(one.kernel);
    if (used.insert(spec.name).second) specs.push_back(spec);
    spec.name = fmt::format("scheduled_{}", specs.size());
    const graph::LoweredKernel lowered = lower(spec);
    ASSERT_NO_THROW(spec.steps = checked_schedule(lowered, bound(lowered), cpu_dialect(), one.steps).text())
        << one.kernel << ": " << one.steps;
    specs.push_back(spec);
  }
  const Program program(specs);
  size_t next = 0;
  used.clear();
  for (const Case& one : cases) {
    if (used.insert(one.kernel).second) ++next;
    const std::string name = specs[next++].name;
    for (const std::map<std::string, int64_t>& tiles :
         {std::map<std::string, int64_t>{}, {{"n", 7}, {"t", 2}, {"h", 5}}}) {
      EXPECT_LT(difference(program, name, 3, tiles), 1) << one.kernel << ": " << one.steps;
      if (!one.same_bits) continue;
      loop::Arrays plain = random_arrays(program.spec(one.kernel), 4), scheduled = plain;
      program.run(one.kernel, plain, tiles);
      program.run(name, scheduled, tiles);
      for (const auto& [tensor, array] : plain)
        EXPECT_EQ(array.values, scheduled.at(tensor).values) << one.kernel << ": " << one.steps << ": " << tensor;
    }
  }
}

TEST(BodySchedule, ThatIsIllegalIsRefused) {
  struct Case {
    const char *kernel, *target, *steps, *message;
  };
  for (const Case& one : std::vector<Case>{
           {"scan", "cuda", "tag j l.0", "the loop over j cannot be tagged l.0: \"insn0\" reads"},
           {"scan", "cpu", "tag j vec", "the loop over j cannot be tagged vec: "},
           {"rmsnorm", "cuda", "tag t l.0", "the loop over t cannot be tagged l.0: the loop over h is inside of it"},
           {"rmsnorm", "cuda", "tag h vec",
            "the loop over h cannot be tagged vec in a body for a GPU: it can be for, unr, l.0 or w"},
           {"rmsnorm", "cpu", "tag h g.0",
            "the loop over h cannot be tagged g.0 in a body for a CPU: it can be for, unr or vec"},
           {"rmsnorm", "cuda", "tag k w",
            "k cannot be tagged w, since \"insn0\" has a sum over it: it can be for, l.0, lane or vec"},
           {"argmax_ties", "cuda", "tag v lane",
            "partial results are of sum, max and min of floats, and \"insn0\" has an argmax over it; it can be for or "
            "l.0"},
           {"many_inames", "cpu", "tag k vec", "is not the innermost iname of a "},
           {"rmsnorm", "cpu", "tag k vec in insn1",
            "the instruction \"insn1\" is not within \"k\", and does not reduce over it"},
           {"rope", "cuda", "tag m l.0 in insn0", "share a loop over m, which cannot be tagged"},
           {"rmsnorm", "cpu", "\ntag k vec\nwiggle h", "line 3: "},
           {"rmsnorm", "cpu", "split t 2 -> t_o t_i", "t is cut into tasks and must stay"},
           {"rmsnorm", "cpu", "duplicate t -> t_2 in insn0", "t"},
           {"rmsnorm", "cpu", "fix T 3", "the sizes of a body are the graph's"},
           {"rmsnorm", "cpu", "assume T mod 2 = 0", "the sizes of a body are the graph's"},
           {"rmsnorm", "cpu", "space ss private", "where the temporary ss of a body stands follows from its loops"},
           {"rmsnorm", "cpu", "rename h args", "the iname \"args\" has a meaning in generated code"},
       })
    EXPECT_THAT(refusal(one.kernel, one.target, one.steps), HasSubstr(one.message))
        << one.kernel << " for " << one.target << ": " << one.steps;
}

TEST(BodySchedule, NeverTouchesWhatOtherTasksWrite) {
  // The names of a tiled iname and another one change places.
  Spec square = spec_named("rmsnorm");
  square.name = "square";
  square.text = R"(
    input x: f32[I, J]
    output y: f32[I, J]
    { [i, j] : 0 <= i < I and 0 <= j < J }
    y[i, j] = 2 * x[i, j])";
  square.sizes = {{"I", 8}, {"J", 8}};
  square.tiled = {"i"};
  const graph::LoweredKernel lowered = lower(square);
  const auto check = [&](const std::string& steps) { checked_schedule(lowered, bound(lowered), cpu_dialect(), steps); };
  const auto message = [&](const std::string& steps) { return message_of<UserError>([&] { check(steps); }); };
  EXPECT_NO_THROW(check("split j 4 -> j_o j_i"));
  EXPECT_THAT(message("map [i, j] -> i = j, j = i"), Not(""));
  EXPECT_THAT(message("duplicate i -> u in insn0"), Not(""));
  // A copy is made of all that is read, and a task reads its tile.
  EXPECT_NO_THROW(check("prefetch x[j] -> row c"));
  EXPECT_THAT(
      message("prefetch x[i, j] -> all r c"),
      HasSubstr("a task would read elements of x that are not those of its tile: what reads them must be within i"));
}

TEST(BodiesText, IsReadAsItWasPrinted) {
  std::vector<graph::LoweredKernel> kernels;
  for (const Spec& spec : all_specs()) kernels.push_back(lower(spec));
  for (const char* target : kTargets) {
    const auto scheduled = with_schedules(target, kernels);
    const std::string text = print_schedules(scheduled, "a test");
    const auto read = parse_schedules(target, kernels, text);
    check_schedules(target, read);
    EXPECT_EQ(emit(target, read, "a test").text, emit(target, scheduled, "a test").text);
    EXPECT_EQ(emit(target, kernels, "a test").text, emit(target, scheduled, "a test").text);
  }
}

TEST(BodiesText, ThatIsNoneIsRefused) {
  const std::vector<graph::LoweredKernel> kernels = {lower(spec_named("rmsnorm"))};
  const auto check = [&](const std::string& text) { check_schedules("cpu", parse_schedules("cpu", kernels, text)); };
  const auto message = [&](const std::string& text) { return message_of<UserError>([&] { check(text); }); };
  EXPECT_NO_THROW(check("# nothing\n"));
  EXPECT_EQ(message("tag h vec\n"), "line 1: \"tag\" stands before the first body: want \"body NAME\"");
  EXPECT_EQ(message("\nbody other\n"), "line 2: there is no body \"other\"");
  EXPECT_EQ(message("body rmsnorm\nbody rmsnorm\n"),
            "line 2: the body \"rmsnorm\" stands there twice, first in line 1");
  EXPECT_EQ(message("body\n"), "line 1: want \"body NAME\"");
  EXPECT_THAT(
      message("# one\nbody rmsnorm\n# two\n\ntag h vec\ntag t vec\n"),
      HasSubstr("line 6: [rmsnorm] the loop over t cannot be tagged vec: the loop over h is inside of it; leave it a "
                "loop (for), or change that first (\"tag t vec\")"));
}

}  // namespace
}  // namespace megalith::codegen::testing
