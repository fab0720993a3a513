// Texts of a few lines that would keep isl busy for hours.
#include "megalith/loop/isl_limit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include <isl/cpp.h>
#include <isl/ctx.h>

#include "loop/support.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/check.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/footprint.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Points that meet in a sum of floor divisions: each division is one more dimension that isl has to get rid of.
Kernel intricate_kernel(int num_inames) {
  std::string inames, bounds, index = "0";
  for (int i = 0; i < num_inames; ++i) {
    inames += fmt::format("{}a{}", i ? ", " : "", i);
    bounds += fmt::format("{}0 <= a{} < 1009", i ? " and " : "", i);
    index += fmt::format(" + {} * a{} // {} + {} * a{} mod {}", 3 + 2 * i, i, 7 + i, 5 + 3 * i, i, 11 + i);
  }
  Kernel kernel = parse_kernel(
      fmt::format("kernel many\noutput y: f32[1000000]\n{{ [{}] : {} }}\ny[{}] = 1", inames, bounds, index));
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

TEST(IslLimit, AKernelThatIsTooIntricateIsRefused) {
  const Kernel kernel = intricate_kernel(6);
  EXPECT_THAT(
      error_of([&] {
        with_isl_limit(
            "many", [&] { check_kernel(kernel); }, 20000);
      }),
      AllOf(HasSubstr("[many] isl gave up on this loop kernel after 20000 steps"), HasSubstr("fewer loop variables")));
}

TEST(IslLimit, IntricateKernelsEndInSeconds) {
  for (int num_inames : {3, 6, 9}) {
    const Kernel kernel = intricate_kernel(num_inames);
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = error_of([&] { with_isl_limit("many", [&] { check_kernel(kernel); }); });
    EXPECT_THAT(message, AnyOf(HasSubstr("isl gave up"), HasSubstr("writes the same element")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2)) << "on a busy machine";
  }
}

TEST(IslLimit, IsSharedByCallsWithinCallsAndEndsWithThem) {
  isl_ctx* const context = isl_context().get();
  EXPECT_EQ(isl_ctx_get_max_operations(context), 0u);
  with_isl_limit("k", [&] {
    const unsigned long most = isl_ctx_get_max_operations(context);
    EXPECT_GT(most, 0u);
    with_isl_limit("inner", [&] { parse_kernel("kernel p\n{ [i] : 0 <= i < 4 }\ny[i] = 1"); });
    EXPECT_EQ(isl_ctx_get_max_operations(context), most) << "also behind the bound of a text";
  });
  EXPECT_EQ(isl_ctx_get_max_operations(context), 0u);
  EXPECT_EQ(error_of([] { with_isl_limit("k", [] { throw UserError("another"); }); }), "another");
  EXPECT_EQ(isl_ctx_get_max_operations(context), 0u);
}

}  // namespace
}  // namespace megalith::loop
