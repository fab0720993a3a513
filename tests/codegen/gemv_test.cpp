// The tuned products (kernels/cpu/gemv.h) against the interpreter: right within rounding for every kind of float, for
// odd sizes and any number of rows; and the same bits however they are cut, on every instruction set that this machine
// can run and with every compiler.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/program.h"
#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/ops/packed.h"
#include "megalith/ops/registry.h"
#include "support/configurations.h"

namespace megalith::codegen::testing {
namespace {

const graph::TunedBody kGemv = ops::panel_body("gemv", {"weight"});
const graph::TunedBody kRmsnormGemv = ops::panel_body("rmsnorm_gemv", {"weight"});
const graph::TunedBody kRmsnormGateUpGemv = ops::panel_body("rmsnorm_gate_up_gemv", {"gate", "up"});
const graph::TunedBody kGemvInt8 = ops::panel_body("gemv_int8", {"weight", "scale"});
const graph::TunedBody kRmsnormGateUpGemvInt8 =
    ops::panel_body("rmsnorm_gate_up_gemv_int8", {"gate", "gate_scale", "up", "up_scale"});

constexpr const char* kLinear = R"(
        parameter T dynamic
        input x: $x[T, K]
        input weight: $w[N, K]
        output y: $x[T, N]
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * f32(weight[n, k])))";
constexpr const char* kRmsnorm = R"(
        parameter T dynamic
        attribute eps = 1e-6
        input x: $x[T, K]
        input norm: $w[K]
        input weight: $w[N, K]
        output y: $x[T, N]
        { [t, n, j, k] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K }
        ss[t] = sum(j, f32(x[t, j]) * f32(x[t, j]))
        y[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(weight[n, k])))";
constexpr const char* kGateUp = R"(
        parameter T dynamic
        attribute eps = 1e-6
        input x: $x[T, K]
        input norm: $w[K]
        input gate: $w[N, K]
        input up: $w[N, K]
        output y: $x[T, N]
        { [t, n, j, k, l] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K and 0 <= l < K }
        ss[t] = sum(j, f32(x[t, j]) * f32(x[t, j]))
        a[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * f32(gate[n, k]))
        b[t, n] = sum(l, f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l]) * f32(up[n, l]))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n])";

constexpr const char* kLinearInt8 = R"(
        parameter T dynamic
        input x: $x[T, K]
        input weight: i8[N, K]
        input scale: $w[N, G]
        output y: $x[T, N]
        { [t, n, k] : 0 <= t < T and 0 <= n < N and 0 <= k < K }
        y[t, n] = sum(k, f32(x[t, k]) * (f32(weight[n, k]) * f32(scale[n, k // L]))))";
constexpr const char* kGateUpInt8 = R"(
        parameter T dynamic
        attribute eps = 1e-6
        input x: $x[T, K]
        input norm: $w[K]
        input gate: i8[N, K]
        input gate_scale: $w[N, G]
        input up: i8[N, K]
        input up_scale: $w[N, G]
        output y: $x[T, N]
        { [t, n, j, k, l] : 0 <= t < T and 0 <= n < N and 0 <= j < K and 0 <= k < K and 0 <= l < K }
        ss[t] = sum(j, f32(x[t, j]) * f32(x[t, j]))
        a[t, n] = sum(k, f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k]) * (f32(gate[n, k]) * f32(gate_scale[n, k // L])))
        b[t, n] = sum(l, f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l]) * (f32(up[n, l]) * f32(up_scale[n, l // L])))
        y[t, n] = a[t, n] / (1 + exp(-a[t, n])) * b[t, n])";

const graph::Operator* gated(const char* name) { return &ops::builtin()->get(name); }

std::string with_dtypes(std::string text, const std::string& x, const std::string& w) {
  for (const auto& [mark, dtype] : {std::pair{std::string("$x"), x}, {std::string("$w"), w}})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.replace(at, 2, dtype);
  return text;
}

std::vector<Spec> specs() {
  struct Kind {
    const char *name, *text;
    const graph::TunedBody* body;
    const graph::Operator* op = nullptr;  // whose gate is the body's epilogue
  };
  struct Dtypes {
    const char *x, *w;
  };
  std::vector<Spec> result;
  for (const Kind& kind : {Kind{"linear", kLinear, &kGemv}, Kind{"rmsnorm", kRmsnorm, &kRmsnormGemv},
                           Kind{"gate_up", kGateUp, &kRmsnormGateUpGemv, gated("rmsnorm_gate_up")}})
    for (const auto& [x, w] :
         {Dtypes{"f32", "bf16"}, Dtypes{"bf16", "bf16"}, Dtypes{"f32", "f16"}, Dtypes{"f32", "f32"}})
      for (const int64_t k : {129, 512, 7}) {
        if (k != 129 && std::string(w) != "bf16") continue;  // each takes its time to compile
        result.push_back({fmt::format("{}_{}_{}_{}", kind.name, x, w, k),
                          with_dtypes(kind.text, x, w),
                          {{"T", 23}, {"N", 45}, {"K", k}},
                          {"n", "t"},
                          {},
                          kind.body,
                          {{"gate", 0.25}, {"up", 0.25}},  // sums of about 1, as those of a model
                          kind.op});
      }
  // Groups that end inside a row, one that is longer than it, and an even and an odd number of them.
  const std::pair<int64_t, int64_t> whole_bytes{-127, 127};
  const double small = 1.0 / 127;
  for (const Kind& kind :
       {Kind{"dequantize_linear", kLinearInt8, &kGemvInt8},
        Kind{"gate_up_int8", kGateUpInt8, &kRmsnormGateUpGemvInt8, gated("rmsnorm_dequantize_gate_up")}})
    for (const auto& [x, w] : {Dtypes{"f32", "bf16"}, Dtypes{"bf16", "f32"}})
      for (const auto& [k, l] : {std::pair<int64_t, int64_t>{129, 32}, {512, 128}, {96, 32}, {7, 32}})
        result.push_back({fmt::format("{}_{}_{}_{}_{}", kind.name, x, w, k, l),
                          with_dtypes(kind.text, x, w),
                          {{"T", 23}, {"N", 45}, {"K", k}, {"G", (k + l - 1) / l}, {"L", l}},
                          {"n", "t"},
                          {{"weight", whole_bytes}, {"gate", whole_bytes}, {"up", whole_bytes}},
                          kind.body,
                          {{"scale", small}, {"gate_scale", small}, {"up_scale", small}},
                          kind.op});
  return result;
}

// What products of bf16 pairs compute (kernels/cpu/pairs.h): the same with activations that are rounded first. Rows
// that are normalised are of twos and so of ones after it, or a value halfway between two of bf16 could go either way.
std::vector<Spec> rounding_specs() {
  auto rounded = [](std::string text, const std::string& x, const std::string& from, const std::string& to) {
    text = with_dtypes(text, x, "bf16");
    MEGALITH_ASSERT(text.find(from) != std::string::npos, "no {} in {}", from, text);
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  };
  auto linear = [&](const char* text, const char* x) {
    return rounded(text, x, "f32(x[t, k]) * f32(weight", "f32(bf16(f32(x[t, k]))) * f32(weight");
  };
  std::vector<Spec> result;
  auto add = [&](const std::string& name, const std::string& text, int64_t k, const graph::TunedBody* body,
                 const graph::Operator* op = nullptr, int64_t t = 23) {
    const bool norms = text.find("input norm") != std::string::npos;
    result.push_back({fmt::format("{}_{}", name, k),
                      text,
                      {{"T", t}, {"N", 45}, {"K", k}},
                      {"n", "t"},
                      norms ? decltype(Spec::values){{"x", {2, 2}}} : decltype(Spec::values){},
                      body,
                      {{"gate", 0.25}, {"up", 0.25}},
                      op});
  };
  for (const int64_t k : {129, 512, 7}) add("linear", linear(kLinear, "f32"), k, &kGemv);
  for (const int64_t k : {129, 512}) add("narrow", linear(kLinear, "bf16"), k, &kGemv);
  // Several blocks of tiles, and more columns than are taken at a time.
  add("long", linear(kLinear, "f32"), 1101, &kGemv, nullptr, 83);
  add("rmsnorm",
      rounded(kRmsnorm, "f32", "f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])",
              "f32(bf16(f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])))"),
      129, &kRmsnormGemv);
  for (const int64_t k : {129, 512})
    add("gate_up",
        rounded(rounded(kGateUp, "f32", "f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])",
                        "f32(bf16(f32(x[t, k]) * rsqrt(ss[t] / K + eps) * f32(norm[k])))"),
                "f32", "f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l])",
                "f32(bf16(f32(x[t, l]) * rsqrt(ss[t] / K + eps) * f32(norm[l])))"),
        k, &kRmsnormGateUpGemv, gated("rmsnorm_gate_up"));
  return result;
}

constexpr const char *kRounding = " -DMEGALITH_BF16_PRODUCTS", *kTiles = " -DMEGALITH_AMX_PRODUCTS";
#if defined(__x86_64__)
constexpr const char* kNoTiles = " -mno-amx-tile";
#else
constexpr const char* kNoTiles = "";
#endif

const Program& here() {
  static const Program* program = new Program(specs());
  return *program;
}
const Program& rounding_here() {
  static const Program* program = new Program(rounding_specs(), "c++", std::string("-march=native") + kRounding);
  return *program;
}

// With the tile registers of this machine, if it has some that it gives.
const Program& tiles_here() {
  static const Program* program =
      new Program(rounding_specs(), "c++", std::string("-march=native") + (amx_is_usable() ? "" : kNoTiles) + kTiles);
  return *program;
}

TEST(Gemv, IsRightForEveryDtypeSizeAndNumberOfRows) {
  for (const Spec& spec : specs())
    for (const int64_t rows : {0, 1, 3, 4, 5, 12, 16, 23})
      EXPECT_LT(difference(here(), spec.name, 1, {}, {{"T", rows}}), 1) << spec.name << " of " << rows << " rows";
}

void expect_right_where_rounded(const Program& program) {
  for (const Spec& spec : rounding_specs())
    for (const int64_t rows : {0, 1, 3, 4, 5, 12, 16, 23, 33, 83}) {
      if (rows > spec.sizes.at("T")) continue;
      EXPECT_LT(difference(program, spec.name, 1, {}, {{"T", rows}}), 1) << spec.name << " of " << rows << " rows";
    }
}

TEST(Gemv, IsRightWhereActivationsAreRounded) { expect_right_where_rounded(rounding_here()); }
TEST(Gemv, IsRightInTiles) { expect_right_where_rounded(tiles_here()); }

// Rows of any length, where those of IsRightWhereActivationsAreRounded() are all alike.
loop::Arrays arrays_of(Spec spec, unsigned seed) {
  spec.values.erase("x");
  return random_arrays(spec, seed);
}

void expect_same_bits_however_cut(const Program& program, const std::vector<Spec>& specs) {
  for (const Spec& spec : specs) {
    loop::Arrays whole = arrays_of(spec, 2), cut = whole;
    program.run(spec.name, whole);
    for (const auto& [n, t] : {std::pair<int64_t, int64_t>{16, 23}, {32, 1}, {48, 5}, {32, 40}}) {
      program.run(spec.name, cut, {{"n", n}, {"t", t}});
      EXPECT_EQ(cut.at("y").values, whole.at("y").values) << spec.name << " in tiles of " << n << " x " << t;
    }
  }
}

TEST(Gemv, GivesTheSameBitsHoweverItIsCut) {
  expect_same_bits_however_cut(here(), specs());
  expect_same_bits_however_cut(rounding_here(), rounding_specs());
  expect_same_bits_however_cut(tiles_here(), rounding_specs());
}

void expect_same_bits(const Program& here, const Program& there, const std::vector<Spec>& specs,
                      const std::string& machine) {
  for (const Spec& spec : specs) {
    loop::Arrays a = arrays_of(spec, 3), b = a;
    here.run(spec.name, a);
    there.run(spec.name, b);
    EXPECT_EQ(a.at("y").values, b.at("y").values) << spec.name << " " << machine;
  }
}

/// What is compiled once more for each machine, which takes its time: of one kind every size, of the others the one with
/// a rest. All kinds share what multiplies a panel, so every pair of dtypes of one of them stands for those of the others.
std::vector<Spec> some_of(std::vector<Spec> specs) {
  std::erase_if(specs, [](const Spec& spec) {
    const auto is = [&](const char* prefix) { return spec.name.starts_with(prefix); };
    if (is("linear_f32_bf16_") || is("dequantize_linear_f32_") || is("linear_512") || is("linear_7")) return false;
    if (spec.sizes.at("K") != 129) return !is("long_");
    const bool is_usual = spec.name.find("_f32_bf16_") != std::string::npos || is("rmsnorm_129") || is("gate_up_129");
    return (is("rmsnorm_") || is("gate_up_")) && !is_usual && !megalith::test::all_configurations();
  });
  return specs;
}

TEST(Gemv, GivesThemOnEveryMachineAndCompiler) {
  on_other_machines(some_of(specs()), [](const Program& there, const std::string& machine) {
    expect_same_bits(here(), there, some_of(specs()), machine);
  });
}

// With vdpbf16ps and without it.
TEST(Gemv, GivesThemOnEveryMachineThatRounds) {
  on_other_machines(
      some_of(rounding_specs()),
      [](const Program& there, const std::string& machine) {
        expect_same_bits(rounding_here(), there, some_of(rounding_specs()), machine);
      },
      kRounding);
}

// Tile registers, and arrays in their place.
TEST(Gemv, GivesThemOnEveryMachineInTiles) {
  if (!amx_is_usable()) printf("[SKIP] this machine has no AMX: only what stands in for it is compared\n");
  on_other_machines(
      some_of(rounding_specs()),
      [](const Program& there, const std::string& machine) {
        expect_same_bits(tiles_here(), there, some_of(rounding_specs()), machine);
      },
      std::string(kNoTiles) + kTiles);
}

// Otherwise the tests above would compare the same arithmetic.
TEST(Gemv, RoundsOnlyWhereItIsCompiledTo) {
  const Spec spec = rounding_specs().front();
  loop::Arrays exact = random_arrays(spec, 1), rounded = exact;
  here().run("linear_f32_bf16_129", exact);
  rounding_here().run(spec.name, rounded);
  EXPECT_NE(exact.at("y").values, rounded.at("y").values);
  loop::Arrays in_tiles = random_arrays(spec, 1);
  tiles_here().run(spec.name, in_tiles);
  EXPECT_NE(rounded.at("y").values, in_tiles.at("y").values) << "the sums have another order";
}

}  // namespace
}  // namespace megalith::codegen::testing
