// The tuned products (kernels/cpu/gemv.h) against the bodies that would be generated in their place: the same bits, for
// any number of rows, any tile and any K.
#include <gtest/gtest.h>

#include "codegen/program.h"

namespace megalith::codegen::testing {
namespace {

const graph::TunedBody kGemv{"cpu", "gemv.h", "gemv", {}};
const graph::TunedBody kGemvWithResidual{"cpu", "gemv.h", "gemv_with_residual", {}};
const graph::TunedBody kRmsnormGemv{"cpu", "gemv.h", "rmsnorm_gemv", {}};

std::vector<Spec> specs() {
  std::vector<Spec> result;
  for (const int64_t k : {129, 512, 7}) {
    const std::map<std::string, int64_t> sizes = {{"T", 11}, {"N", 45}, {"K", k}};
    const std::string number = std::to_string(k);
    Spec linear{"linear_" + number,
                R"(
        parameter T dynamic
        input x: f32[T, K]
        input weight: bf16[N, K]
        output y: f32[T, N]
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * f32(weight[n, k])))",
                sizes,
                {"n", "t"},
                {}};
    Spec residual{"residual_" + number,
                  R"(
        parameter T dynamic
        input x: f32[T, K]
        input weight: bf16[N, K]
        input residual: f32[T, N]
        output y: f32[T, N]
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = f32(residual[t, n]) + sum(k, f32(x[t, k]) * f32(weight[n, k])))",
                  sizes,
                  {"n"},
                  {}};
    Spec rmsnorm{"rmsnorm_" + number,
                 R"(
        parameter T dynamic
        attribute eps = 1e-6
        input x: f32[T, K]
        input norm: bf16[K]
        input weight: bf16[N, K]
        output y: f32[T, N]
        { [t, n, j, k] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K }
        ss[t] = sum(j, f32(x[t, j]) * f32(x[t, j]))
        y[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(weight[n, k])))",
                 sizes,
                 {"n", "t"},
                 {}};
    for (auto [spec, body] : {std::pair{&linear, &kGemv}, {&residual, &kGemvWithResidual}, {&rmsnorm, &kRmsnormGemv}}) {
      result.push_back(*spec);
      spec->name = "tuned_" + spec->name;
      spec->body = body;
      result.push_back(*spec);
    }
  }
  return result;
}

void expect_tuned_like_generated(const Program& program) {
  for (const Spec& spec : specs()) {
    if (spec.body) continue;
    const std::string tuned = "tuned_" + spec.name;
    EXPECT_LT(difference(program, tuned, 1), 1) << tuned;
    for (int64_t rows = 0; rows <= spec.sizes.at("T"); ++rows) {
      loop::Arrays want = random_arrays(spec, 2), got = want, cut = want;
      program.run(spec.name, want, {}, {{"T", rows}});
      program.run(tuned, got, {}, {{"T", rows}});
      program.run(tuned, cut, {{"n", 13}, {"t", 3}}, {{"T", rows}});
      EXPECT_EQ(got.at("y").values, want.at("y").values) << tuned << " of " << rows << " rows";
      EXPECT_EQ(cut.at("y").values, want.at("y").values) << tuned << " of " << rows << " rows, in tiles";
    }
  }
}

const Program& here() {
  static const Program* program = new Program(specs());
  return *program;
}

TEST(Gemv, GivesTheBitsOfTheGeneratedBody) { expect_tuned_like_generated(here()); }

TEST(Gemv, GivesThemOnEveryMachineAndCompiler) {
  struct Variant {
    const char *compiler, *flags;
  };
  for (const Variant& variant : {Variant{"c++", "-march=x86-64-v3"}, Variant{"c++", "-march=x86-64 -O1"},
                                 Variant{"clang++", "-march=native"}, Variant{"clang++", "-march=x86-64-v3"}}) {
#if !defined(__x86_64__)
    if (std::string(variant.flags).find("x86") != std::string::npos) continue;
#endif
    if (!compiler_exists(variant.compiler)) {
      printf("[SKIP] no %s\n", variant.compiler);
      continue;
    }
    const Program there(specs(), variant.compiler, variant.flags);
    expect_tuned_like_generated(there);
    for (const Spec& spec : specs()) {
      loop::Arrays a = random_arrays(spec, 3), b = a;
      here().run(spec.name, a);
      there.run(spec.name, b);
      EXPECT_EQ(a.at("y").values, b.at("y").values) << spec.name << " " << variant.compiler << " " << variant.flags;
    }
  }
}

}  // namespace
}  // namespace megalith::codegen::testing
