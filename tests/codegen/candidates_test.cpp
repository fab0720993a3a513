// Schedules that are worth measuring: each is legal, no two give the same code, and all compute the same.
#include "megalith/codegen/candidates.h"

#include <gmock/gmock.h>

#include "codegen/kernels.h"
#include "codegen/program.h"
#include "megalith/base/error.h"
#include "megalith/codegen/body.h"
#include "megalith/loop/bind.h"

namespace megalith::codegen::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> candidates(const Spec& spec, const std::string& target, size_t most) {
  const graph::LoweredKernel lowered = lower(spec);
  return schedule_candidates(lowered, loop::bind(lowered.kernel, lowered.binding), dialect_of(target), most);
}

TEST(Candidates, AreLegalAndAllDifferent) {
  for (const char* target : {"cpu", "cuda"})
    for (const Spec& spec : all_specs()) {
      graph::LoweredKernel lowered = lower(spec);
      const loop::Kernel bound = loop::bind(lowered.kernel, lowered.binding);
      const Dialect dialect = dialect_of(target);
      const std::vector<std::string> all = candidates(spec, target, 8);
      ASSERT_FALSE(all.empty());
      EXPECT_EQ(all[0], default_schedule(lowered, bound, dialect)) << spec.name << " for " << target;
      std::set<std::string> codes;
      for (const std::string& steps : all) {
        EXPECT_NO_THROW(checked_schedule(lowered, bound, dialect, steps)) << spec.name << ": " << steps;
        lowered.steps = steps;
        EXPECT_TRUE(codes.insert(generate_body(lowered, bound, dialect).text).second) << spec.name << ": " << steps;
      }
    }
}

TEST(Candidates, HaveOtherTagsCutsAndOrders) {
  const auto of = [](const std::string& name, const char* target) {
    for (const Spec& spec : all_specs())
      if (spec.name == name) return candidates(spec, target, 1000);
    throw UserError("no kernel " + name);
  };
  EXPECT_THAT(of("rmsnorm", "cpu"), AllOf(Contains("tag k vec\n"), Contains("split h 16 -> h_o h_i:vec\ntag k vec\n")));
  EXPECT_THAT(of("rmsnorm", "cuda"), AllOf(Contains("tag k lane h w\n"), Contains("tag k vec h l.0\n"),
                                           Contains("tag h w\n"), Not(Contains(HasSubstr("split")))));
  EXPECT_THAT(of("matmul_nt", "cpu"), Contains(HasSubstr("order ")));
}

TEST(Candidates, ComputeTheSame) {
  std::vector<Spec> specs;
  for (const Spec& spec : all_specs())
    if (spec.name == "rmsnorm" || spec.name == "matmul_nn" || spec.name == "attention" ||
        spec.name == "softmax_triangle")
      for (const std::string& steps : candidates(spec, "cpu", 6)) {
        specs.push_back(spec);
        specs.back().name = fmt::format("{}_{}", spec.name, specs.size());
        specs.back().steps = steps;
      }
  ASSERT_GT(specs.size(), 12u);
  const Program program(specs);
  for (const Spec& spec : specs)
    EXPECT_LT(difference(program, spec.name, 3, {}), 1) << spec.name << ": " << *spec.steps;
}

}  // namespace
}  // namespace megalith::codegen::testing
